package web

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"stepwell"
)

// cookieName is the name of the session's cookie.
const cookieName = "stepwell_portal"

var (
	errNoPage  = stepwell.NotFound("Page")
	errForeign = stepwell.Errorf(stepwell.KindForbidden, "foreign_form", "This form was not sent from a page of this portal")
	errForm    = stepwell.Invalid("malformed_form", "The form could not be read")
	errLarge   = stepwell.Errorf(stepwell.KindTooLarge, "form_too_large", "The form is too large")
	errTooMany = stepwell.Errorf(stepwell.KindRateLimited, "too_many_tries", "There were too many tries")
)

// own refuses a form that another site's page sent. Browsers say where a request comes
// from in Sec-Fetch-Site; Origin decides for those that do not. Pages that send no referrer
// send `Origin: null`, so that one proves nothing either way.
func (v *visit) own() error {
	site, origin := v.r.Header.Get("Sec-Fetch-Site"), v.r.Header.Get("Origin")
	u, err := url.Parse(v.base)
	if err != nil {
		return err
	}
	ours := strings.EqualFold(origin, u.Scheme+"://"+u.Host)
	switch {
	case origin != "" && origin != "null" && !ours, site != "" && site != "same-origin":
		return errForeign
	case site == "same-origin" || ours:
		return nil
	}
	return errForeign
}

// parse reads the form.
func (v *visit) parse() error {
	if kind, _, _ := strings.Cut(v.r.Header.Get("Content-Type"), ";"); strings.TrimSpace(strings.ToLower(kind)) != "application/x-www-form-urlencoded" {
		return errForm
	}
	// Not every server lets its deadline be set; those that do not have one of their own.
	_ = http.NewResponseController(v.w).SetReadDeadline(time.Now().Add(pageTimeout))
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	err := v.r.ParseForm()
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return errLarge
	}
	if err != nil {
		return errForm
	}
	for _, values := range v.r.PostForm {
		for _, value := range values {
			if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
				return errForm
			}
		}
	}
	return nil
}

// enter finds the session of the cookie.
func (h *Handler) enter(v *visit) error {
	c, err := v.r.Cookie(cookieName)
	if err != nil || c.Value == "" {
		return stepwell.Errorf(stepwell.KindUnauthorized, stepwell.CodeSessionEnded, "Your visit has ended")
	}
	v.session = c.Value
	v.guest, err = h.Portal.Session(v.r.Context(), v.session)
	return err
}

// setCookie sets the session's cookie, or takes it away. It goes along when a sign-in
// elsewhere leads back by a link, and with no form of another site.
func (v *visit) setCookie(session string, expires time.Time) {
	http.SetCookie(v.w, &http.Cookie{Name: cookieName, Value: session, Path: v.root, Expires: expires,
		HttpOnly: true, Secure: strings.HasPrefix(v.base, "https:"), SameSite: http.SameSiteLaxMode})
}

// to leads to another page of the portal.
func (v *visit) to(path string, q url.Values) error {
	target := v.root + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	v.guard()
	v.w.Header().Set("Location", target)
	v.start(http.StatusSeeOther)
	return nil
}

// start sends the status.
func (v *visit) start(status int) {
	v.status = status
	v.w.WriteHeader(status)
}

// guard says what a browser may do with an answer: nothing but show it.
func (v *visit) guard() {
	header := v.w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	header.Set("X-Frame-Options", "DENY")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	header.Set("Cache-Control", "no-store")
	if strings.HasPrefix(v.base, "https:") {
		header.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// address is where a request comes from, without the port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// tries counts what may not be tried for ever, an hour at a time.
type tries struct {
	mu    sync.Mutex
	since time.Time
	count map[string]int
}

func newTries() *tries { return &tries{since: time.Now(), count: map[string]int{}} }

// maxTried is how many names are remembered in an hour: beyond it all are refused, which
// takes that many addresses or sessions.
const maxTried = 100_000

// may counts one try of a name and reports whether it is still allowed.
func (t *tries) may(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.since) > time.Hour {
		t.since, t.count = time.Now(), map[string]int{}
	}
	if _, known := t.count[name]; !known && len(t.count) >= maxTried {
		return false
	}
	t.count[name]++
	return t.count[name] <= triesPerHour
}
