package store

import (
	"testing"
	"time"

	"stepwell"
)

// TestBulkIsBounded: an operation covers at most 10,000 runs, and one that is refused
// leaves nothing behind.
func TestBulkIsBounded(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("first", "")
	ts.exec(`INSERT INTO runs (org_id, id, tool_id, tool_version, inputs, options, request_source, mode, trace_id, user_id)
		SELECT org_id, 'r' || n, tool_id, tool_version, inputs, options, request_source, mode, trace_id, user_id FROM runs, generate_series(1, 10000) AS n WHERE id = 'first'`)
	op := stepwell.BulkOperation{OrgID: ts.org, ID: "a", Kind: stepwell.BulkCancel}
	if n := must[int](t)(ts.CountBulk(t.Context(), ts.org, op.Kind, RunQuery{})); n != 10_001 {
		t.Errorf("%d runs are counted", n)
	}
	if err := ts.InsertBulk(t.Context(), &op, RunQuery{}); stepwell.KindOf(err) != stepwell.KindInvalid {
		t.Errorf("10,001 runs: %v", err)
	}
	if _, err := ts.Bulk(t.Context(), ts.org, "a"); stepwell.KindOf(err) != stepwell.KindNotFound {
		t.Errorf("the refused operation is there: %v", err)
	}
	ts.noError(ts.InsertBulk(t.Context(), &op, RunQuery{StartedBefore: ts.oldest("r1")}))
	op = stepwell.BulkOperation{OrgID: ts.org, ID: "b", Kind: stepwell.BulkRerun}
	ts.noError(ts.InsertBulk(t.Context(), &op, RunQuery{}))
	if op.Total != 0 || op.CompletedAt.IsZero() {
		t.Errorf("an operation on no runs: %+v", op)
	}
	if err := ts.InsertBulk(t.Context(), &op, RunQuery{}); stepwell.KindOf(err) != stepwell.KindConflict {
		t.Errorf("the same id again: %v", err)
	}
	open := must[[]*stepwell.BulkOperation](t)(ts.OpenBulks(t.Context(), 10))
	if len(open) != 1 || open[0].ID != "a" || open[0].Total != 1 {
		t.Fatalf("open: %+v", open)
	}
	runs := must[[]string](t)(ts.NextOfBulk(t.Context(), ts.org, "a", 10))
	if len(runs) != 1 || runs[0] != "first" {
		t.Fatalf("next: %v", runs)
	}
	for range 2 { // the first record stands
		ts.noError(ts.RecordBulk(t.Context(), ts.org, "a", []stepwell.BulkResult{{Run: "first", Outcome: stepwell.BulkSkipped, Error: "had ended"}}))
	}
	got := must[*stepwell.BulkOperation](t)(ts.Bulk(t.Context(), ts.org, "a"))
	if got.Skipped != 1 || got.Done != 0 || got.CompletedAt.IsZero() || len(got.Errors) != 1 {
		t.Errorf("at its end: %+v", got)
	}
	ts.exec(`UPDATE bulk_operations SET completed_at = now() - interval '2 hours' WHERE id = 'a'`)
	if n := must[int](t)(ts.DeleteBulks(t.Context(), time.Hour)); n != 1 {
		t.Errorf("%d operations deleted", n)
	}
}

// TestBulksTakeTurns: many operations of one organization do not hold up another's, nor
// reruns that wait the cancel that would let them go on.
func TestBulksTakeTurns(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	insert := func(org, id string, kind stepwell.BulkKind) {
		ts.exec(`INSERT INTO bulk_operations SELECT (jsonb_populate_record(b, jsonb_build_object('org_id', $1::text, 'id', $2::text, 'kind', $3::text,
			'created_at', clock_timestamp(), 'completed_at', NULL))).* FROM bulk_operations b WHERE id = 'model'`, org, id, string(kind))
	}
	model := stepwell.BulkOperation{OrgID: ts.org, ID: "model", Kind: stepwell.BulkRerun}
	ts.noError(ts.InsertBulk(t.Context(), &model, RunQuery{Status: stepwell.RunFailed})) // of no run, so it has ended
	for _, id := range []string{"1", "2", "3"} {
		insert(ts.org, id, stepwell.BulkRerun)
	}
	other := must[string](t)(ts.CreateOrganization(t.Context(), "other"))
	insert(other, "theirs", stepwell.BulkRerun)
	insert(ts.org, "cancel", stepwell.BulkCancel)
	open := must[[]*stepwell.BulkOperation](t)(ts.OpenBulks(t.Context(), 2))
	if len(open) != 2 || open[0].ID != "theirs" || open[1].ID != "cancel" {
		t.Errorf("first are %+v", open)
	}
}

// oldest gives the start of a run.
func (ts *testStore) oldest(id string) time.Time {
	ts.t.Helper()
	r, err := ts.Run(ts.t.Context(), ts.org, id)
	ts.noError(err)
	return r.StartedAt
}
