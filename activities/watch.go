package activities

import (
	"context"
	"time"

	"go.uber.org/zap"

	"stepwell"
)

// watchEvery is how often this process asks whether runs have ended for which something
// has been in flight for as long.
const watchEvery = time.Second

// watch cuts off what is in flight for runs that ended without this process being told,
// until ctx ends: the notice was lost, or the server died between the cancel and it. It
// asks for all of them at once, and only while something takes long.
func (ss *sessions) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ss.look(ctx)
	}
}

// look asks once.
func (ss *sessions) look(ctx context.Context) {
	refs := ss.long()
	if len(refs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	began := time.Now()
	ended, err := ss.a.Store.FinalAmong(ctx, refs)
	if err != nil {
		if ctx.Err() == nil {
			ss.a.Log.Warn("could not ask whether runs with work in flight have ended", zap.Error(err))
		}
		return
	}
	over := make(map[stepwell.RunRef]bool, len(ended))
	for _, ref := range ended {
		over[ref] = true
	}
	for _, ref := range refs {
		s := ss.known(ref)
		switch {
		case s == nil:
		case over[ref]:
			s.finish()
		default:
			s.running(began)
		}
	}
}

// long lists the runs for which an activity is at work and which were not known to be
// running for watchEvery.
func (ss *sessions) long() []stepwell.RunRef {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var refs []stepwell.RunRef
	for key, s := range ss.byRun {
		s.mu.Lock()
		if s.users > 0 && !s.ended && s.run != nil && time.Since(s.statusAt) >= watchEvery {
			refs = append(refs, stepwell.RunRef{Org: key.org, Run: key.run})
		}
		s.mu.Unlock()
	}
	return refs
}

// known gives the session of a run, nil when there is none.
func (ss *sessions) known(ref stepwell.RunRef) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.byRun[runKey{ref.Org, ref.Run}]
}
