package activities

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"sync"

	"stepwell"
	"stepwell/engine"
)

// hookScope gives expressions the call of the hook that started a run: its headers, and
// its body, which is read when one asks for it.
type hookScope struct {
	s       *session
	headers json.RawMessage
	name    string // of the body
	mu      sync.Mutex
	body    json.RawMessage // nil until it is read
}

// hookScope is the call of a run that a hook started; nil for another run.
func (s *session) hookScope(opened *stepwell.OpenRun) engine.Scope {
	if opened.HookHeaders == nil {
		return nil
	}
	x := &hookScope{s: s, headers: opened.HookHeaders, name: stepwell.HookRawBase64}
	if opened.HookIsText {
		x.name = stepwell.HookRawBody
	}
	return x
}

// Keys lists the names.
func (x *hookScope) Keys() []string { return []string{stepwell.HookHeaders, x.name} }

// Get gives the headers as an object, the body as a text.
func (x *hookScope) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	switch key {
	case stepwell.HookHeaders:
		return x.headers, true, nil
	case x.name:
	default:
		return nil, false, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.body == nil {
		raw, err := x.s.all.a.Store.HookBody(ctx, x.s.key.org, x.s.key.run)
		if err != nil {
			return nil, false, err
		}
		if x.name == stepwell.HookRawBody {
			x.body, err = json.Marshal(string(raw))
		} else {
			x.body = strconv.AppendQuote(nil, base64.StdEncoding.EncodeToString(raw))
		}
		if err != nil {
			return nil, false, err
		}
	}
	return x.body, true, nil
}
