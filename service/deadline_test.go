package service

import (
	"testing"
	"time"

	"stepwell"
	"stepwell/store"
)

// TestSweeperStopsOverdueRuns: a run past the deadline that it was recorded with has
// failed, and its workflow is stopped, without any worker; a changed setting changes
// nothing for it, but holds for a run of a release that knew none.
func TestSweeperStopsOverdueRuns(t *testing.T) {
	t.Parallel()
	worker := &local{}
	ts := newService(t, withLocal(worker))
	tool := ts.tool()
	for id, deadline := range map[string]string{"started": "7d", "unstarted": "7d", "open": "8d"} {
		ts.record(id, tool, 7*24*time.Hour)
		ts.exec(`UPDATE runs SET deadline = started_at + $2::interval WHERE id = $1`, id, deadline)
	}
	ts.record("forever", tool, 1000*time.Hour) // this service has no setting
	ts.noError(ts.Workflows.StartRun(t.Context(), &stepwell.Run{OrgID: ts.org, ID: "started"}, tool))
	ts.noError(ts.sweepOverdue(t.Context()))
	for _, id := range []string{"started", "unstarted"} {
		if r := ts.run(id); r.Status != stepwell.RunFailed || r.Error != "The run was stopped: it had not ended within 7 days, the deadline of a run" {
			t.Errorf("%s: %s %q", id, r.Status, r.Error)
		}
	}
	for _, id := range []string{"open", "forever"} {
		if r := ts.run(id); r.Status != stepwell.RunRunning {
			t.Errorf("%s: %s %q", id, r.Status, r.Error)
		}
	}
	if state := ts.state("started"); !state.Known || state.Open {
		t.Errorf("the workflow is %+v", state)
	}
	ts.record("busy", tool, 0)
	ts.background()
	// Sent before the process listens, a notice reaches nobody: so by the sweeper itself.
	until(t, "the sweeper's notices come", 30*time.Second, func() bool {
		ts.notifier.Send(store.Notice{Topic: store.TopicCancel, Words: []string{ts.org, "probe"}})
		return worker.times("probe") > 0
	})
	ts.exec(`UPDATE runs SET deadline = clock_timestamp() WHERE id = 'busy'`)
	until(t, "the worker is told to cut off the run", 30*time.Second, func() bool { return worker.times("busy") > 0 })
}

// TestSweeperStopsOverdueRunsWithoutTemporal: they end at their deadline all the same.
func TestSweeperStopsOverdueRunsWithoutTemporal(t *testing.T) {
	t.Parallel()
	ts := newService(t, func(c *Config) { c.Workflows = temporalAt(t, "127.0.0.1:1") })
	ts.record("r", ts.tool(), time.Hour)
	ts.exec(`UPDATE runs SET deadline = started_at + '90 minutes'::interval - '1 hour'::interval WHERE id = 'r'`)
	ts.noError(ts.sweepOverdue(t.Context()))
	if r := ts.run("r"); r.Status != stepwell.RunFailed || r.Error != "The run was stopped: it had not ended within 30m0s, the deadline of a run" {
		t.Errorf("%s %q", r.Status, r.Error)
	}
}

func TestLengthText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{7*24*time.Hour + 300*time.Microsecond: "7 days", 24 * time.Hour: "1 day", 36 * time.Hour: "36h0m0s", 1500 * time.Millisecond: "2s"} {
		if got := lengthText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
