package api

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"stepwell"
	"stepwell/api/v1"
)

// memoryDeliveries has one callback: d1, of run-1.
type memoryDeliveries struct{ *memory }

func (m memoryDeliveries) OfRun(ctx context.Context, org, run string) ([]*stepwell.Delivery, error) {
	if run != "run-1" {
		return nil, m.fail
	}
	d, err := m.Delivery(ctx, org, "d1")
	return []*stepwell.Delivery{d}, err
}

func (m memoryDeliveries) Delivery(_ context.Context, org, id string) (*stepwell.Delivery, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	if org != "acme" || id != "d1" {
		return nil, stepwell.NotFound("Delivery")
	}
	return &stepwell.Delivery{OrgID: org, ID: "d1", RunID: "run-1", ToolID: "orders", URL: "https://u:p@h/p?token=s3cret", Status: stepwell.DeliveryPending,
		CreatedAt: memoryTime, NextAttemptAt: memoryTime, Attempts: []stepwell.DeliveryAttempt{{Round: 1, Number: 1, StartedAt: memoryTime, Duration: 5e6, Status: 500, Error: "no"}}}, nil
}

func (m memoryDeliveries) Redeliver(ctx context.Context, org, id string) (*stepwell.Delivery, error) {
	return m.Delivery(ctx, org, id)
}

func (m memoryDeliveries) Secrets(context.Context, string) ([]stepwell.WebhookSecret, error) {
	return []stepwell.WebhookSecret{{ID: "w2", Key: []byte("new"), CreatedAt: memoryTime}, {ID: "w1", Key: []byte("old"), CreatedAt: memoryTime, ExpiresAt: memoryTime}}, m.fail
}

func (m memoryDeliveries) RotateSecret(context.Context, string) (*stepwell.WebhookSecret, error) {
	return &stepwell.WebhookSecret{ID: "w3", Key: []byte("newer"), CreatedAt: memoryTime}, m.fail
}

// TestCallbackBody looks at the bodies of callbacks, which the document describes too.
func TestCallbackBody(t *testing.T) {
	t.Parallel()
	m := newMemory()
	c := NewCallbacks(testRing, "https://stepwell.example.com/v1/", "soon")
	long := json.RawMessage(`"` + strings.Repeat("x", stepwell.MaxInlineData) + `"`)
	for name, test := range map[string]struct {
		change      func(*stepwell.Run)
		has, hasNot []string
	}{
		"success":   {func(r *stepwell.Run) {}, []string{`"success":true,"data":{"n":9007199254740993}}`, `"status":"success"`, `"tool":{"id":"orders"`, `"downloadUrl":"https://stepwell.example.com/v1/files/`, "token=…", `"important_notice":"soon"`}, []string{"s3cret", "resultStorageUri"}},
		"null":      {func(r *stepwell.Run) { r.Data = json.RawMessage("null") }, []string{`"success":true,"data":null}`}, nil},
		"large":     {func(r *stepwell.Run) { r.Data, r.DataSize, r.Inputs = nil, stepwell.MaxInlineData+1, long }, []string{`"success":true}`, `"resultStorageUri":"https://stepwell.example.com/v1/runs/run-1/results"`}, []string{`"data"`, "toolPayload"}},
		"aborted":   {func(r *stepwell.Run) { r.Status, r.Error, r.Data = stepwell.RunAborted, "Run cancelled by user", nil }, []string{`"success":false}`, `"status":"aborted"`, `"error":"Run cancelled by user"`}, []string{`"data"`}},
		"end user":  {func(r *stepwell.Run) { r.Options.EndUserID = "e1" }, []string{`"toolId":"orders"`}, []string{`"tool":`}},
		"long tool": {func(r *stepwell.Run) { tool := *r.Tool; tool.Instruction = string(long); r.Tool = &tool }, []string{`"toolId":"orders"`}, []string{`"tool":`}},
	} {
		run := *m.runs["acme/run-1"]
		test.change(&run)
		body, err := c.Body(&run)
		if err != nil {
			t.Fatal(err)
		}
		var back v1.Callback
		if err := json.Unmarshal(body, &back); err != nil || back.RunID != "run-1" {
			t.Fatalf("%s: %v in %s", name, err, body)
		}
		for _, s := range test.has {
			if !strings.Contains(string(body), s) {
				t.Errorf("%s: no %s in %.3000s", name, s, body)
			}
		}
		for _, s := range test.hasNot {
			if strings.Contains(string(body), s) {
				t.Errorf("%s: %s in %.3000s", name, s, body)
			}
		}
	}
}
