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

// busyMachine is what a machine that runs other tests too may add: a stall of takeOver shortly
// before an answer costs just that, and what follows it.
const busyMachine = 1500 * time.Millisecond

// partSender is the process that sent a run's last request.
const partSender part = "the sender"

func TestRunSurvivesStalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		workers int // beside dev's own
		pages   int
		delay   time.Duration
		stalls  []stall
	}{
		{"one worker, 20 ms", 0, 300, 20 * time.Millisecond, []stall{{partSender, 7 * time.Second}, {partTemporald, 7 * time.Second}, {partPostgres, 7 * time.Second}}},
		{"one worker, 6 s", 0, 3, 6 * time.Second, []stall{{partSender, 7 * time.Second}, {partTemporald, 7 * time.Second}}},
		{"one worker, 20 s", 0, 1, 20 * time.Second, []stall{{partSender, 12 * time.Second}}},
		{"two workers, 20 ms", 1, 300, 20 * time.Millisecond, []stall{{partSender, 30 * time.Second}}}, // much longer than the takeover
		{"two workers, 6 s", 1, 3, 6 * time.Second, []stall{{partSender, 30 * time.Second}}},
		{"two workers, 20 s", 1, 1, 20 * time.Second, []stall{{partSender, 12 * time.Second}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			startDev(t, c.workers).surviveStalls(c.pages, c.delay, random(t), c.stalls...)
		})
	}
}

// stall is a part that is stopped with SIGSTOP, and for how long.
type stall struct {
	victim part
	length time.Duration
}

// surviveStalls starts a run and stops the victims one after the other, at random
// moments of random pages.
func (in *installation) surviveStalls(pages int, delay time.Duration, r *rand.Rand, stalls ...stall) {
	in.t.Helper()
	limit, extra := time.Duration(pages)*(delay+20*time.Millisecond)+busyMachine, 0
	longest := limit
	for _, s := range stalls {
		longest += takeOver + s.length
		if s.victim != partSender || len(in.workers) == 0 {
			limit += takeOver + s.length // nobody else can go on
		} else { // who takes over may have to ask for the page again
			limit += min(max(takeOver, s.length), takeOver+delay)
		}
		extra += in.repeats(s.victim)
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	began := time.Now()
	p := in.start(pages, delay)
	for i, s := range stalls {
		// Each stall in its part of the run.
		page := 1 + (i*pages+r.IntN(pages))/len(stalls)
		last, ok := in.upstream.await(ctx, p.id, page)
		if !ok {
			in.ended(p, 0)
			in.t.Fatalf("page %d was not asked for within %s", page, longest)
		}
		time.Sleep(time.Duration(r.Int64N(int64(delay)))) // a random moment of the page
		in.t.Logf("%.1fs: page %d: stop %s for %s", time.Since(began).Seconds(), page, s.victim, s.length)
		in.stall(s, last.pid)
		in.t.Logf("%.1fs: it goes on", time.Since(began).Seconds())
	}
	run := in.check(p, time.Until(began.Add(longest)), extra)
	if run.Metadata.DurationMS == nil || time.Duration(*run.Metadata.DurationMS)*time.Millisecond > limit {
		in.t.Errorf("run %s took longer than %s", p.id, limit)
	}
}

// stall stops the processes of a part, of temporald and Postgres all, and lets them go on.
func (in *installation) stall(s stall, sender int) {
	in.t.Helper()
	pids := []int{sender}
	if s.victim != partSender {
		supervised := in.supervised(s.victim)
		pids = append(childrenOf(supervised), supervised)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // a session of Postgres may just have ended
	}
	time.Sleep(s.length) // the stall itself
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// TestWorkerLosesTemporal: a worker that Temporal takes for dead, though it works on,
// keeps the page that it has in flight: who takes its work over waits for it.
func TestWorkerLosesTemporal(t *testing.T) {
	t.Parallel()
	in := startSplit(t, 0)
	links := make([]*link, 2)
	for i := range links {
		links[i] = newLink(t, in.stack.TemporalAddress())
		in.addWorker(i, append(in.env[:len(in.env):len(in.env)], "STEPWELL_TEMPORAL_ADDRESS="+links[i].address))
	}
	p := in.start(2, 15*time.Second)
	last, ok := in.upstream.await(t.Context(), p.id, 1)
	if !ok {
		t.Fatal("the run was not begun")
	}
	for i, w := range in.workers {
		if w.pid() == last.pid {
			links[i].cut()
			defer links[i].mend()
		}
	}
	run := in.check(p, time.Minute, 0)
	requests := in.upstream.requests(p.id)
	if requests[0].pid == requests[len(requests)-1].pid {
		t.Error("nobody took over from the worker without Temporal")
	}
	if limit := (2*15*time.Second + takeOver).Milliseconds(); run.Metadata.DurationMS == nil || *run.Metadata.DurationMS > limit {
		t.Errorf("the run took longer than %d ms", limit)
	}
}
