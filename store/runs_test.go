package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell"
)

// parallel calls f from many goroutines at once and waits for all.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func TestRunIDsAreTakenOnce(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	tool := ts.tool("orders")
	var mu sync.Mutex
	recorded, taken := 0, 0
	parallel(50, func(i int) {
		var credentials json.RawMessage
		if i%2 == 0 {
			credentials = json.RawMessage(`{"token":"secret"}`)
		}
		err := ts.InsertRun(t.Context(), &stepwell.Run{OrgID: ts.org, ID: "same", ToolID: tool.ID, ToolVersion: tool.VersionKey,
			Inputs: json.RawMessage(`{}`), RequestSource: "api", Mode: "prod", TraceID: "t", UserID: "u"}, credentials)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			recorded++
		case stepwell.KindOf(err) == stepwell.KindConflict:
			taken++
		default:
			t.Error(err)
		}
	})
	if recorded != 1 || taken != 49 {
		t.Errorf("%d recorded, %d conflicts", recorded, taken)
	}
	if n := ts.count(`SELECT count(*) FROM run_credentials`); n > 1 {
		t.Errorf("%d rows of credentials", n)
	}
}

func TestRunReadsBack(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	r := ts.run("r", "", func(r *stepwell.Run) {
		r.Inputs = json.RawMessage(`{"n": 12345678901234567890, "t": "ü"}`)
		r.Options = stepwell.RunOptions{Async: true, TimeoutMS: 5, MaxPages: 7}
		r.ParentRunID, r.RerunOf, r.Mode, r.RequestSource = "parent", "earlier", "dev", "cli"
	})
	got := must[*stepwell.Run](t)(ts.Run(t.Context(), ts.org, "r"))
	if string(got.Inputs) != string(r.Inputs) || got.Options != r.Options || got.ParentRunID != "parent" || got.RerunOf != "earlier" ||
		got.Mode != "dev" || got.RequestSource != "cli" || got.Status != stepwell.RunRunning || !got.CompletedAt.IsZero() || got.DataSize != -1 {
		t.Errorf("the run came back as %+v", got)
	}
	if !got.StartedAt.Equal(r.StartedAt) || time.Since(got.StartedAt) > time.Minute {
		t.Errorf("started at %v, then at %v", r.StartedAt, got.StartedAt)
	}
	_, err := ts.Run(t.Context(), ts.org, "none")
	wantKind(t, "a missing run", err, stepwell.KindNotFound)
	other := must[string](t)(ts.CreateOrganization(t.Context(), "two"))
	_, err = ts.Run(t.Context(), other, "r")
	wantKind(t, "another organization's run", err, stepwell.KindNotFound)
	if status := must[stepwell.RunStatus](t)(ts.RunStatus(t.Context(), other, "r")); status != "" {
		t.Errorf("another organization sees status %q", status)
	}
}

// TestOneFinish ends a run from 50 sides in every way: one end stands, whole.
func TestOneFinish(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		ts.run(id, `{"token":"secret"}`)
		var mu sync.Mutex
		var won []stepwell.Finish
		parallel(50, func(i int) {
			f := stepwell.Finish{Org: ts.org, Run: id, Alone: i%8 < 4}
			switch i % 4 {
			case 0:
				f.Status, f.Error = stepwell.RunFailed, "it failed"
			case 1:
				f.Status, f.Error = stepwell.RunAborted, "it was cancelled"
			case 2:
				f.Status, f.Result = stepwell.RunSuccess, &stepwell.Result{Body: json.RawMessage(`{"x":1}`), Bytes: 7}
			case 3:
				f.Status, f.Result = stepwell.RunSuccess, &stepwell.Result{Step: new(int), Bytes: 3}
				f.Last, f.LastKey = &stepwell.Page{Page: 1, Body: json.RawMessage(`[1]`), Done: true}, ts.key(id, 0, 0, 1)
			}
			ended, err := ts.FinishRun(t.Context(), f)
			if err != nil {
				t.Error(err)
			}
			if ended.Finished {
				mu.Lock()
				won = append(won, f)
				mu.Unlock()
				if ended.CompletedAt.IsZero() {
					t.Error("finished without a time")
				}
			}
		})
		if len(won) != 1 {
			t.Fatalf("%d of 50 finished the run", len(won))
		}
		got := must[*stepwell.Run](t)(ts.Run(t.Context(), ts.org, id))
		if got.Status != won[0].Status || got.Error != won[0].Error || got.CompletedAt.IsZero() {
			t.Errorf("%+v finished the run, and it is %s %q", won[0], got.Status, got.Error)
		}
	}
	if n := ts.count(`SELECT count(*) FROM run_credentials`); n != 0 {
		t.Errorf("%d rows of credentials outlive their runs", n)
	}
}

