package service

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/store"
)

// How often runs that are watched are looked at: a run of very many pages less often,
// because summing it up takes long.
const (
	watchEvery   = time.Second
	watchPage    = 20 * time.Microsecond // added for each page that it has
	watchLongest = 10 * time.Second
	watchTick    = watchEvery / 4
	watchBatch   = 1000 // runs that are looked at in one round trip
)

// watches are the runs that somebody in this process watches.
type watches struct {
	mu    sync.Mutex
	byRun map[store.RunRef]*watch
}

// watch is one such run. However many watch it, it is looked at once, and together with
// the others that are due.
type watch struct {
	watchers int // guarded by watches.mu

	reading sync.Mutex // held by the one who reads the whole run
	mu      sync.Mutex
	run     *stepwell.Run // as it was last seen; not to be changed; nil at first
	at      time.Time     // when that was
	due     time.Time     // of the next look
	changed chan struct{} // closed when there is something new
}

func (ws *watches) join(ref store.RunRef) *watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byRun[ref]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
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
		run, changed := w.latest()
		if run == nil || ended && !run.Status.Final() {
			if err := s.readWatched(ctx, ref, w, ended); err != nil {
				return err
			}
			run, changed = w.latest()
		}
		if run != shown {
			if err := visit(run); err != nil || run.Status.Final() {
				return err
			}
			shown = run
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.done:
			ended = true
		case <-changed:
		}
	}
}

// latest gives the run and a channel that is closed when there is a newer one.
func (w *watch) latest() (*stepwell.Run, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run, w.changed
}

// readWatched reads the whole run, unless somebody has just done so; ended says that it is
// known to have ended. What is seen is kept even if the one who looked leaves meanwhile.
func (s *Service) readWatched(ctx context.Context, ref store.RunRef, w *watch, ended bool) error {
	w.reading.Lock()
	defer w.reading.Unlock()
	if run, _ := w.latest(); run != nil && (run.Status.Final() || !ended) {
		return nil
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	seen, err := s.Get(ctx, ref.Org, ref.Run)
	if err != nil {
		return err
	}
	w.see(seen, began, began.Add(watchEvery))
	return nil
}

// see notes how a run stood at a time, and tells who watches it if it has moved.
func (w *watch) see(seen *stepwell.Run, at, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != nil && w.run.Status.Final() {
		return
	}
	if moved(w.run, seen) {
		w.run = withRate(w.run, seen, at.Sub(w.at))
		close(w.changed)
		w.changed = make(chan struct{})
	}
	w.at, w.due = at, due
}

// watched gives the runs that are due to be looked at, and are looked at now.
func (ws *watches) watched(now time.Time) map[store.RunRef]*watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	out := map[store.RunRef]*watch{}
	for ref, w := range ws.byRun {
		w.mu.Lock()
		if w.run != nil && !w.run.Status.Final() && !now.Before(w.due) && len(out) < watchBatch {
			w.due = now.Add(watchEvery)
			out[ref] = w
		}
		w.mu.Unlock()
	}
	return out
}

// follow looks at the runs that are watched and due. That they end is the hub's to say.
func (s *Service) follow(ctx context.Context) {
	now := time.Now()
	due := s.watches.watched(now)
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, watchLongest)
	defer cancel()
	stored, err := s.Store.Progress(ctx, slices.Collect(maps.Keys(due)))
	if err != nil {
		s.Log.Debug("the runs that are watched could not be looked at", zap.Error(err))
		return
	}
	for ref, p := range stored {
		pages := 0
		for _, sum := range p.Steps {
			pages += sum.Pages
		}
		before, _ := due[ref].latest()
		seen := *before
		seen.Progress = progressOf(before.Tool, p)
		due[ref].see(&seen, now, now.Add(min(watchEvery+time.Duration(pages)*watchPage, watchLongest)))
	}
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
