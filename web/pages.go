package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"stepwell"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets/portal.css
var stylesheet []byte

// styleVersion makes the stylesheet's address change with it, so that it may be kept.
var styleVersion = version(stylesheet)

func version(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6])
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"label": label,
	"input": inputName,
	"form":  func(root string, row systemRow) formData { return formData{root, row} },
}).ParseFS(templateFiles, "templates/*.html"))

// layout is what every page is made of.
type layout struct {
	Root    string // path of the portal
	Style   string // version of the stylesheet
	Brand   Brand
	Title   string
	Guest   *stepwell.Guest
	Entered bool // there is a session
	Page    any
}

type linkPage struct{ Token string }

type systemsPage struct {
	Systems   []systemRow
	Connected int
	Done      string // what has just happened
	Wrong     string // with the form of WrongIn
	WrongIn   string
}

type systemRow struct {
	System
	Open  bool // its form is shown
	Wrong string
}

// formData is what the form of one system is made of.
type formData struct {
	Root string
	Row  systemRow
}

type connectPage struct {
	System  System
	Address string
	Host    string
}

// errorPage says what happened and what to do.
type errorPage struct {
	Heading string
	What    string // happened
	Next    string // to do
	Back    bool   // the list of systems is a way on
	Trace   string
}

// titles are the pages' titles; every page has one of its own.
var titles = map[string]string{
	"link":    "Connect your accounts",
	"systems": "Your connections",
	"remove":  "Remove credentials",
	"connect": "Continue to sign in",
	"left":    "You have left",
}

// render sends a page, made whole before its first byte is.
func (h *Handler) render(v *visit, status int, name string, page any) error {
	l := layout{Root: v.root, Style: styleVersion, Brand: h.brand(v.guest), Title: titles[name], Guest: v.guest,
		Entered: v.session != "" && v.guest != nil && name != "left", Page: page}
	if e, ok := page.(errorPage); ok {
		l.Title = e.Heading
	}
	if s, ok := page.(systemsPage); ok && s.Wrong != "" {
		l.Title = "Error: " + l.Title // so that it is the first thing that a screen reader says
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name+".html", l); err != nil {
		return err
	}
	v.guard()
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	v.start(status)
	_, _ = v.w.Write(b.Bytes()) // nobody is there to be told when this fails
	return nil
}

// statuses are the statuses of kinds of errors.
var statuses = map[stepwell.Kind]int{
	stepwell.KindInvalid: 400, stepwell.KindUnauthorized: 401, stepwell.KindForbidden: 403, stepwell.KindNotFound: 404,
	stepwell.KindConflict: 409, stepwell.KindTooLarge: 413, stepwell.KindRateLimited: 429, stepwell.KindUnavailable: 503,
}

// fail shows the page of an error.
func (h *Handler) fail(v *visit, err error) {
	status := statuses[stepwell.KindOf(err)]
	if status == 0 {
		status = http.StatusInternalServerError
		h.Log.Error("a page of the portal failed", zap.String("trace", v.trace), zap.Error(err))
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		v.w.Header().Set("Retry-After", "60")
	}
	page := h.explain(err)
	page.Back = page.Back && v.session != "" && v.guest != nil
	page.Trace = v.trace
	if err := h.render(v, status, "error", page); err != nil {
		h.Log.Error("the page of an error failed", zap.String("trace", v.trace), zap.Error(err))
		http.Error(v.w, "Something went wrong", http.StatusInternalServerError)
	}
}

