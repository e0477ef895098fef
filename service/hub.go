package service

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/store"
)

// pollEvery is how often one query asks for all runs that somebody in this process
// waits for: the answer when a notice was lost. No answer may be a second late, and on a
// busy machine the query takes its time too.
const pollEvery = 500 * time.Millisecond

// hub tells who waits in this process that a run has ended.
type hub struct {
	store *store.Store
	log   *zap.Logger
	mu    sync.Mutex
	byRun map[store.RunRef]map[*waiter]bool
}

// waiter waits for the end of one run.
type waiter struct {
	hub  *hub
	ref  store.RunRef
	done chan *stepwell.Run // one value: the finished run when this process finished it, else nil
}

func newHub(s *store.Store, log *zap.Logger) *hub {
	return &hub{store: s, log: log, byRun: map[store.RunRef]map[*waiter]bool{}}
}

// wait begins to wait for a run; stop must be called.
func (h *hub) wait(org, run string) *waiter {
	w := &waiter{hub: h, ref: store.RunRef{Org: org, Run: run}, done: make(chan *stepwell.Run, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byRun[w.ref] == nil {
		h.byRun[w.ref] = map[*waiter]bool{}
	}
	h.byRun[w.ref][w] = true
	return w
}

func (w *waiter) stop() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	delete(w.hub.byRun[w.ref], w)
	if len(w.hub.byRun[w.ref]) == 0 {
		delete(w.hub.byRun, w.ref)
	}
}

// ended tells all waiters of a run; r is nil when the run ended in another process.
func (h *hub) ended(ref store.RunRef, r *stepwell.Run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.byRun[ref] {
		w.done <- r
	}
	delete(h.byRun, ref)
}

func (h *hub) waiting() []store.RunRef {
	h.mu.Lock()
	defer h.mu.Unlock()
	refs := make([]store.RunRef, 0, len(h.byRun))
	for ref := range h.byRun {
		refs = append(refs, ref)
	}
	return refs
}

// poll asks the store for runs that ended unnoticed, until ctx ends.
func (h *hub) poll(ctx context.Context) {
	every(ctx, pollEvery, func() {
		refs := h.waiting()
		if len(refs) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		ended, err := h.store.FinalAmong(ctx, refs)
		if err != nil {
			h.log.Warn("could not ask for the runs that are waited for", zap.Error(err))
			return
		}
		for _, ref := range ended {
			h.ended(ref, nil)
		}
	})
}

// every calls f at an interval until ctx ends.
func every(ctx context.Context, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
