package stepwell

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Names under which expressions read the call of a hook: its headers, its body as text,
// and a body that is no text in base64.
const (
	HookHeaders   = "__headers__"
	HookRawBody   = "__rawBody__"
	HookRawBase64 = "__rawBodyBase64__"
)

// HookKeyLife is how long the key of a hook's call is remembered: a repeat within it
// starts no second run.
const HookKeyLife = 24 * time.Hour

// HookCall is what the call of a hook brought besides the payload of its run.
type HookCall struct {
	Headers json.RawMessage // an object of texts, names in lower case
	Body    []byte          // as it came; may be empty, may be no text
	// Key tells repeats of one call from other calls of the same tool; nil when the
	// sender gave nothing to tell them by.
	Key []byte
}

// IsText reports whether the body is UTF-8.
func (h *HookCall) IsText() bool { return utf8.Valid(h.Body) }
