package store

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"stepwell"
)

// hookRun records a run of a hook's call and gives the first run of its key.
func (ts *testStore) hookRun(id string, tool *stepwell.Tool, body []byte, key string) (first string) {
	ts.t.Helper()
	call := &stepwell.HookCall{Headers: json.RawMessage(`{"a":"b"}`), Body: body}
	if key != "" {
		call.Key = []byte(key)
	}
	r := &stepwell.Run{OrgID: ts.org, ID: id, ToolID: tool.ID, ToolVersion: tool.VersionKey, Inputs: json.RawMessage(`{}`),
		RequestSource: "webhook", Mode: "prod", TraceID: "trace", UserID: "user"}
	return must[string](ts.t)(ts.InsertHookRun(ts.t.Context(), r, call))
}

// TestHookKeys: a key is good for a day and one tool, and goes with the tool.
func TestHookKeys(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	tool := must[*stepwell.Tool](t)(ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: "hooked", Steps: []stepwell.Step{}}))
	other := must[*stepwell.Tool](t)(ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: "other", Steps: []stepwell.Step{}}))
	known := func(tool *stepwell.Tool, key string) string {
		t.Helper()
		return must[string](t)(ts.HookRun(t.Context(), ts.org, tool.ID, []byte(key)))
	}
	large := largeBody()
	for _, c := range []struct {
		run, key, first string
		tool            *stepwell.Tool
	}{
		{"one", "k", "", tool}, {"two", "k", "one", tool}, {"three", "k", "", other}, {"four", "", "", tool}, {"five", "", "", tool},
	} {
		if first := ts.hookRun(c.run, c.tool, large, c.key); first != c.first {
			t.Errorf("%s: the first is %q, want %q", c.run, first, c.first)
		}
	}
	_, err := ts.Run(t.Context(), ts.org, "two")
	wantKind(t, "the run of a repeat", err, stepwell.KindNotFound)
	if n := ts.blobFiles(); n != 4 {
		t.Errorf("%d blobs, want one for each run", n)
	}
	if known(tool, "k") != "one" || known(other, "k") != "three" || known(tool, "none") != "" {
		t.Error("the keys are not known")
	}
	// A refused call is not remembered: here its id is taken.
	r := &stepwell.Run{OrgID: ts.org, ID: "one", ToolID: tool.ID, ToolVersion: tool.VersionKey, Inputs: json.RawMessage(`{}`), RequestSource: "webhook", Mode: "prod", TraceID: "t", UserID: "u"}
	_, err = ts.InsertHookRun(t.Context(), r, &stepwell.HookCall{Headers: json.RawMessage(`{}`), Key: []byte("refused")})
	wantKind(t, "a taken id", err, stepwell.KindConflict)
	if known(tool, "refused") != "" {
		t.Error("a refused call is remembered")
	}

	ts.exec(`UPDATE hook_keys SET created_at = created_at - $1::interval WHERE tool_id = 'hooked'`, stepwell.HookKeyLife+time.Second)
	if known(tool, "k") != "" {
		t.Error("a key is known for longer than a day")
	}
	if first := ts.hookRun("six", tool, nil, "k"); first != "" || known(tool, "k") != "six" {
		t.Errorf("an old key counts: %q, then %q", first, known(tool, "k"))
	}
	ts.exec(`UPDATE hook_keys SET created_at = created_at - $1::interval WHERE tool_id = 'hooked'`, stepwell.HookKeyLife+time.Second)
	if n := must[int](t)(ts.DeleteHookKeys(t.Context())); n != 1 {
		t.Errorf("%d keys were old", n)
	}
	ts.noError(ts.DeleteTool(t.Context(), ts.org, "other"))
	if known(other, "k") != "" {
		t.Error("a deleted tool's key is known")
	}
}

// TestHookCalls: what a call brought is kept with the run and its reruns, a large body
// once, and goes with the last of them.
func TestHookCalls(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	tool := must[*stepwell.Tool](t)(ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: "hooked", Steps: []stepwell.Step{}}))
	bodies := map[string][]byte{"none": nil, "small": []byte("a\x00\xff"), "large": largeBody()}
	for id, body := range bodies {
		ts.hookRun(id, tool, body, "")
		ts.finish(stepwell.Finish{Run: id, Status: stepwell.RunFailed, Error: "e"})
		again := &stepwell.Run{OrgID: ts.org, ID: id + "-again", ToolID: tool.ID, ToolVersion: tool.VersionKey, Inputs: json.RawMessage(`{}`),
			RequestSource: "webhook", Mode: "prod", TraceID: "trace", UserID: "user", RerunOf: id}
		ts.noError(ts.InsertRerun(t.Context(), again, nil, Reuse{}))
		opened := must[*stepwell.OpenRun](t)(ts.OpenRun(t.Context(), ts.org, again.ID))
		if string(opened.HookHeaders) != `{"a":"b"}` || opened.HookIsText == (id == "small") {
			t.Errorf("%s: headers %s, text %v", id, opened.HookHeaders, opened.HookIsText)
		}
		ts.finish(stepwell.Finish{Run: again.ID, Status: stepwell.RunFailed, Error: "e"})
		for _, run := range []string{id, again.ID} {
			if got := must[[]byte](t)(ts.HookBody(t.Context(), ts.org, run)); !bytes.Equal(got, body) {
				t.Errorf("%s has a body of %d bytes, want %d", run, len(got), len(body))
			}
		}
		ts.age(2*month, id)
	}
	ts.run("plain", "")
	if o := must[*stepwell.OpenRun](t)(ts.OpenRun(t.Context(), ts.org, "plain")); o.HookHeaders != nil {
		t.Error("a run that no hook started has headers")
	}
	_, err := ts.HookBody(t.Context(), ts.org, "plain")
	wantKind(t, "the body of a run that no hook started", err, stepwell.KindNotFound)

	for want := range 2 { // the runs that were rerun stay as long as their reruns
		if n := ts.deleteExpired(); n != 3*want {
			t.Errorf("%d runs were deleted, want %d", n, 3*want)
		}
		ts.age(2*month, "none-again", "small-again", "large-again")
	}
	for ts.deleteExpired() > 0 {
	}
	_, removed, err := ts.RemoveDeletedBlobs(t.Context(), "")
	ts.noError(err)
	if removed != 1 {
		t.Errorf("%d blobs were removed, want the one large body", removed)
	}
	if n := ts.blobFiles(); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
	if _, err := ts.HookBody(t.Context(), ts.org, "large"); stepwell.KindOf(err) != stepwell.KindNotFound {
		t.Error("the call outlives its run:", err)
	}
}
