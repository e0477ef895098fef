package outbound

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// userAgent is sent when the request brings none.
const userAgent = "stepwell"

// acceptEncoding names what decode undoes; a request may bring its own.
const acceptEncoding = "gzip, deflate"

// hop is one request of a chain of redirects.
type hop struct {
	method      string
	url         *url.URL // without userinfo and fragment
	header      http.Header
	body        []byte
	repeatable  bool
	headOnly    bool
	noRedirects bool
	credentials []string // names of headers that hold credentials, canonical
}

// newHop checks a request and makes the first hop of it.
func newHop(r Request) (*hop, *Error) {
	h := &hop{method: r.Method, body: r.Body, repeatable: r.Repeatable, headOnly: r.HeadOnly, noRedirects: r.NoRedirects, header: http.Header{}}
	if h.method == "" {
		h.method = http.MethodGet
	}
	if !httpguts.ValidHeaderFieldName(h.method) { // a method is a token too
		h.method = "(unreadable method)"
		return nil, h.fail(Invalid, "the method is not valid", nil)
	}
	u, err := url.Parse(r.URL)
	if err != nil { // the parser's error quotes the URL with its secrets
		return nil, h.fail(Invalid, "the URL is not valid", nil)
	}
	h.url = u
	if failure := h.checkURL(); failure != nil {
		return nil, failure
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, h.fail(Invalid, "a header name is not valid", nil)
		}
		if ours(name) {
			continue
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return nil, h.fail(Invalid, fmt.Sprintf("the value of header %s is not valid", name), nil)
			}
			h.header.Add(name, value)
		}
	}
	if user := u.User; user != nil {
		password, _ := user.Password()
		setDefault(h.header, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	setDefault(h.header, "User-Agent", userAgent)
	setDefault(h.header, "Accept-Encoding", acceptEncoding)
	for _, name := range r.CredentialHeaders {
		h.credentials = append(h.credentials, http.CanonicalHeaderKey(name))
	}
	return h, nil
}

// ours reports whether a header belongs to the connection and not to the
// request's author; such headers are left out.
func ours(name string) bool {
	name = http.CanonicalHeaderKey(name)
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

func setDefault(header http.Header, name, value string) {
	if _, set := header[name]; !set {
		header[name] = []string{value}
	}
}

func (h *hop) checkURL() *Error {
	if s := h.url.Scheme; s != "http" && s != "https" {
		return h.fail(UnsupportedScheme, "the scheme is not supported: use http or https", nil)
	}
	if h.url.Hostname() == "" {
		return h.fail(Invalid, "the URL has no host", nil)
	}
	if port := h.url.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return h.fail(Invalid, "the URL's port is not valid", nil)
		}
	}
	return nil
}

// fail makes the error of this hop, not sent.
func (h *hop) fail(reason Reason, text string, err error) *Error {
	return &Error{Reason: reason, Message: h.method + " " + shownURL(h.url) + ": " + text, Err: err}
}

// follow gives the hop that a redirect asks for, nil when the answer is none.
// An answer with a redirect's status and no Location is none.
func (h *hop) follow(answer *http.Response) (*hop, *Error) {
	if h.noRedirects {
		return nil, nil
	}
	location := answer.Header.Get("Location")
	if location == "" {
		return nil, nil
	}
	next := *h
	next.header = h.header.Clone()
	switch answer.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound:
		// As the Fetch standard has it: only POST changes.
		if h.method == http.MethodPost {
			next.becomeGet()
		}
	case http.StatusSeeOther:
		if h.method != http.MethodHead {
			next.becomeGet()
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	target, err := h.url.Parse(location)
	if err != nil {
		return nil, h.fail(BadRedirect, "redirected to an address that is not valid", nil)
	}
	target.User, target.Fragment, target.RawFragment = nil, "", "" // a redirect brings no credentials
	next.url = target
	if next.checkURL() != nil {
		return nil, h.fail(BadRedirect, "redirected to "+shownURL(target)+", which is no http or https address", nil)
	}
	if h.url.Scheme == "https" && target.Scheme == "http" {
		return nil, h.fail(BadRedirect, "redirected from https to "+shownURL(target), nil)
	}
	if origin(h.url) != origin(target) {
		for name := range next.header {
			if credentialName(name) || slices.Contains(h.credentials, http.CanonicalHeaderKey(name)) {
				delete(next.header, name)
			}
		}
	}
	return &next, nil
}

// becomeGet drops the body and what describes it. HEAD and GET are kept.
func (h *hop) becomeGet() {
	if h.method != http.MethodGet {
		h.method, h.body = http.MethodGet, nil
	}
	for name := range h.header {
		if h.body == nil && strings.HasPrefix(http.CanonicalHeaderKey(name), "Content-") {
			delete(h.header, name)
		}
	}
}

// origin is scheme, host and port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// credentialName guesses by its name whether a header holds a credential.
// Dropping one too many costs a redirect; keeping one too many gives it away.
func credentialName(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"auth", "cookie", "key", "token", "secret", "password", "credential", "session", "signature"} {
		if strings.Contains(name, part) {
			return name != "idempotency-key"
		}
	}
	return false
}
