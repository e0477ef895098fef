package activities

import (
	"sync"
	"time"

	"stepwell/internal/metrics"
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

	metrics *metrics.Metrics
	counted bool // as lost
}

func newLease(until time.Time, m *metrics.Metrics) *lease {
	return &lease{until: until, last: time.Now(), metrics: m}
}

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
	lost := l.expired()
	if lost && !l.counted {
		l.counted = true
		l.metrics.LeaseLost(l.kind())
	}
	return lost
}

func (l *lease) kind() metrics.Lease {
	if l.until.IsZero() {
		return metrics.RegularLease
	}
	return metrics.LocalLease
}

func (l *lease) expired() bool {
	if !l.until.IsZero() {
		return l.gone || time.Now().After(l.until)
	}
	l.gone = l.gone || time.Since(l.last) > staleAfter
	return l.gone
}