func TestFinishWithPage(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	last := stepwell.Page{Page: 1, Body: json.RawMessage(`["last"]`), Done: true}
	finish := func(run string) bool {
		p := last
		return ts.finish(stepwell.Finish{Run: run, Status: stepwell.RunSuccess, Result: &stepwell.Result{Step: new(int), Bytes: 8},
			Last: &p, LastKey: ts.key(run, 0, 0, 1)})
	}
	pages := func(run string) int { return ts.count(`SELECT count(*) FROM pages WHERE run_id = $1`, run) }

	ts.run("whole", "")
	if !finish("whole") || pages("whole") != 1 {
		t.Error("a run with its last page was not finished")
	}
	if r := must[*stepwell.Result](t)(ts.ReadResult(t.Context(), ts.org, "whole")); r.Step == nil || *r.Step != 0 || r.Bytes != 8 {
		t.Errorf("its result is %+v", r)
	}
	ts.run("ended", "")
	ts.finish(stepwell.Finish{Run: "ended", Status: stepwell.RunAborted, Error: "cancelled"})
	if finish("ended") || pages("ended") != 0 {
		t.Error("an ended run got a page")
	}
	ts.run("stored", "")
	ts.save(ts.key("stored", 0, 0, 1), stepwell.Page{Body: json.RawMessage(`["other"]`), Done: true})
	if finish("stored") {
		t.Error("a run was finished with a page that is not the stored one")
	}
	if status := must[stepwell.RunStatus](t)(ts.RunStatus(t.Context(), ts.org, "stored")); status != stepwell.RunRunning {
		t.Errorf("it is %s", status)
	}
}

// TestCancelAgainstFinish lets both happen at once, often: what is answered stands.
func TestCancelAgainstFinish(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	both := map[stepwell.RunStatus]int{}
	for i := range 60 {
		id := strings.Repeat("r", i+1)
		ts.run(id, "")
		var aborted, finished bool
		parallel(2, func(i int) {
			var err error
			if i == 0 {
				var ended stepwell.Ended
				ended, err = ts.AbortRun(t.Context(), ts.org, id, "Run cancelled by user")
				aborted = ended.Finished
			} else {
				var ended stepwell.Ended
				ended, err = ts.FinishRun(t.Context(), stepwell.Finish{Org: ts.org, Run: id, Status: stepwell.RunSuccess, Alone: len(id)%2 == 0,
					Result: &stepwell.Result{Step: new(int), Bytes: 3}, Last: &stepwell.Page{Page: 1, Body: json.RawMessage(`[1]`), Done: true}, LastKey: ts.key(id, 0, 0, 1)})
				finished = ended.Finished
			}
			if err != nil {
				t.Error(err)
			}
		})
		status := must[stepwell.RunStatus](t)(ts.RunStatus(t.Context(), ts.org, id))
		if aborted == finished || aborted != (status == stepwell.RunAborted) {
			t.Fatalf("aborted %v, finished %v, and the run is %s", aborted, finished, status)
		}
		both[status]++
	}
	t.Log(both)
}

