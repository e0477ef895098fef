package service

import (
	"context"
	"time"

	"stepwell"
	"stepwell/store"
)

// queued is the reason of a run whose turn has not come: no worker has taken it up, or
// none has a slot free.
const queued = "queue"

// queueAfter is how long a run that is to send a request is quiet before it counts as
// queued. A request in flight is known to the store after a second.
const queueAfter = 3 * time.Second

// progress says how far a run is, from what it stored; nil when it has just ended.
func (s *Service) progress(ctx context.Context, run *stepwell.Run) (*stepwell.Progress, error) {
	ref := store.RunRef{Org: run.OrgID, Run: run.ID}
	if p, ok := s.reached.get(ref); ok {
		return p, nil
	}
	stored, err := s.Store.Progress(ctx, []store.RunRef{ref})
	if err != nil || stored[ref] == nil {
		return nil, err
	}
	p := progressOf(run.Tool, stored[ref])
	s.reached.put(ref, p)
	return p, nil
}

// progressOf says how far a run of a tool is that stored so much.
func progressOf(t *stepwell.Tool, stored *store.RunProgress) *stepwell.Progress {
	p := &stepwell.Progress{WaitingFor: stored.Waiting}
	if len(t.Steps) > 0 {
		p.Step = t.Steps[0].ID
	}
	for _, sum := range stored.Steps {
		p.Items += sum.Records
		p.Bytes += sum.Bytes
		p.Step, p.Page, p.Item = t.Steps[sum.Step].ID, sum.LastPage, sum.LastItem
	}
	if p.WaitingFor == nil && !stored.Claimed && stored.Quiet > queueAfter && sendsNext(t, stored.Steps) {
		p.WaitingFor = &stepwell.Waiting{Reason: queued}
	}
	return p
}

// sendsNext reports whether the next thing that a run does is certainly to send a request:
// transforms are at work for long without a trace in the store.
func sendsNext(t *stepwell.Tool, steps []stepwell.StepSummary) bool {
	from, to := 0, 0
	if len(steps) > 0 {
		last := steps[len(steps)-1]
		from, to = last.Step, last.Step
		if loops := t.Steps[last.Step].DataSelector != ""; loops || last.Done > 0 {
			to++ // of a loop nobody knows here whether it is at its end
			if !loops {
				from++
			}
		}
	}
	for i := from; i <= to; i++ {
		if i >= len(t.Steps) || t.Steps[i].IsTransform() {
			return false
		}
	}
	return true
}
