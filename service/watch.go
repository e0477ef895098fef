package service

import (
	"context"
	"sync"
	"time"

	"stepwell"
	"stepwell/store"
)

// How often a run that is watched is looked at, and that at most a small share of the
// time goes into it: summing up a run of very many pages takes long.
const (
	watchEvery   = time.Second
	watchLongest = 10 * time.Second
	watchShare   = 20 // pauses are at least so many times as long as a look took
)

// watches are the runs that somebody in this process watches.
type watches struct {
	mu    sync.Mutex
	byRun map[store.RunRef]*watch
}

// watch is one such run. Whoever watches it looks at it when it is time, and tells the
// others, so it costs the same for one as for many.
type watch struct {
	watchers int // guarded by watches.mu

	looking sync.Mutex // held by the one who looks
	mu      sync.Mutex
	run     *stepwell.Run // as it was last seen; not to be changed
	at      time.Time
	pause   time.Duration // until the next look
	changed chan struct{} // closed when there is something new
}

func (ws *watches) join(ref store.RunRef) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byRun[ref]
	if w == nil {
		w = &watch{changed: make(chan struct{}), pause: watchEvery}
		ws.byRun[ref] = w
	}
	w.watchers++
	return w
}

func (ws *watches) leave(ref store.RunRef, w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.watchers--; w.watchers == 0 {
		delete(ws.byRun, ref)
	}
}

// Watch calls visit with a run as it stands, at once and after that whenever it was seen
// to have moved, and ends after a final one. The run must not be changed.
func (s *Service) Watch(ctx context.Context, org, id string, visit func(*stepwell.Run) error) error {
	ref := store.RunRef{Org: org, Run: id}
	end := s.hub.wait(org, id)
	defer end.stop()
	w := s.watches.join(ref)
	defer s.watches.leave(ref, w)
	ended := false
	var shown *stepwell.Run
	for {
		if err := s.look(ctx, ref, w, ended); err != nil {
			return err
		}
		run, changed, next := w.latest()
		if run != shown {
			if err := visit(run); err != nil || run.Status.Final() {
				return err
			}
			shown = run
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-end.done:
			ended = true
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// latest gives the run, a channel that is closed when there is a newer one, and the
// time until the next look.
func (w *watch) latest() (*stepwell.Run, <-chan struct{}, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run, w.changed, time.Until(w.at.Add(w.pause))
}

// look reads the run, unless somebody has just done so; ended says that it is known to
// have ended. What is seen is kept even if the one who looked leaves meanwhile.
func (s *Service) look(ctx context.Context, ref store.RunRef, w *watch, ended bool) error {
	w.looking.Lock()
	defer w.looking.Unlock()
	run, _, next := w.latest()
	if run != nil && (run.Status.Final() || next > 0 && !ended) {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	seen, err := s.Get(ctx, ref.Org, ref.Run)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pause = min(max(watchEvery, watchShare*time.Since(began)), watchLongest)
	if moved(run, seen) {
		w.run = withRate(run, seen, began.Sub(w.at))
		close(w.changed)
		w.changed = make(chan struct{})
	}
	w.at = began
	return nil
}

// moved reports whether there is anything new to show.
func moved(before, now *stepwell.Run) bool {
	if before == nil || now.Status != before.Status || (before.Progress == nil) != (now.Progress == nil) {
		return true
	}
	if now.Progress == nil {
		return false
	}
	a, b := *before.Progress, *now.Progress
	wait := (a.WaitingFor == nil) != (b.WaitingFor == nil) || a.WaitingFor != nil && *a.WaitingFor != *b.WaitingFor
	a.WaitingFor, b.WaitingFor, a.Rate, b.Rate = nil, nil, 0, 0
	return wait || a != b
}

// withRate adds how fast the run has moved since it was last seen.
func withRate(before, now *stepwell.Run, since time.Duration) *stepwell.Run {
	if before == nil || before.Progress == nil || now.Progress == nil || since <= 0 {
		return now
	}
	out, p := *now, *now.Progress
	p.Rate = float64(p.Items-before.Progress.Items) / since.Seconds()
	out.Progress = &p
	return &out
}
