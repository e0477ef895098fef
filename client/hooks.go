package client

import (
	"context"
	"net/http"
	"net/url"

	"stepwell/api/v1"
)

// HookCall is one call of a hook. Empty fields are left out.
type HookCall struct {
	Body        []byte
	ContentType string // of Body; empty means application/json
	Key         string // Idempotency-Key: with one, a repeat starts no second run
	Mode        string // prod or dev
	Header      http.Header
}

// Hook calls the hook of a tool, as a sender of webhooks does, and gives the run that the
// call has started, or had started when it came first. A call without a Key is not
// repeated after a broken connection. The answer to a challenge is no run: it is empty.
func (c *Client) Hook(ctx context.Context, toolID string, h HookCall) (*v1.HookAnswer, error) {
	in := call{method: "POST", path: "/hooks/" + escape(toolID), query: url.Values{}, header: http.Header{}, raw: h.Body, repeatable: h.Key != ""}
	for name, values := range h.Header {
		in.header[name] = values
	}
	if h.ContentType != "" {
		in.header.Set("Content-Type", h.ContentType)
	}
	if h.Key != "" {
		in.header.Set("Idempotency-Key", h.Key)
	}
	if h.Mode != "" {
		in.query.Set("mode", h.Mode)
	}
	return change[v1.HookAnswer](ctx, c, in)
}
