package stacktest

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"
)

var strict = flag.Bool("strict", false, "hold the product to its promised times; without it a busy machine gets five times as much")

// Promised is how long something may take that is promised to take at most limit. A
// short test run shares its machine with others, so it allows five times as much and
// still sees what hangs; the long forms run alone, with -strict.
func Promised(limit time.Duration) time.Duration {
	if *strict {
		return limit
	}
	return 5 * limit
}

// Stalls notices when this process does not get to run: what a test saw late by no more
// than that may have happened in time.
type Stalls struct {
	mu    sync.Mutex
	worst time.Duration
}

// MeterStalls meters until the test ends.
func MeterStalls(t testing.TB) *Stalls {
	const every = 2 * time.Millisecond
	s := &Stalls{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			s.mu.Lock()
			s.worst = max(s.worst, now.Sub(last)-every)
			s.mu.Unlock()
			last = now
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return s
}

// Worst is the longest stall so far.
func (s *Stalls) Worst() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worst
}
