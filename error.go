package stepwell

import (
	"errors"
	"fmt"
)

// Kind classifies an error for whoever answers it.
type Kind int

// Kinds of errors and the HTTP status that each becomes.
const (
	KindInternal     Kind = iota // 500
	KindInvalid                  // 400
	KindUnauthorized             // 401
	KindForbidden                // 403
	KindNotFound                 // 404
	KindConflict                 // 409
	KindTooLarge                 // 413
	KindUnsupported              // 415
	KindRateLimited              // 429
	KindUnavailable              // 503
	KindLost                     // 500 with its message: something stored is gone or damaged, and no repetition helps
)

// Error is an error with a public message and a private cause. Message says
// what to do next in the API's words and holds no secret; Cause is for logs.
type Error struct {
	Kind    Kind
	Code    string // stable snake_case word
	Message string
	Cause   error
}

// Error gives the public message and, for logs, the cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return e.Message
}

// Unwrap gives the private cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error of a kind with a code and a public message.
func Errorf(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid is a 400 with a public message.
func Invalid(code, format string, args ...any) *Error {
	return Errorf(KindInvalid, code, format, args...)
}

// NotFound is the 404 of a thing, `<Thing> not found`.
func NotFound(thing string) *Error {
	return Errorf(KindNotFound, "not_found", "%s not found", thing)
}

// CodeBlobStore is the code of a KindUnavailable error that says that the blob store, and
// not the database, is away.
const CodeBlobStore = "blob_store_unavailable"

// IsBlobStoreAway reports whether an error says that the blob store is away: that it does
// not answer, fails, refuses or is full.
func IsBlobStoreAway(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == KindUnavailable && e.Code == CodeBlobStore
}

// MessageOf is the public message of the first Error in err's chain, empty without one.
func MessageOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}

// KindOf is the kind of the first Error in err's chain, KindInternal without one.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}
