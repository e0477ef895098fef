package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/api"
	"stepwell/internal/fault"
	"stepwell/store"
)

const (
	dispatchTimeout = 3 * time.Second        // for Temporal to take a run; later the sweeper starts it
	downFor         = time.Second            // after a failed start, for which runs are left to the sweeper at once
	cancelWait      = 250 * time.Millisecond // in which workers acknowledge a cancel: longer than a status check is good for
	stoppedFor      = 2 * time.Minute        // after a cancel: a repeat sooner tells the workers again
	cancelTold      = time.Second            // for Temporal to take a cancel; later the sweeper sends it again
	countFor        = time.Second            // for which a count of unfinished runs is good
)

// startedRuns are runs whose workflow has started and whose row does not say so yet.
type startedRuns struct {
	mu        sync.Mutex
	refs      []store.RunRef
	downUntil atomic.Int64 // unix nanoseconds until which Temporal counts as away
}

func (s *startedRuns) add(ref store.RunRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs = append(s.refs, ref)
}

func (s *startedRuns) take() []store.RunRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := s.refs
	s.refs = nil
	return refs
}

// Start records a run durably and starts its workflow, now or, when Temporal is away,
// as soon as it is back.
func (s *Service) Start(ctx context.Context, n api.NewRun) (*stepwell.Run, error) {
	run := &stepwell.Run{
		OrgID: n.Caller.OrgID, ID: n.ID, ToolID: n.Tool.ID, ToolVersion: n.Tool.VersionKey, Tool: n.Tool,
		Status: stepwell.RunRunning, Inputs: n.Inputs, Options: n.Options, RequestSource: n.Options.RequestSource,
		TraceID: n.Options.TraceID, UserID: n.Caller.UserID, Mode: n.Options.Mode, DataSize: -1,
	}
	if err := s.mayStart(ctx, run.OrgID); err != nil {
		return nil, err
	}
	fault.Point(fault.RunUnrecorded)
	if first, err := s.record(ctx, run, n); err != nil || first != "" {
		run.ID = first
		return run, err
	}
	if err := fault.Error(fault.RunRecorded); err != nil {
		return nil, err
	}
	fault.Point(fault.RunRecorded)
	s.Metrics.RunStarted(run.RequestSource)
	if entry := s.Log.Check(zap.DebugLevel, "run recorded"); entry != nil {
		entry.Write(zap.String("run", run.ID), zap.String("tool", run.ToolID), zap.String("trace", run.TraceID))
	}
	s.dispatch(ctx, run, n.Tool)
	return run, nil
}

// record inserts the run, a rerun with what it reuses, a hook's with its call. first is
// the run of a hook's call that is a repeat; nothing is recorded then.
func (s *Service) record(ctx context.Context, run *stepwell.Run, n api.NewRun) (first string, err error) {
	switch {
	case n.Hook != nil:
		return s.Store.InsertHookRun(ctx, run, n.Hook)
	case n.Rerun != nil:
		reuse, err := s.reuse(ctx, n)
		if err != nil {
			return "", err
		}
		run.RerunOf = n.Rerun.Of.ID
		return "", s.Store.InsertRerun(ctx, run, n.Credentials, reuse)
	default:
		return "", s.Store.InsertRun(ctx, run, n.Credentials)
	}
}

// HookRun gives the run that a hook's call with a key started, empty when there is none.
func (s *Service) HookRun(ctx context.Context, org, tool string, key []byte) (run string, err error) {
	return s.Store.HookRun(ctx, org, tool, key)
}

