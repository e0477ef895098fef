package outbound

import (
	"net/url"
	"strings"
)

// Reason says why a request has no answer.
type Reason string

// The reasons. Those from Network on may leave the outcome of a sent request
// unknown; Error.Sent says whether anything was sent.
const (
	Invalid           Reason = "invalid request"      // the URL, the method or a header cannot be sent
	UnsupportedScheme Reason = "unsupported scheme"   // neither http nor https
	Refused           Reason = "address not allowed"  // by the egress mode, or always
	Unresolved        Reason = "host not found"       // the name has no address, or the resolver failed
	ConnectionRefused Reason = "connection refused"   // nobody listens
	TLS               Reason = "TLS failed"           // certificate not trusted, or no common protocol
	Network           Reason = "network error"        // no connection, or it broke before the answer was whole
	Timeout           Reason = "timeout"              // Request.Timeout passed
	Cancelled         Reason = "cancelled"            // the caller's context ended, for whatever cause
	TooLarge          Reason = "answer too large"     // over Config.MaxAnswer after decompression
	TooManyRedirects  Reason = "too many redirects"   // more than 5
	BadRedirect       Reason = "redirect not allowed" // https to http, another scheme, an unreadable Location
	BadAnswer         Reason = "invalid answer"       // no valid HTTP, headers over the limit, a broken compression
)

// maxShownURL bounds a URL in a message, in bytes.
const maxShownURL = 300

// Error is the failure of a request that got no whole answer.
type Error struct {
	Reason Reason
	// Sent is false only when it is proved that no byte of the request left.
	Sent bool
	// Message is public: method, URL without query, userinfo and fragment, and
	// what happened. The path is shown as it is; a caller that puts secrets
	// into paths masks the message.
	Message string
	// Err is the private cause; nil when the message says everything. It may
	// hold addresses and parts of an answer's head, so it is for errors.Is and
	// errors.As and not for logs.
	Err error
}

// Error gives the public message alone.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the private cause.
func (e *Error) Unwrap() error { return e.Err }

// shownURL is a URL as messages may show it.
func shownURL(u *url.URL) string {
	if u == nil {
		return "(unreadable URL)"
	}
	if u.Host == "" {
		return strings.ToValidUTF8(u.Scheme, "") + ":…"
	}
	s := u.Scheme + "://" + u.Host + u.EscapedPath()
	if len(s) > maxShownURL {
		s = strings.ToValidUTF8(s[:maxShownURL], "") + "…"
	}
	return s
}
