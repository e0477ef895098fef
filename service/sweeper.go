package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/fault"
	"stepwell/internal/metrics"
	"stepwell/store"
)

// How the sweeper works (design, step 10).
const (
	sweepEvery      = 3 * time.Second
	undispatchedAge = 10 * time.Second // after which a run whose workflow is not known to have started is started again
	startsPerSweep  = 300
	parentPatience  = time.Minute      // in which a chained run is left to the workflow of its parent
	silentFor       = 60 * time.Second // without progress, after which Temporal is asked about a run
	asksPerSweep    = 60               // 20 a second
	cancelsPerSweep = 300
	maxTaskAttempts = 5              // failures of a workflow task in a row, after which its run is given up
	startDeadline   = 36 * time.Hour // half of the namespace's retention: an older run is not started any more
)

// sweep puts right what crashes left, in one process at a time, until ctx ends.
func (s *Service) sweep(ctx context.Context) {
	every(ctx, sweepEvery, func() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_, err := s.Store.Sweep(ctx, func(ctx context.Context) error {
			return errors.Join(s.sweepOverdue(ctx), s.sweepStarts(ctx), s.sweepSilent(ctx), s.sweepAborted(ctx), s.sweepDeliveries(ctx))
		})
		if err != nil && ctx.Err() == nil {
			s.Metrics.Swept(metrics.SweptFailed)
			s.Log.Warn("the sweeper will try again", zap.Error(err))
		}
	})
}

// sweepStarts starts runs whose workflow is not known to have started.
func (s *Service) sweepStarts(ctx context.Context) error {
	refs, err := s.Store.Undispatched(ctx, undispatchedAge, startsPerSweep)
	if err != nil || len(refs) == 0 {
		return err
	}
	if err := s.Workflows.Ready(ctx); err != nil {
		return fmt.Errorf("%d runs wait for Temporal: %w", len(refs), err)
	}
	s.Log.Info("the sweeper starts runs", zap.Int("runs", len(refs)))
	return s.eachRun(ctx, refs, func(ctx context.Context, ref store.RunRef) error {
		run, err := s.Store.Run(ctx, ref.Org, ref.Run)
		if err != nil {
			return err
		}
		if time.Since(run.StartedAt) > startDeadline {
			return s.giveUp(ctx, ref, "The run could not be started: Temporal was away for too long")
		}
		if wait, err := s.leftToParent(ctx, run); err != nil || wait {
			return err
		}
		v, err := s.version(ctx, ref.Org, run.ToolVersion)
		if err != nil {
			return err
		}
		fault.Point(fault.SweptRecorded)
		if err := s.Workflows.StartRun(ctx, run, v.def); err != nil {
			return s.refused(ctx, ref, err)
		}
		fault.Point(fault.SweptStarted)
		s.Metrics.Swept(metrics.SweptStarted)
		s.started.add(ref)
		return nil
	})
}

// leftToParent reports whether the workflow of a chained run's parent may yet start it:
// it is open, and was so for less than parentPatience.
func (s *Service) leftToParent(ctx context.Context, run *stepwell.Run) (bool, error) {
	if run.ParentRunID == "" || time.Since(run.StartedAt) > parentPatience {
		return false, nil
	}
	state, err := s.Workflows.RunState(ctx, run.OrgID, run.ParentRunID)
	return state.Open, err
}

// eachRun does the same for each of some runs. One of which it fails does not keep the
// others from it, unless it fails for all: Postgres or Temporal is away.
func (s *Service) eachRun(ctx context.Context, refs []store.RunRef, do func(context.Context, store.RunRef) error) error {
	for _, ref := range refs {
		one, cancel := context.WithTimeout(ctx, 2*dispatchTimeout)
		err := do(one, ref)
		cancel()
		if err == nil {
			continue
		}
		if stepwell.KindOf(err) == stepwell.KindUnavailable || s.Workflows.Ready(ctx) != nil {
			return err
		}
		s.Log.Warn("the sweeper could not do anything for a run and will try again", zap.String("run", ref.Run), zap.Error(err))
	}
	return nil
}

// refused ends a run that Temporal will never take; any other error goes back.
func (s *Service) refused(ctx context.Context, ref store.RunRef, err error) error {
	if stepwell.KindOf(err) != stepwell.KindInvalid {
		return err
	}
	return s.giveUp(ctx, ref, "The run could not be started: its tool has too many steps")
}