// dispatch starts the workflow of a recorded run. It does not fail: what does not start
// now is started by the sweeper. A caller that hangs up stops nothing.
func (s *Service) dispatch(ctx context.Context, run *stepwell.Run, t *stepwell.Tool) {
	if time.Now().UnixNano() < s.started.downUntil.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dispatchTimeout)
	defer cancel()
	ref := store.RunRef{Org: run.OrgID, Run: run.ID}
	err := s.Workflows.StartRun(ctx, run, t)
	if stepwell.KindOf(err) == stepwell.KindInvalid {
		if err := s.refused(ctx, ref, err); err != nil {
			s.Log.Warn("the sweeper ends a run that Temporal refuses", zap.String("run", run.ID), zap.Error(err))
		}
		return
	}
	if err != nil {
		s.started.downUntil.Store(time.Now().Add(downFor).UnixNano())
		s.Log.Warn("the run is recorded and waits for Temporal", zap.String("run", run.ID), zap.String("tool", t.ID), zap.Error(err))
		return
	}
	fault.Point(fault.RunStarted)
	s.started.add(ref)
}

// StartAndWait starts a run and waits for its end, at most for limit.
func (s *Service) StartAndWait(ctx context.Context, n api.NewRun, limit time.Duration) (*stepwell.Run, error) {
	w := s.hub.wait(n.Caller.OrgID, n.ID)
	defer w.stop()
	run, err := s.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case done := <-w.done:
		if done != nil && done.StepResults != nil {
			return done, nil
		}
		return s.final(ctx, run.OrgID, run.ID)
	case <-timer.C:
		run, err := s.Get(ctx, run.OrgID, run.ID)
		if err == nil && run.Status.Final() { // at the last moment
			return s.final(ctx, run.OrgID, run.ID)
		}
		return run, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Cancel ends a running run. When it returns, no further request of the run starts.
func (s *Service) Cancel(ctx context.Context, org, id string) (*stepwell.Run, error) {
	if _, err := s.Store.Run(ctx, org, id); err != nil {
		return nil, err
	}
	ref := store.RunRef{Org: org, Run: id}
	// From here on a caller who hangs up changes nothing: half a cancel is none.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	ack := s.acks.expect(ref)
	defer s.acks.forget(ref)
	fault.Point(fault.CancelUnsaved)
	ended, err := s.Store.AbortRun(work, org, id, "Run cancelled by user")
	if err == nil {
		err = fault.Error(fault.CancelSaved)
	}
	fault.Point(fault.CancelSaved)
	if err != nil {
		return nil, err
	}
	s.Deliver(org, ended.Deliveries)
	run, err := s.Store.Run(work, org, id)
	if err != nil {
		return nil, err
	}
	// Also when another call aborted it a moment ago: that one may not have told the
	// workers yet, or never will because its process died.
	if run.Status == stepwell.RunAborted && time.Since(run.CompletedAt) < stoppedFor {
		s.stopWorkers(work, ref, ack)
		s.Ended(&stepwell.Run{OrgID: org, ID: id})
		fault.Point(fault.CancelStopped)
		s.cancelWorkflow(work, ref)
		fault.Point(fault.CancelSent)
	}
	run, err = s.Get(work, org, id)
	if err == nil && ended.Finished {
		s.Metrics.RunEnded(string(run.Status), run.RequestSource, run.CompletedAt.Sub(run.StartedAt))
	}
	if err == nil && run.Status != stepwell.RunAborted {
		return nil, stepwell.Invalid("run_ended", "The run has ended with status '%s' and cannot be cancelled", run.Status)
	}
	return run, err
}

// cancelWorkflow tells Temporal of a cancelled run. It holds the caller only for a moment:
// nothing depends on it but that the workflow ends soon.
func (s *Service) cancelWorkflow(ctx context.Context, ref store.RunRef) {
	ctx, cancel := context.WithTimeout(ctx, cancelTold)
	defer cancel()
	if err := s.Workflows.CancelRun(ctx, ref.Org, ref.Run); err != nil {
		s.Log.Info("the cancelled run's workflow was not reached; the sweeper cancels it", zap.String("run", ref.Run), zap.Error(err))
	}
}

// stopWorkers tells all workers to cut the run off, and waits until each has
// acknowledged or cancelWait has passed: then every status check made before is too old
// to send by.
func (s *Service) stopWorkers(ctx context.Context, ref store.RunRef, ack *ackWait) {
	deadline := time.NewTimer(cancelWait)
	defer deadline.Stop()
	live, err := s.Store.LiveWorkers(ctx)
	if err == nil {
		err = s.notifier.SendNow(ctx, store.Notice{Topic: store.TopicCancel, Words: []string{ref.Org, ref.Run}})
	}
	if err != nil {
		s.Log.Warn("workers were not told of a cancelled run; they find out by themselves", zap.String("run", ref.Run), zap.Error(err))
	}
	if s.Local != nil {
		live = append(live, s.Worker)
		s.wg.Go(func() { // a request that does not let go must not hold the caller
			s.Local.Cancelled(ref.Org, ref.Run)
			s.acks.stopped(ref, s.Worker)
		})
	}
	for waiting := err != nil || !ack.all(live); waiting; {
		select {
		case <-ack.changed:
			waiting = err != nil || !ack.all(live)
		case <-deadline.C:
			waiting = false
		}
	}
}

// cancelledElsewhere cuts a run off in this process's worker and says so.
func (s *Service) cancelledElsewhere(ref store.RunRef) {
	if s.Local == nil {
		return
	}
	s.wg.Go(func() { // short: it waits only for requests that were just cut off
		s.Local.Cancelled(ref.Org, ref.Run)
		s.notifier.Send(store.Notice{Topic: store.TopicStopped, Words: []string{ref.Org, ref.Run, s.Worker}})
	})
}

// acks collects the workers' acknowledgements of cancels.
type acks struct {
	mu    sync.Mutex
	byRun map[store.RunRef]*ackWait
}

type ackWait struct {
	mu      sync.Mutex
	users   int
	workers map[string]bool
	changed chan struct{}
}

func (a *acks) expect(ref store.RunRef) *ackWait {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.byRun[ref]
	if w == nil {
		w = &ackWait{workers: map[string]bool{}, changed: make(chan struct{}, 1)}
		a.byRun[ref] = w
	}
	w.users++
	return w
}

func (a *acks) forget(ref store.RunRef) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.byRun[ref]; w != nil {
		if w.users--; w.users == 0 {
			delete(a.byRun, ref)
		}
	}
}

