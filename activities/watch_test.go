package activities

import (
	"testing"
	"time"

	"stepwell"
)

// TestUntoldEndCutsOff: a run that ended without a notice is noticed by the process that
// has something in flight for it, also after a look that failed.
func TestUntoldEndCutsOff(t *testing.T) {
	t.Parallel()
	m := newMemory(oneStep("GET"))
	w := startWorker(t, "a", m, &upstream{})
	s, err := w.sessions.open(t.Context(), "o", "r")
	if err != nil {
		t.Fatal(err)
	}
	defer s.release()
	running := func(ago time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.statusAt = time.Now().Add(-ago)
	}
	running(2 * watchEvery)
	if refs := w.sessions.long(); len(refs) != 1 {
		t.Fatalf("work that takes long is not looked after: %v", refs)
	}
	w.sessions.look(t.Context())
	if refs := w.sessions.long(); s.isEnded() || len(refs) != 0 {
		t.Errorf("a running run was cut off (%v), or is asked for again at once: %v", s.isEnded(), refs)
	}
	m.mu.Lock()
	m.status, m.fails["FinalAmong"] = stepwell.RunAborted, away
	m.mu.Unlock()
	running(2 * watchEvery)
	select { // the look that fails, and one after it: its own ticker makes them
	case <-s.ctx.Done():
	case <-time.After(20 * time.Second):
		t.Error("what is in flight for an ended run goes on")
	}
}
