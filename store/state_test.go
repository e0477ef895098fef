package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"stepwell"
)

// put replaces the state of a tool and gives the keys that others changed since.
func (ts *testStore) put(tool string, since *int64, state string) *StatePutResult {
	ts.t.Helper()
	return must[*StatePutResult](ts.t)(ts.PutState(ts.t.Context(), ts.org, tool, StatePut{
		Since: since,
		Equal: func(a, b json.RawMessage) bool { return string(a) == string(b) },
		Replace: func(json.RawMessage) (values map[string]json.RawMessage, err error) {
			return values, json.Unmarshal([]byte(state), &values)
		},
	}))
}

// wantState compares the state of a tool.
func (ts *testStore) wantState(tool, want string) int64 {
	ts.t.Helper()
	state := must[*stepwell.State](ts.t)(ts.State(ts.t.Context(), ts.org, tool))
	var got map[string]json.RawMessage
	ts.noError(json.Unmarshal(state.Values, &got))
	if text := string(must[[]byte](ts.t)(json.Marshal(got))); text != want {
		ts.t.Errorf("the state is %s, want %s", text, want)
	}
	return state.Seq
}

func TestState(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.tool("a")
	ts.tool("b")
	first := ts.wantState("a", `{}`)
	if res := ts.put("a", &first, `{"x":1,"big":12345678901234567890.10,"t":"ü\u0000","n":null}`); len(res.Changed) > 0 || res.Seq != first+1 {
		t.Errorf("the first PUT gave %+v", res)
	}
	seq := ts.wantState("a", `{"big":12345678901234567890.10,"n":null,"t":"ü\u0000","x":1}`)
	ts.put("b", nil, `{"x":"of b"}`)

	// Equal values raise no version, the others do.
	if res := ts.put("a", &seq, `{"x":1,"n":2}`); res.Seq != seq+1 || len(res.Changed) > 0 {
		t.Errorf("the second PUT gave %+v", res)
	}
	if res := ts.put("a", nil, `{"n":2,"x":1}`); res.Seq != seq+1 {
		t.Errorf("an equal PUT gave %+v", res)
	}
	if res := ts.put("a", &seq, `{"x":5}`); fmt.Sprint(res.Changed) != "[big n t]" {
		t.Errorf("changed since %d: %v, want big, n and t", seq, res.Changed)
	}
	if res := ts.put("a", &first, `{"x":5}`); fmt.Sprint(res.Changed) != "[big n t x]" {
		t.Errorf("changed since the beginning: %v", res.Changed)
	}
	if n := must[int](t)(ts.ResetState(t.Context(), ts.org, "a")); n != 1 {
		t.Errorf("the reset removed %d keys, want 1", n)
	}
	if n := must[int](t)(ts.ResetState(t.Context(), ts.org, "a")); n != 0 {
		t.Errorf("the second reset removed %d keys, want 0", n)
	}
	ts.wantState("a", `{}`)
	ts.wantState("b", `{"x":"of b"}`)

	// Another organization's, and a missing one.
	other := must[string](t)(ts.CreateOrganization(t.Context(), "two"))
	for _, tool := range []struct{ org, id string }{{other, "b"}, {ts.org, "none"}} {
		_, err := ts.State(t.Context(), tool.org, tool.id)
		wantKind(t, "read", err, stepwell.KindNotFound)
		_, err = ts.ResetState(t.Context(), tool.org, tool.id)
		wantKind(t, "reset", err, stepwell.KindNotFound)
		_, err = ts.PutState(t.Context(), tool.org, tool.id, StatePut{})
		wantKind(t, "put", err, stepwell.KindNotFound)
	}

	// A tool takes its state with it.
	ts.noError(ts.DeleteTool(t.Context(), ts.org, "b"))
	ts.tool("b")
	ts.wantState("b", `{}`)
	if n := ts.count(`SELECT count(*) FROM state_keys WHERE tool_id = 'b'`); n != 0 {
		t.Errorf("%d keys of the deleted tool are left", n)
	}
}

// TestStateForgets replaces the keys so often that the first removals are forgotten: who
// read the state before them is told so, others still get the names.
func TestStateForgets(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.tool("a")
	ts.put("a", nil, `{"first":1}`)
	before := ts.wantState("a", `{"first":1}`)
	ts.put("a", nil, `{}`)
	ts.exec(`INSERT INTO state_removed (org_id, tool_id, key, version) SELECT $1, 'a', 'k' || n, $2 + n FROM generate_series(1, $3::int) AS n`, ts.org, before+1, removedKept)
	ts.exec(`UPDATE tools SET state_seq = $2 WHERE org_id = $1 AND id = 'a'`, ts.org, before+1+removedKept)
	late := before + 1 + removedKept - 2
	ts.put("a", nil, `{"x":1}`)
	res := ts.put("a", &before, `{}`)
	if !slices.Contains(res.Changed, "first") || res.Forgot {
		t.Errorf("before anything is forgotten: %d changes, forgot %v", len(res.Changed), res.Forgot)
	}
	res = ts.put("a", &before, `{}`)
	if slices.Contains(res.Changed, "first") || !res.Forgot {
		t.Errorf("after that: %d changes, forgot %v; want without the first, and told so", len(res.Changed), res.Forgot)
	}
	res = ts.put("a", &late, `{}`)
	if fmt.Sprint(res.Changed) != fmt.Sprintf("[k%d k%d x]", removedKept, removedKept-1) || res.Forgot {
		t.Errorf("who read later is told %v, forgot %v", res.Changed, res.Forgot)
	}
	if n := ts.count(`SELECT count(*) FROM state_removed WHERE tool_id = 'a'`); n > removedKept {
		t.Errorf("%d removed keys are kept, want at most %d", n, removedKept)
	}
}
