package e2e

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"
)

// part is what a test kills.
type part string

const (
	partDev       part = "dev"
	partServer    part = "server"
	partWorker    part = "worker"
	partTemporald part = "temporald"
	partPostgres  part = "postgres"
	partSession   part = "a session of postgres"
)

// killLimit is how long a run may take over its undisturbed time for one kill: a
// restart, Postgres's recovery, and 11 s until Temporal gives the work to another.
const killLimit = 40 * time.Second

func TestRunSurvivesKills(t *testing.T) {
	t.Parallel()
	t.Run("dev", func(t *testing.T) {
		t.Parallel()
		in := startDev(t, 0)
		in.survive(300, 20*time.Millisecond, random(t), partDev, partTemporald, partPostgres)
	})
	t.Run("worker", func(t *testing.T) {
		t.Parallel()
		in := startSplit(t, 1)
		in.survive(300, 20*time.Millisecond, random(t), partWorker, partWorker, partTemporald, partPostgres, partServer)
	})
	t.Run("two workers", func(t *testing.T) {
		t.Parallel()
		in := startDev(t, 1)
		in.survive(300, 20*time.Millisecond, random(t), partDev, partWorker, partTemporald, partPostgres)
	})
}

// survive starts a run and kills each of the victims, in random order, while it is at
// random pages. A kill of a process that sends may repeat the page in flight, and
// nothing else is repeated.
func (in *installation) survive(pages int, delay time.Duration, r *rand.Rand, victims ...part) {
	in.t.Helper()
	moments := make([]int, len(victims))
	for i := range moments {
		moments[i] = 1 + r.IntN(pages)
	}
	slices.Sort(moments)
	r.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	extra := 0
	for _, victim := range victims {
		extra += in.repeats(victim)
	}
	undisturbed := time.Duration(pages) * (delay + 20*time.Millisecond)
	limit := undisturbed + time.Duration(len(victims))*killLimit
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	p := in.start(pages, delay)
	for i, victim := range victims {
		if _, ok := in.upstream.await(ctx, p.id, moments[i]); !ok {
			in.ended(p, 0)
			in.t.Fatalf("page %d was not asked for within %s", moments[i], limit)
		}
		time.Sleep(time.Duration(r.Int64N(int64(delay + 10*time.Millisecond)))) // a random moment of the page
		in.t.Logf("%.1fs: page %d: kill %s", time.Since(began).Seconds(), moments[i], victim)
		in.kill(victim, r)
	}
	in.check(p, time.Until(began.Add(limit)), extra)
}

// kill kills a part with SIGKILL and sees to it that it comes back: those that the
// test started it starts again, the others are their supervisor's.
func (in *installation) kill(victim part, r *rand.Rand) {
	in.t.Helper()
	switch victim {
	case partDev:
		in.dev.kill()
		in.dev.start(in.t)
	case partServer:
		in.server.kill()
		in.server.start(in.t)
	case partWorker:
		w := in.workers[r.IntN(len(in.workers))]
		w.kill()
		w.start(in.t)
	case partTemporald, partPostgres:
		in.killSupervised(victim)
	case partSession: // which makes Postgres end all sessions and recover
		sessions := childrenOf(in.supervised(partPostgres))
		if len(sessions) > 0 {
			_ = syscall.Kill(sessions[r.IntN(len(sessions))], syscall.SIGKILL) // it may have just ended
		}
	}
}

// killSupervised kills temporald or Postgres and waits until it has been started again.
func (in *installation) killSupervised(victim part) {
	in.t.Helper()
	pid := 0
	if !eventually(readyTimeout, func() bool { pid = in.supervised(victim); return pid != 0 }) {
		in.t.Fatalf("%s does not run", victim)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		in.t.Fatalf("kill %s: %v", victim, err)
	}
	if !eventually(readyTimeout, func() bool { now := in.supervised(victim); return now != 0 && now != pid }) {
		in.t.Fatalf("%s was not started again", victim)
	}
}

// supervised is the process id of temporald or Postgres, 0 while it is down.
func (in *installation) supervised(victim part) int {
	if in.dev != nil {
		return childOf(in.dev.pid(), string(victim))
	}
	if victim == partPostgres {
		return in.stack.PostgresPID()
	}
	return in.stack.TemporaldPID()
}