// explain finds the words for an error.
func (h *Handler) explain(err error) errorPage {
	ask := "ask " + h.Contact + " for a new one."
	var e *stepwell.Error
	if !errors.As(err, &e) {
		e = &stepwell.Error{}
	}
	switch e.Code {
	case stepwell.CodeLinkUnknown:
		return errorPage{Heading: "This link does not work", What: "It may have been cut off when it was copied, or it was never valid.", Next: "Copy the whole link from the message that you received. If that does not help, " + ask}
	case stepwell.CodeLinkExpired:
		return errorPage{Heading: "This link has expired", What: "For your safety, links work for a limited time only.", Next: "A" + ask[1:]}
	case stepwell.CodeLinkReplaced:
		return errorPage{Heading: "There is a newer link", What: "This link stopped working when a newer one was made for you.", Next: "Use the newest link that you received. If you have none, " + ask}
	case stepwell.CodeSessionEnded:
		return errorPage{Heading: "Your visit has ended", What: "For your safety, a visit lasts at most an hour. What you saved before is still there.", Next: "Open your link again. If it has expired, " + ask}
	case errForeign.Code:
		return errorPage{Heading: "This request was refused", What: "It did not come from a page of this portal, so nothing was changed.", Next: "Open your link again and use the forms that you find there. If you came from another website, that website may not mean well.", Back: true}
	case errTooMany.Code:
		return errorPage{Heading: "Too many tries", What: "There were too many tries in a short time. Nothing was changed.", Next: "Wait for an hour and try again.", Back: true}
	}
	switch e.Kind {
	case stepwell.KindNotFound:
		return errorPage{Heading: "There is no such page", What: e.Message + ".", Next: "Open your link again. It leads to everything that there is.", Back: true}
	case stepwell.KindUnavailable:
		return errorPage{Heading: "We will be right back", What: "The service cannot answer at the moment. Nothing was changed.", Next: "Try again in a minute.", Back: true}
	case stepwell.KindInternal:
		return errorPage{Heading: "Something went wrong", What: "This is our fault, not yours.", Next: "Try again. If it happens again, tell " + h.Contact + " the code below.", Back: true}
	}
	return errorPage{Heading: "That did not work", What: e.Message + ".", Next: "Go back and try again. If it happens again, ask " + h.Contact + ".", Back: true}
}

// notAllowed says which methods a page has.
func (h *Handler) notAllowed(v *visit, page acts) error {
	var allow []string
	for method := range page {
		allow = append(allow, method)
	}
	sort.Strings(allow)
	v.w.Header().Set("Allow", strings.Join(allow, ", "))
	return h.render(v, http.StatusMethodNotAllowed, "error", errorPage{Heading: "That is not possible here", What: "This address cannot be used in that way.", Next: "Open your link again.", Trace: v.trace})
}

// asset serves a stylesheet or a logo.
func (h *Handler) asset(v *visit, rest string) bool {
	if v.r.Method != http.MethodGet {
		return false
	}
	var content []byte
	kind := "text/css; charset=utf-8"
	switch {
	case rest == "/portal.css":
		content = stylesheet
	case strings.HasPrefix(rest, "/brand/"):
		if content, kind = h.Brands.asset(strings.TrimPrefix(rest, "/brand/")); content == nil {
			return false
		}
	default:
		return false
	}
	v.guard()
	v.w.Header().Set("Content-Type", kind)
	v.w.Header().Set("Cache-Control", "public, max-age=86400")
	v.start(http.StatusOK)
	_, _ = v.w.Write(content)
	return true
}

// inputName is the name of the input of a system's i-th credential: not the credential's
// own, which may be anything.
func inputName(i int) string { return "value-" + strconv.Itoa(i) }

// upper are the words that stay in upper case.
var upper = map[string]bool{"api": true, "id": true, "url": true, "uri": true, "sid": true, "ssh": true, "pat": true, "jwt": true}

// label makes words of a credential's name: `api_key` is “API key”.
func label(key string) string {
	words := strings.FieldsFunc(key, func(r rune) bool { return r == '_' || r == '-' || r == '.' || unicode.IsSpace(r) })
	for i, w := range words {
		if upper[strings.ToLower(w)] {
			words[i] = strings.ToUpper(w)
		} else if i == 0 {
			first, n := utf8.DecodeRuneInString(w)
			words[i] = string(unicode.ToUpper(first)) + w[n:]
		}
	}
	if len(words) == 0 {
		return key
	}
	return strings.Join(words, " ")
}
