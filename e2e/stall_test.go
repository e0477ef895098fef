package e2e

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// takeOver is how much longer a run with a stalled worker may take when there is a
// second one.
const takeOver = 12 * time.Second

func TestRunSurvivesStalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		workers int // beside dev's own
		pages   int
		delay   time.Duration
		stalls  []time.Duration
	}{
		{"one worker, 20 ms", 0, 300, 20 * time.Millisecond, []time.Duration{7 * time.Second, 12 * time.Second}},
		{"one worker, 6 s", 0, 3, 6 * time.Second, []time.Duration{7 * time.Second}},
		{"one worker, 20 s", 0, 1, 20 * time.Second, []time.Duration{12 * time.Second}},
		{"two workers, 20 ms", 1, 300, 20 * time.Millisecond, []time.Duration{7 * time.Second, 12 * time.Second}},
		{"two workers, 6 s", 1, 3, 6 * time.Second, []time.Duration{12 * time.Second}},
		{"two workers, 20 s", 1, 1, 20 * time.Second, []time.Duration{12 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			startDev(t, c.workers).surviveStalls(c.pages, c.delay, random(t), c.stalls...)
		})
	}
}

// surviveStalls starts a run and stops the process that works on it, in random moments
// of random pages, for the time of each stall.
func (in *installation) surviveStalls(pages int, delay time.Duration, r *rand.Rand, stalls ...time.Duration) {
	in.t.Helper()
	undisturbed := time.Duration(pages) * (delay + 20*time.Millisecond)
	limit := undisturbed
	for _, stall := range stalls {
		if len(in.workers) > 0 {
			limit += takeOver
		} else {
			limit += stall + takeOver
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	p := in.start(pages, delay)
	for i, stall := range stalls {
		// Each stall in its part of the run.
		page := 1 + (i*pages+r.IntN(pages))/len(stalls)
		last, ok := in.upstream.await(ctx, p.id, page)
		if !ok {
			in.ended(p, 0)
			in.t.Fatalf("page %d was not asked for within %s", page, limit)
		}
		time.Sleep(time.Duration(r.Int64N(int64(delay)))) // a random moment of the page
		in.t.Logf("%.1fs: page %d: stop process %d for %s", time.Since(began).Seconds(), page, last.pid, stall)
		in.stall(last.pid, stall)
		in.t.Logf("%.1fs: it goes on", time.Since(began).Seconds())
	}
	in.check(p, time.Until(began.Add(limit)), len(stalls))
	in.t.Logf("%.1fs: ended", time.Since(began).Seconds())
}

// stall stops a process with SIGSTOP and lets it go on.
func (in *installation) stall(pid int, d time.Duration) {
	in.t.Helper()
	for _, p := range append(in.workers, in.dev) {
		if p != nil && p.pid() == pid {
			p.signal(in.t, syscall.SIGSTOP)
			time.Sleep(d) // the stall itself
			p.signal(in.t, syscall.SIGCONT)
			return
		}
	}
	in.t.Fatalf("process %d is none of the installation", pid)
}