func TestWhatEndsWithARun(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, f := range []stepwell.Finish{
		{Run: "success", Status: stepwell.RunSuccess, Result: &stepwell.Result{Body: json.RawMessage(`1`), Bytes: 1}, Warnings: []string{"mind this"}},
		{Run: "failed", Status: stepwell.RunFailed, Error: "no"},
		{Run: "aborted", Status: stepwell.RunAborted, Error: "Run cancelled by user"},
	} {
		ts.run(f.Run, `{"token":"canary"}`)
		opened := must[*stepwell.OpenRun](t)(ts.OpenRun(t.Context(), ts.org, f.Run))
		if string(opened.Credentials) != `{"token":"canary"}` || opened.HasPages || opened.HasClaims {
			t.Errorf("%s opens as %+v", f.Run, opened)
		}
		ts.noError(ts.SetWait(t.Context(), ts.key(f.Run, 0, 0, 1), stepwell.Waiting{Reason: "429", Until: time.Now().Add(time.Hour)}))
		ts.noError(ts.RenewWorker(t.Context(), "w"))
		if mine, _, _, err := ts.TakeClaim(t.Context(), ts.key(f.Run, 0, 0, 1), "w", true, false); err != nil || !mine {
			t.Fatal("not claimed: ", err)
		}
		if left := must[time.Duration](t)(ts.WaitLeft(t.Context(), ts.key(f.Run, 0, 0, 1))); left < 50*time.Minute || left > time.Hour {
			t.Errorf("of a wait of an hour %s are left", left)
		}
		if left := must[time.Duration](t)(ts.WaitLeft(t.Context(), ts.key(f.Run, 0, 1, 1))); left != 0 {
			t.Errorf("of no wait %s are left", left)
		}
		if o := must[*stepwell.OpenRun](t)(ts.OpenRun(t.Context(), ts.org, f.Run)); !o.HasClaims {
			t.Error("a run that waits looks as if nobody had met it")
		}
		if w := ts.waiting(f.Run); w == nil || w.Reason != "429" {
			t.Errorf("%s waits for %+v", f.Run, w)
		}
		if !ts.finish(f) {
			t.Fatal("not finished")
		}
		for _, table := range []string{"run_credentials", "waits", "claims"} {
			if n := ts.count(`SELECT count(*) FROM ` + table); n != 0 {
				t.Errorf("%s: %d rows of %s outlive the run", f.Run, n, table)
			}
		}
		ts.noError(ts.SetWait(t.Context(), ts.key(f.Run, 0, 0, 1), stepwell.Waiting{Reason: "late", Until: time.Now().Add(time.Hour)}))
		if w := ts.waiting(f.Run); w != nil {
			t.Errorf("an ended run waits for %+v", w)
		}
		if r := must[*stepwell.Run](t)(ts.Run(t.Context(), ts.org, f.Run)); len(r.Warnings) != len(f.Warnings) || r.Error != f.Error {
			t.Errorf("%s came back as %+v", f.Run, r)
		}
	}
}

// TestCredentialsAreSealed looks for a canary in everything that Postgres keeps.
func TestCredentialsAreSealed(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", `{"token":"canary-7f3a"}`)
	if n := ts.count(`SELECT count(*) FROM run_credentials WHERE position('canary-7f3a'::bytea IN sealed) > 0`); n != 0 {
		t.Error("the credentials are stored in the clear")
	}
	ts.run("s", `{"token":"canary-7f3a"}`)
	ts.exec(`UPDATE run_credentials a SET sealed = b.sealed FROM run_credentials b WHERE a.run_id = 's' AND b.run_id = 'r'`)
	if _, err := ts.OpenRun(t.Context(), ts.org, "s"); err == nil {
		t.Error("credentials sealed for one run open for another")
	}
	_, err := ts.OpenRun(t.Context(), ts.org, "none")
	wantKind(t, "open a missing run", err, stepwell.KindNotFound)
}