// sweepSilent asks Temporal about runs that store nothing, and fails those that no
// workflow will ever finish.
func (s *Service) sweepSilent(ctx context.Context) error {
	refs, err := s.Store.Stale(ctx, silentFor, asksPerSweep)
	if err != nil {
		return err
	}
	return s.eachRun(ctx, refs, func(ctx context.Context, ref store.RunRef) error {
		progressed, err := s.Store.Checked(ctx, ref, silentFor)
		if err != nil || progressed {
			return err
		}
		return s.examine(ctx, ref)
	})
}

func (s *Service) examine(ctx context.Context, ref store.RunRef) error {
	state, err := s.Workflows.RunState(ctx, ref.Org, ref.Run)
	if err != nil {
		return err
	}
	s.Metrics.Swept(metrics.SweptExamined)
	switch {
	case !state.Known:
		return s.giveUp(ctx, ref, "The run's workflow is gone from Temporal")
	case !state.Open:
		return s.giveUp(ctx, ref, fmt.Sprintf("The run's workflow ended without finishing the run (%s)", state.Status))
	case state.TaskAttempt > maxTaskAttempts:
		// First, so that it is tried again when this process dies here: nobody looks after
		// the workflow of a run that has failed.
		if err := s.Workflows.TerminateRun(ctx, ref.Org, ref.Run, "the run was given up"); err != nil {
			return err
		}
		return s.giveUp(ctx, ref, "The run's workflow could not go on; the service's log says more")
	}
	return nil
}

// giveUp fails a run that nobody will finish.
func (s *Service) giveUp(ctx context.Context, ref store.RunRef, reason string) error {
	ended, err := s.Store.FinishRun(ctx, stepwell.Finish{Org: ref.Org, Run: ref.Run, Status: stepwell.RunFailed, Error: reason})
	if ended.Finished {
		s.Log.Warn("the sweeper gave a run up", zap.String("run", ref.Run), zap.String("reason", reason))
		s.Ended(&stepwell.Run{OrgID: ref.Org, ID: ref.Run})
		s.Deliver(ref.Org, ended.Deliveries)
		s.countGivenUp(ctx, ref)
	}
	return err
}

// countGivenUp counts a run that was given up; it is rare enough to be read for that.
func (s *Service) countGivenUp(ctx context.Context, ref store.RunRef) {
	s.Metrics.Swept(metrics.SweptGivenUp)
	if s.Metrics == nil {
		return
	}
	if run, err := s.Store.Run(ctx, ref.Org, ref.Run); err == nil {
		s.Metrics.RunEnded(string(run.Status), run.RequestSource, run.CompletedAt.Sub(run.StartedAt))
	}
}

// sweepAborted cancels the workflows of cancelled runs until each is known to have ended:
// Temporal may have been away when they were cancelled, or the server died before it told
// anybody.
func (s *Service) sweepAborted(ctx context.Context) error {
	refs, err := s.Store.TakeUnsettled(ctx, cancelsPerSweep)
	if err != nil || len(refs) == 0 {
		return err
	}
	var settled []store.RunRef
	err = s.eachRun(ctx, refs, func(ctx context.Context, ref store.RunRef) error {
		open, err := s.endWorkflow(ctx, ref)
		if err == nil && !open {
			settled = append(settled, ref)
		}
		return err
	})
	if len(settled) > 0 {
		err = errors.Join(err, s.Store.Settle(ctx, settled))
	}
	return err
}

// endWorkflow asks the workflow of a cancelled run to end, and ends one whose code cannot
// go on, and so cannot take the cancel. open is false when it had ended before.
func (s *Service) endWorkflow(ctx context.Context, ref store.RunRef) (open bool, err error) {
	state, err := s.Workflows.RunState(ctx, ref.Org, ref.Run)
	if err != nil || !state.Open {
		return false, err
	}
	if state.TaskAttempt > maxTaskAttempts {
		err = s.Workflows.TerminateRun(ctx, ref.Org, ref.Run, "the run was cancelled")
	} else {
		err = s.Workflows.CancelRun(ctx, ref.Org, ref.Run)
	}
	if err == nil {
		fault.Point(fault.SweptCancelled)
		s.Metrics.Swept(metrics.SweptCancelled)
	}
	return true, err
}
