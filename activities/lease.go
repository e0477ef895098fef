package activities

import (
	"sync"
	"time"
)

// lease says for how long an activity may still send. A local activity's ends at a
// fixed time; a regular one's is renewed with every heartbeat and is lost for good when
// the process was stopped for too long between two of them: another worker may have the
// page by then.
type lease struct {
	mu    sync.Mutex
	until time.Time // fixed; zero for a regular activity
	last  time.Time // renewal of a regular activity
	gone  bool
}

func newLease(until time.Time) *lease { return &lease{until: until, last: time.Now()} }

// renew extends a regular activity's lease if it is not lost yet.
func (l *lease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.expired() {
		l.last = time.Now()
	}
}

// end gives the lease up.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
}

// lost reports whether nothing may be sent any more.
func (l *lease) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expired()
}

func (l *lease) expired() bool {
	if !l.until.IsZero() {
		return l.gone || time.Now().After(l.until)
	}
	l.gone = l.gone || time.Since(l.last) > staleAfter
	return l.gone
}