// TestStatusInvariants tries what only a bug would: the schema refuses it.
func TestStatusInvariants(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	for _, sql := range []string{
		`UPDATE runs SET status = 'success'`,
		`UPDATE runs SET completed_at = now()`,
		`UPDATE runs SET status = 'failed', completed_at = now()`,
		`UPDATE runs SET status = 'success', completed_at = now(), error = 'x'`,
		`UPDATE runs SET status = 'failed', completed_at = now(), error = 'x', data = '1'`,
		`UPDATE runs SET status = 'paused'`,
		`UPDATE runs SET mode = 'test'`,
		`INSERT INTO pages (org_id, run_id, step, item, page, done) VALUES ('o', 'r', 0, 0, 0, true)`,
	} {
		if _, err := ts.pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func TestSweepQueries(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, id := range []string{"new", "old", "started", "ended"} {
		ts.run(id, "")
	}
	ts.exec(`UPDATE runs SET started_at = now() - interval '2 minutes' WHERE id <> 'new'`)
	ts.noError(ts.MarkDispatched(t.Context(), []RunRef{{Org: ts.org, Run: "started"}, {Org: ts.org, Run: "none"}}))
	ts.finish(stepwell.Finish{Run: "ended", Status: stepwell.RunAborted, Error: "x"})
	if refs := must[[]RunRef](t)(ts.Undispatched(t.Context(), 10*time.Second, 10)); len(refs) != 1 || refs[0].Run != "old" {
		t.Errorf("not dispatched: %v", refs)
	}
	if refs := must[[]RunRef](t)(ts.Stale(t.Context(), time.Minute, 10)); len(refs) != 1 || refs[0].Run != "started" {
		t.Errorf("stale: %v", refs)
	}
	for range 2 { // until it is settled
		if refs := must[[]RunRef](t)(ts.TakeUnsettled(t.Context(), 10)); len(refs) != 1 || refs[0].Run != "ended" {
			t.Errorf("aborted: %v", refs)
		}
	}
	ts.noError(ts.Settle(t.Context(), []RunRef{{Org: ts.org, Run: "ended"}}))
	if refs := must[[]RunRef](t)(ts.TakeUnsettled(t.Context(), 10)); len(refs) != 0 {
		t.Errorf("settled, and still looked after: %v", refs)
	}
	started := RunRef{Org: ts.org, Run: "started"}
	if must[bool](t)(ts.Checked(t.Context(), started, time.Minute)) {
		t.Error("a silent run counts as progressing")
	}
	if refs := must[[]RunRef](t)(ts.Stale(t.Context(), time.Minute, 10)); len(refs) != 0 {
		t.Errorf("a run just looked at is stale: %v", refs)
	}
	ts.save(ts.key("started", 0, 0, 1), stepwell.Page{})
	if !must[bool](t)(ts.Checked(t.Context(), started, time.Minute)) {
		t.Error("a run with a new page counts as silent")
	}
	ended := must[[]RunRef](t)(ts.FinalAmong(t.Context(), []RunRef{started, {Org: ts.org, Run: "ended"}, {Org: ts.org, Run: "none"}}))
	if len(ended) != 1 || ended[0].Run != "ended" {
		t.Errorf("ended: %v", ended)
	}
	if n := must[int](t)(ts.Running(t.Context(), ts.org, 2)); n != 2 {
		t.Errorf("%d running up to 2", n)
	}
}

// TestUnsettledTakeTurns: however many aborted runs there are, none is forgotten for others.
func TestUnsettledTakeTurns(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for i := range 5 {
		id := fmt.Sprint("r", i)
		ts.run(id, "")
		ts.finish(stepwell.Finish{Run: id, Status: stepwell.RunAborted, Error: "x"})
	}
	ts.run("old", "")
	ts.finish(stepwell.Finish{Run: "old", Status: stepwell.RunAborted, Error: "x"})
	ts.exec(`UPDATE runs SET completed_at = now() - interval '80 hours' WHERE id = 'old'`)
	seen := map[string]int{}
	for range 5 {
		for _, ref := range must[[]RunRef](t)(ts.TakeUnsettled(t.Context(), 2)) {
			seen[ref.Run]++
		}
	}
	for i := range 5 {
		if n := seen[fmt.Sprint("r", i)]; n != 2 {
			t.Errorf("r%d was looked at %d times of 10 for 5 runs", i, n)
		}
	}
	if seen["old"] > 0 {
		t.Error("a run of which Temporal knows nothing any more is looked after")
	}
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	crm := ts.tool("crm", stepwell.Step{ID: "a", Config: stepwell.StepConfig{URL: "http://u/", SystemID: "crm"}},
		stepwell.Step{ID: "b", Config: stepwell.StepConfig{URL: "http://u/", SystemID: "crm"}})
	for i, id := range []string{"r0", "r1", "r2", "r3", "r4"} {
		ts.run(id, "", func(r *stepwell.Run) {
			if i < 3 {
				r.ToolID, r.ToolVersion = crm.ID, crm.VersionKey
			}
			r.UserID = []string{"ann", "bob"}[i%2]
			r.RequestSource = []string{"api", "cli", "webhook"}[i%3]
			if i == 4 {
				r.ParentRunID, r.RerunOf = "r0", "r1"
			}
		})
		ts.exec(`UPDATE runs SET started_at = $2 WHERE id = $1`, id, base.Add(time.Duration(i)*time.Minute))
	}
	ts.finish(stepwell.Finish{Run: "r1", Status: stepwell.RunFailed, Error: "x"})
	other := must[string](t)(ts.CreateOrganization(t.Context(), "two"))
	for _, test := range []struct {
		name string
		org  string
		q    RunQuery
		want string
	}{
		{"all", ts.org, RunQuery{}, "r4 r3 r2 r1 r0"},
		{"of another organization", other, RunQuery{}, ""},
		{"of a tool", ts.org, RunQuery{ToolID: "crm"}, "r2 r1 r0"},
		{"of a user", ts.org, RunQuery{UserID: "bob"}, "r3 r1"},
		{"of a system", ts.org, RunQuery{SystemID: "crm"}, "r2 r1 r0"},
		{"failed", ts.org, RunQuery{Status: stepwell.RunFailed}, "r1"},
		{"from two sources", ts.org, RunQuery{RequestSources: []string{"cli", "webhook"}}, "r4 r2 r1"},
		{"started after", ts.org, RunQuery{StartedAfter: base.Add(time.Minute)}, "r4 r3 r2"},
		{"started before", ts.org, RunQuery{StartedBefore: base.Add(time.Minute)}, "r0"},
		{"rerun of", ts.org, RunQuery{RerunOf: "r1"}, "r4"},
		{"child of", ts.org, RunQuery{ParentRunID: "r0"}, "r4"},
		{"of allowed tools", ts.org, RunQuery{OnlyTools: []string{"crm"}}, "r2 r1 r0"},
		{"of no tools", ts.org, RunQuery{OnlyTools: []string{}}, ""},
		{"of a tool and a user", ts.org, RunQuery{ToolID: "crm", UserID: "ann"}, "r2 r0"},
	} {
		test.q.Page, test.q.Limit = 1, 10
		runs, total, more, err := ts.ListRuns(t.Context(), test.org, test.q)
		ts.noError(err)
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != test.want || total != len(ids) || more {
			t.Errorf("%s: got %q (%d in all, more %v), want %q", test.name, got, total, more, test.want)
		}
	}
	runs, total, more, err := ts.ListRuns(t.Context(), ts.org, RunQuery{Page: 2, Limit: 2})
	ts.noError(err)
	if len(runs) != 2 || runs[0].ID != "r2" || total != 5 || !more {
		t.Errorf("the second page of two: %d runs, first %s, %d in all, more %v", len(runs), runs[0].ID, total, more)
	}
	runs, total, more, err = ts.ListRuns(t.Context(), ts.org, RunQuery{Page: 9, Limit: 2})
	ts.noError(err)
	if len(runs) != 0 || more {
		t.Errorf("a page behind the last: %d runs, %d in all, more %v", len(runs), total, more)
	}
}

// waiting gives what is stored of a run's waits.
func (ts *testStore) waiting(run string) *stepwell.Waiting {
	ts.t.Helper()
	ref := RunRef{Org: ts.org, Run: run}
	if p := must[map[RunRef]*RunProgress](ts.t)(ts.Progress(ts.t.Context(), []RunRef{ref}))[ref]; p != nil {
		return p.Waiting
	}
	return nil
}
