package outbound

import (
	"context"
	"slices"
	"sync"
)

// memory bounds the bytes of answers that are held at once, over all requests.
//
// Answers grow while they are read, so several could each hold a part and wait
// for more for ever. Therefore one answer at a time may hold the reserve: it
// is as large as the largest answer, its holder never waits again, ends by its
// own timeout at the latest, and passes the reserve on.
type memory struct {
	mu      sync.Mutex
	free    int64
	reserve bool // nobody holds it
	waiting []*waiter
}

type waiter struct {
	lease *lease
	n     int64
	ready chan struct{}
}

// newMemory splits total into a reserve for one largest answer and the rest.
func newMemory(total, largest int64) *memory {
	return &memory{free: total - largest, reserve: true}
}

// lease is the memory of one answer. Its fields are guarded by memory.mu.
type lease struct {
	memory  *memory
	held    int64
	reserve bool
	closed  bool
}

func (m *memory) lease() *lease { return &lease{memory: m} }

// grow adds n bytes to the lease, waiting for them until ctx ends. Those who
// wait are served in order.
func (l *lease) grow(ctx context.Context, n int64) error {
	m := l.memory
	m.mu.Lock()
	if len(m.waiting) == 0 || l.reserve {
		if m.grant(l, n) {
			m.mu.Unlock()
			return nil
		}
	}
	w := &waiter{lease: l, n: n, ready: make(chan struct{})}
	m.waiting = append(m.waiting, w)
	m.mu.Unlock()

	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.Index(m.waiting, w); i >= 0 {
			m.waiting = slices.Delete(m.waiting, i, i+1)
			m.serve() // whoever stood behind may fit
		}
		return ctx.Err()
	}
}

// grant gives n bytes if it can. The caller holds mu.
func (m *memory) grant(l *lease, n int64) bool {
	switch {
	case l.reserve:
	case m.free >= n:
		m.free -= n
		l.held += n
	case m.reserve:
		m.reserve, l.reserve = false, true
	default:
		return false
	}
	return true
}

// serve grants what it can, in order. The caller holds mu.
func (m *memory) serve() {
	for len(m.waiting) > 0 && m.grant(m.waiting[0].lease, m.waiting[0].n) {
		close(m.waiting[0].ready)
		m.waiting = slices.Delete(m.waiting, 0, 1)
	}
}

// release gives everything back. More than once does nothing.
func (l *lease) release() {
	m := l.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	m.free += l.held
	m.reserve = m.reserve || l.reserve
	m.serve()
}
