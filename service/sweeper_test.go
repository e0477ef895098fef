package service

import (
	"strings"
	"testing"

	"stepwell"
	"stepwell/internal/devstack/stacktest"
	"stepwell/store"
	"stepwell/workflows"
)

// failing records a running run whose workflow task has failed so many times in a row.
func (ts *testService) failing(id string, t *stepwell.Tool, failures int) store.RunRef {
	ts.t.Helper()
	ref := ts.record(id, t, 2*silentFor)
	stacktest.FailingWorkflow(ts.t, stacktest.Shared(ts.t), workflows.RunID(ts.org, id), failures)
	ts.noError(ts.Store.MarkDispatched(ts.t.Context(), []store.RunRef{ref}))
	return ref
}

// TestSweeperGivesUpWhatCannotGoOn: a run whose workflow task fails again and again ends,
// and its workflow with it; one whose task may yet succeed is left alone.
func TestSweeperGivesUpWhatCannotGoOn(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	tool := ts.tool()
	ts.failing("hopeless", tool, maxTaskAttempts)
	ts.failing("hopeful", tool, maxTaskAttempts-1)
	if attempt := ts.state("hopeless").TaskAttempt; attempt != maxTaskAttempts+1 {
		t.Fatalf("the workflow task has the attempt %d", attempt)
	}
	ts.noError(ts.sweepSilent(t.Context()))
	if r := ts.run("hopeless"); r.Status != stepwell.RunFailed || !strings.Contains(r.Error, "could not go on") {
		t.Errorf("a run whose workflow cannot go on is %s (%s)", r.Status, r.Error)
	}
	if r := ts.run("hopeful"); r.Status != stepwell.RunRunning {
		t.Errorf("a run whose workflow may go on is %s (%s)", r.Status, r.Error)
	}
	for id, open := range map[string]bool{"hopeless": false, "hopeful": true} {
		if state := ts.state(id); state.Open != open {
			t.Errorf("the workflow of %s is %+v", id, state)
		}
	}
}

// TestSweeperEndsWhatCannotTakeACancel: a workflow whose code cannot go on never takes a
// cancel, so it is terminated; the run stays as it was cancelled.
func TestSweeperEndsWhatCannotTakeACancel(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	tool := ts.tool()
	for id, failures := range map[string]int{"hopeless": maxTaskAttempts, "hopeful": maxTaskAttempts - 1} {
		ts.failing(id, tool, failures)
		if _, err := ts.Cancel(t.Context(), ts.org, id); err != nil {
			t.Fatal(err)
		}
		if !ts.state(id).Open {
			t.Fatalf("%s: a cancel alone ended a workflow without a worker", id)
		}
	}
	ts.noError(ts.sweepAborted(t.Context()))
	for id, status := range map[string]string{"hopeless": "Terminated", "hopeful": "Running"} {
		if state := ts.state(id); state.Status != status {
			t.Errorf("the workflow of %s is %+v", id, state)
		}
		if r := ts.run(id); r.Status != stepwell.RunAborted || r.Error != "Run cancelled by user" {
			t.Errorf("%s became %s (%s)", id, r.Status, r.Error)
		}
	}
	ts.noError(ts.sweepAborted(t.Context()))
	refs, err := ts.Store.TakeUnsettled(t.Context(), 10)
	if err != nil || len(refs) != 1 || refs[0].Run != "hopeful" {
		t.Errorf("still looked after: %v (%v)", refs, err)
	}
}
