package api

import (
	"context"
	"errors"
	"net/http"

	"stepwell"
	"stepwell/api/v1"
)

// Waits in Retry-After, in seconds: an overload of this process passes quickly, a
// caller's own limit when some of its runs have ended.
const (
	retryOverload = "2"
	retryLimit    = "10"
)

// Errors that the transport itself makes.
var (
	errNoPath      = stepwell.NotFound("Path")
	errMethod      = stepwell.Errorf(stepwell.KindInvalid, "method_not_allowed", "Method not supported on this path: see the Allow header")
	errOverload    = stepwell.Errorf(stepwell.KindUnavailable, "overloaded", "The service is overloaded: try again after the seconds in Retry-After")
	errTooSlow     = stepwell.Errorf(stepwell.KindUnavailable, "unavailable", "The service took too long to answer: try again after the seconds in Retry-After")
	errSilent      = stepwell.Errorf(stepwell.KindInvalid, "request_timeout", "The request body did not arrive in time: send it again without pauses")
	errBroken      = stepwell.Invalid("malformed_body", "The request body broke off or is wrongly framed: send it again whole")
	errNoKey       = stepwell.Errorf(stepwell.KindUnauthorized, "unauthorized", "API key missing: send it as 'Authorization: Bearer <API_KEY>'")
	errTwoKeys     = stepwell.Errorf(stepwell.KindUnauthorized, "unauthorized", "Two different API keys in one request: send only one")
	errBodyMissing = stepwell.Invalid("malformed_body", "The request body is missing: send a JSON object")
)

// statusOf gives the HTTP status of an error.
func statusOf(e *stepwell.Error) int {
	switch e {
	case errMethod:
		return http.StatusMethodNotAllowed
	case errSilent:
		return http.StatusRequestTimeout
	}
	switch e.Kind {
	case stepwell.KindInvalid:
		return http.StatusBadRequest
	case stepwell.KindUnauthorized:
		return http.StatusUnauthorized
	case stepwell.KindForbidden:
		return http.StatusForbidden
	case stepwell.KindNotFound:
		return http.StatusNotFound
	case stepwell.KindConflict:
		return http.StatusConflict
	case stepwell.KindTooLarge:
		return http.StatusRequestEntityTooLarge
	case stepwell.KindUnsupported:
		return http.StatusUnsupportedMediaType
	case stepwell.KindRateLimited:
		return http.StatusTooManyRequests
	case stepwell.KindUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// public gives the error that a caller sees. What is not a *stepwell.Error says
// nothing about itself: it may hold anything.
func public(err error) *stepwell.Error {
	var e *stepwell.Error
	if errors.As(err, &e) && e.Kind != stepwell.KindInternal {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errTooSlow // a caller who hung up gets no answer, so it was our own limit
	}
	return stepwell.Errorf(stepwell.KindInternal, "internal", "Internal error: try again, and give the X-Trace-Id to support if it stays")
}

// errorAnswer is the answer for an error.
func errorAnswer(err error) *response {
	e := public(err)
	res := &response{status: statusOf(e), header: http.Header{}}
	code := e.Code
	if code == "" {
		code = codeOf(e.Kind)
	}
	res.body = v1.Error{Error: v1.ErrorDetail{Message: e.Message, Code: code}}
	switch e.Kind {
	case stepwell.KindUnauthorized:
		res.header.Set("WWW-Authenticate", "Bearer")
	case stepwell.KindRateLimited:
		res.header.Set("Retry-After", retryLimit)
	case stepwell.KindUnavailable:
		res.header.Set("Retry-After", retryOverload)
	}
	return res
}

// codeOf is the code of an error that came without one.
func codeOf(k stepwell.Kind) string {
	switch k {
	case stepwell.KindInvalid:
		return "invalid"
	case stepwell.KindUnauthorized:
		return "unauthorized"
	case stepwell.KindForbidden:
		return "forbidden"
	case stepwell.KindNotFound:
		return "not_found"
	case stepwell.KindConflict:
		return "conflict"
	case stepwell.KindTooLarge:
		return "too_large"
	case stepwell.KindUnsupported:
		return "unsupported_media_type"
	case stepwell.KindRateLimited:
		return "rate_limited"
	case stepwell.KindUnavailable:
		return "unavailable"
	default:
		return "internal"
	}
}