func (a *acks) stopped(ref store.RunRef, worker string) {
	a.mu.Lock()
	w := a.byRun[ref]
	a.mu.Unlock()
	if w == nil {
		return
	}
	w.mu.Lock()
	w.workers[worker] = true
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// all reports whether each of the workers has acknowledged.
func (w *ackWait) all(workers []string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range workers {
		if !w.workers[id] {
			return false
		}
	}
	return true
}

// openCounts remembers for a moment how many unfinished runs organizations have.
type openCounts struct {
	mu    sync.Mutex
	byOrg map[string]openCount
}

type openCount struct {
	runs int
	at   time.Time
}

func newOpenCounts() *openCounts { return &openCounts{byOrg: map[string]openCount{}} }

// mayStart refuses a run of an organization that has too many unfinished ones. Between
// two counts it only adds, so it counts again before it refuses.
func (s *Service) mayStart(ctx context.Context, org string) error {
	s.open.mu.Lock()
	count := s.open.byOrg[org]
	count.runs++
	s.open.byOrg[org] = count
	s.open.mu.Unlock()
	if count.runs <= s.MaxOpen && time.Since(count.at) < countFor {
		return nil
	}
	runs, err := s.Store.Running(ctx, org, s.MaxOpen+1)
	if err != nil {
		return err
	}
	s.open.mu.Lock()
	s.open.byOrg[org] = openCount{runs: runs + 1, at: time.Now()}
	s.open.mu.Unlock()
	if runs >= s.MaxOpen {
		return stepwell.Errorf(stepwell.KindRateLimited, "too_many_runs", "The organization has %d unfinished runs, the most it may have; try again when some have ended", s.MaxOpen)
	}
	return nil
}
