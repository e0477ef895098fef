package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"stepwell"
	"stepwell/api/v1"
)

// hookReserved are the names under which a tool reads the call itself; no payload may
// bring them.
var hookReserved = []string{stepwell.HookHeaders, stepwell.HookRawBody, stepwell.HookRawBase64}

// hookSecrets are headers that a tool does not see.
var hookSecrets = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// hookKeys are the headers by which senders mark repeats of a call; the first one that is
// there counts.
var hookKeys = []string{"Idempotency-Key", "Webhook-Id", "X-Github-Delivery"}

// hookRequest is a webhook's call.
type hookRequest struct {
	payload   json.RawMessage // an object
	challenge json.RawMessage // a text that the sender wants back; nil for an event
	mode      string
	call      stepwell.HookCall
}

func parseHook(req *request) (in hookRequest, err error) {
	q := queryReader{values: req.query}
	in.mode = q.oneOf("mode", stepwell.ModeProd, stepwell.ModeDev)
	if q.err != nil {
		return in, q.err
	}
	payload, form, err := hookPayload(req.header, req.raw)
	if err != nil {
		return in, err
	}
	in.payload = payload
	if in.challenge, err = readPayload(in.payload); err != nil {
		return in, err
	}
	if form {
		in.challenge = nil
	}
	headers, err := hookHeaders(req)
	in.call = stepwell.HookCall{Headers: headers, Body: req.raw, Key: hookKey(req.header)}
	return in, err
}

// hookPayload makes the payload of any body: an object as it is, the fields of a form,
// everything else as {"body": …}.
func hookPayload(h http.Header, body []byte) (payload json.RawMessage, isForm bool, err error) {
	if len(body) == 0 {
		return json.RawMessage("{}"), false, nil
	}
	if err := plainEncoding(h); err != nil {
		return nil, false, err
	}
	text, wrong := checkJSON(body)
	switch {
	case wrong.kind == faultNone:
		if text = bytes.Trim(text, " \t\r\n"); text[0] == '{' {
			return text, false, nil
		}
		return slices.Concat([]byte(`{"body":`), text, []byte("}")), false, nil
	case wrong.kind != faultSyntax || jsonType(h.Get("Content-Type")):
		return nil, false, wrong.refusal(h.Get("Content-Type"), body)
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	var form *formFields
	switch {
	case media == "application/x-www-form-urlencoded":
		form, err = readForm(body)
	case media == "multipart/form-data" && err == nil:
		form, err = readMultipart(body, params["boundary"])
	default:
		plain := string(body)
		if !utf8.Valid(body) {
			plain = base64.StdEncoding.EncodeToString(body)
		}
		payload, err = encodeValue(map[string]string{"body": plain})
		return payload, false, err
	}
	if err != nil {
		return nil, false, err
	}
	payload, err = form.object()
	return payload, true, err
}

// readPayload looks at the payload's own fields: reserved names are refused; challenge is
// what a sender that asks whether somebody listens wants back, nil in an event.
func readPayload(payload json.RawMessage) (challenge json.RawMessage, err error) {
	fields, verification := 0, false
	eachMember(payload, func(key string, value json.RawMessage) bool {
		fields++
		switch {
		case slices.Contains(hookReserved, key):
			err = stepwell.Invalid("reserved_name", "The payload must not bring '%s': a tool reads the call itself under this name", key)
		case key == "challenge" && value[0] == '"':
			challenge = value
		case key == "type":
			verification = string(keyTextOf(value)) == "url_verification"
		}
		return err == nil
	})
	if fields != 1 && !verification {
		challenge = nil
	}
	return challenge, err
}

// keyTextOf is the text of a JSON text, nil of any other value.
func keyTextOf(value json.RawMessage) []byte {
	if value[0] != '"' {
		return nil
	}
	return keyText(value)
}

// hookHeaders are the headers of a call as an object, without those that are secret.
func hookHeaders(req *request) (json.RawMessage, error) {
	out := map[string]string{}
	if req.host != "" {
		out["host"] = req.host // which net/http keeps apart
	}
	for name, values := range req.header {
		if !slices.Contains(hookSecrets, name) {
			out[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	return encodeValue(out)
}

// hookKey is a digest of what tells repeats of a call from others; nil when nothing does.
func hookKey(h http.Header) []byte {
	for _, name := range hookKeys {
		if value := strings.Join(h[name], ", "); value != "" {
			sum := sha256.Sum256([]byte(name + ":" + value))
			return sum[:]
		}
	}
	return nil
}

// hook starts a run by a webhook's call. A repeat of a call gets the first answer,
// whatever became of the tool.
func (a *API) hook(ctx context.Context, req *request, in hookRequest) (*response, error) {
	if in.call.Key != nil {
		first, err := a.Runner.HookRun(ctx, req.caller.OrgID, req.tool.ID, in.call.Key)
		if err != nil {
			return nil, err
		}
		if first != "" {
			return hookAnswer(req, first), nil
		}
	}
	if in.challenge != nil {
		if req.tool.Archived {
			return nil, errArchived
		}
		return &response{status: http.StatusOK, body: v1.HookChallenge{Challenge: in.challenge}}, nil
	}
	n := NewRun{Inputs: in.payload, Hook: &in.call,
		Options: stepwell.RunOptions{Async: true, Mode: in.mode, RequestSource: "webhook"}}
	if err := a.completeRun(ctx, req, &n); err != nil {
		return nil, err
	}
	run, err := a.Runner.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	req.run = run // which the log names
	return hookAnswer(req, run.ID), nil
}

func hookAnswer(req *request, run string) *response {
	return &response{body: v1.HookAnswer{RunID: run, Status: "accepted", ToolID: req.tool.ID}}
}
