package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"stepwell"
	"stepwell/client"
)

// memoryStates is the state of one tool, without limits.
type memoryStates struct {
	values json.RawMessage
	seq    int64
}

func (m *memoryStates) Get(context.Context, string, *stepwell.Tool) (*stepwell.State, error) {
	return &stepwell.State{Seq: m.seq, Values: m.values}, nil
}

func (m *memoryStates) Put(_ context.Context, _ string, _ *stepwell.Tool, since *int64, state json.RawMessage) (StatePut, error) {
	var warnings []string
	if since != nil && *since < m.seq {
		warnings = append(warnings, fmt.Sprintf("changed since %d", *since))
	}
	m.values, m.seq = state, m.seq+1
	return StatePut{Seq: m.seq, Warnings: warnings}, nil
}

func (m *memoryStates) Reset(context.Context, string, *stepwell.Tool) (int, error) {
	m.values, m.seq = json.RawMessage(`{}`), m.seq+1
	return 1, nil
}

// TestState takes a state through its life with the Go client.
func TestState(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(newTestAPI(newMemory(), nil))
	t.Cleanup(srv.Close)
	ctx, c := t.Context(), client.New(srv.URL+"/v1", "limited-key")
	state, etag, err := c.ToolState(ctx, "orders")
	if err != nil || string(state.State) != `{"n":1}` || state.ToolID != "orders" || !strings.HasPrefix(etag, `"7-`) {
		t.Fatalf("%+v %s %v", state, etag, err)
	}
	for _, step := range []struct{ etag, want string }{
		{etag, "[]"}, {etag, "[changed since 7]"}, {"W/" + etag, "[changed since 7]"}, {"", "[]"}, {"*", "[]"}, {`"99-other"`, "[changed since 0]"},
	} {
		put, err := c.PutToolState(ctx, "orders", json.RawMessage(`{"b":[2]}`), step.etag)
		if err != nil || fmt.Sprint(put.Warnings) != step.want {
			t.Errorf("If-Match %s: %+v %v, want %s", step.etag, put, err, step.want)
		}
	}
	reset, err := c.ResetToolState(ctx, "orders")
	if err != nil || reset.DeletedKeys != 1 || reset.ToolID != "orders" {
		t.Fatalf("%+v %v", reset, err)
	}
	runner := client.New(srv.URL+"/v1", "runner-key")
	if state, _, err := runner.ToolState(ctx, "orders"); err != nil || string(state.State) != `{}` {
		t.Errorf("a runner reads %+v %v", state, err)
	}
	for _, err := range []error{
		second(runner.PutToolState(ctx, "orders", json.RawMessage(`{}`), "")), second(runner.ResetToolState(ctx, "orders")),
		third(runner.ToolState(ctx, "refunds")),
	} {
		if client.Status(err) != 403 || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("a runner got %v, want 403", err)
		}
	}
}

func second[A any](_ A, err error) error        { return err }
func third[A, B any](_ A, _ B, err error) error { return err }
