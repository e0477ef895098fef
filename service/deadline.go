package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"stepwell/store"
)

// overduePerSweep is how many runs one sweep stops for their age.
const overduePerSweep = 100

// sweepOverdue stops runs that are open past their deadline, whatever they wait for. It
// needs no worker, and no Temporal: the workflow of a run that has ended finds that out
// by itself.
func (s *Service) sweepOverdue(ctx context.Context) error {
	overdue, err := s.Store.Overdue(ctx, overduePerSweep)
	if err != nil || len(overdue) == 0 {
		return err
	}
	away := s.Workflows.Ready(ctx) != nil
	var failures error
	for _, o := range overdue {
		if !away { // first, so that it is tried again when this process dies here
			told, cancel := context.WithTimeout(ctx, cancelTold)
			err := s.Workflows.TerminateRun(told, o.Org, o.Run, "the run is past its deadline")
			cancel()
			if err != nil {
				away = errors.Is(told.Err(), context.DeadlineExceeded)
				s.Log.Info("the workflow of a run past its deadline was not stopped; it finds out by itself", zap.String("run", o.Run), zap.Error(err))
			}
		}
		if err := s.giveUp(ctx, o.RunRef, fmt.Sprintf("The run was stopped: it had not ended within %s, the deadline of a run", lengthText(o.Deadline))); err != nil {
			failures = errors.Join(failures, err)
			continue
		}
		s.notifier.Send(store.Notice{Topic: store.TopicCancel, Words: []string{o.Org, o.Run}})
	}
	return failures
}

// lengthText writes a duration, in days when it is a whole number of them.
func lengthText(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = d.Round(time.Second); {
	case d == day:
		return "1 day"
	case d >= day && d%day == 0:
		return strconv.Itoa(int(d/day)) + " days"
	}
	return d.String()
}
