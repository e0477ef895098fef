package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// clients is the concurrency of throughput measurements.
const clients = 32

// thousand is how many pages at both ends of a long pull are compared.
const thousand = 1000

// plan is how much is measured.
type plan struct {
	Rounds     int           `json:"rounds"`
	Latency    time.Duration `json:"latency"`    // for which one caller calls, each thing in each round
	Throughput time.Duration `json:"throughput"` // for which 32 do
	Pages      int           `json:"pages"`      // of a pull
	LongPages  int           `json:"longPages"`  // of a long pull
	LongPulls  int           `json:"longPulls"`  // rounds that have one; the first is before all rounds
}

func planFor(o options) plan {
	p := plan{Rounds: 5, Latency: 1500 * time.Millisecond, Throughput: 3 * time.Second, Pages: 1000, LongPages: 10_000, LongPulls: 5}
	if o.short {
		p = plan{Rounds: 3, Latency: 500 * time.Millisecond, Throughput: time.Second, Pages: 300, LongPages: 2500, LongPulls: 1}
	}
	if o.rounds > 0 {
		p.Rounds, p.LongPulls = o.rounds, min(p.LongPulls, o.rounds)
	}
	return p
}

// results are the figures of all rounds by name, one value a round.
type results struct {
	values map[string][]float64
	cpu    map[string][]usage // of one operation, by name
	memory []memoryGrowth
}

// Names of figures.
const (
	rawRegularMS    = "raw workflow of one regular activity"
	rawLocalMS      = "raw workflow of one local activity"
	rawLocalEarlyMS = "the same, told before its end is durable"
	oneStepMS       = "one GET step, synchronous, over HTTP"
	fiveStepsMS     = "five GET steps, synchronous, over HTTP"
	rawRegularRate  = "raw regular, 32 callers"
	rawLocalRate    = "raw local, 32 callers"
	oneStepRate     = "one GET step, 32 callers"
	pageMS          = "page of a pull"
	wholePageMS     = "page of a pull, with the whole answer read"
	longPageMS      = "page of a long pull"
	slowdown        = "last thousand pages of a long pull"
	getRunMS        = "GET of an ended run"
	listRunsMS      = "GET of a list of 50 runs"
	saveToolMS      = "POST of a tool"
	getRunRate      = "GET of an ended run, 32 callers"
	listRunsRate    = "GET of a list of 50 runs, 32 callers"
)

func (r *results) add(name string, v float64) { r.values[name] = append(r.values[name], v) }

// measure makes all measurements. A line for each goes to progress.
func measure(ctx context.Context, s *stack, p plan, progress io.Writer) (*results, error) {
	o, err := newOurs(ctx, s)
	if err != nil {
		return nil, err
	}
	defer o.close()
	m := &measuring{s: s, o: o, p: p, progress: progress, r: &results{values: map[string][]float64{}, cpu: map[string][]usage{}}}
	if err := m.warmUp(ctx); err != nil {
		return nil, err
	}
	// The long pull whose memory counts comes first, in a process that has done little:
	// later its growth would hide in what earlier load has left.
	if err := m.longPull(ctx); err != nil {
		return nil, err
	}
	if m.raw, err = startRaw(s.temporal, s.log); err != nil {
		return nil, err
	}
	defer m.raw.close()
	for round := range p.Rounds {
		if err := m.round(ctx, round); err != nil {
			return nil, fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return m.r, nil
}

type measuring struct {
	s        *stack
	o        *ours
	raw      *raw
	p        plan
	r        *results
	progress io.Writer
}

func (m *measuring) warmUp(ctx context.Context) error {
	for range 30 {
		if err := m.o.run(ctx, oneStep, "{}"); err != nil {
			return err
		}
	}
	if err := m.o.run(ctx, fiveSteps, "{}"); err != nil {
		return err
	}
	if _, err := m.o.pull(ctx, 20); err != nil {
		return err
	}
	return m.o.findEnded(ctx)
}

// round measures everything once; every other one in reverse order.
func (m *measuring) round(ctx context.Context, n int) error {
	rawOf := func(name string) operation {
		return func(ctx context.Context) error { _, _, err := m.raw.run(ctx, name); return err }
	}
	oursOf := func(tool string) operation {
		return func(ctx context.Context) error { return m.o.run(ctx, tool, "{}") }
	}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return m.latency(ctx, rawRegularMS, rawOf(rawRegular)) },
		m.localLatency,
		func(ctx context.Context) error { return m.latency(ctx, oneStepMS, oursOf(oneStep)) },
		func(ctx context.Context) error { return m.latency(ctx, fiveStepsMS, oursOf(fiveSteps)) },
		func(ctx context.Context) error { return m.throughput(ctx, rawRegularRate, rawOf(rawRegular)) },
		func(ctx context.Context) error { return m.throughput(ctx, rawLocalRate, rawOf(rawLocal)) },
		func(ctx context.Context) error { return m.throughput(ctx, oneStepRate, oursOf(oneStep)) },
		m.pull,
		m.api,
	}
	if n > 0 && n < m.p.LongPulls {
		steps = append(steps, m.longPull)
	}
	if n%2 == 1 {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := settle(ctx); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settle lets what the measurement before has left behind pass.
func settle(ctx context.Context) error {
	runtime.GC()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(300 * time.Millisecond):
		return nil
	}
}

func (m *measuring) add(name string, v float64, unit string) {
	m.r.add(name, v)
	fmt.Fprintf(m.progress, "%-46s %9.2f %s\n", name, v, unit)
}

func (m *measuring) latency(ctx context.Context, name string, op operation) error {
	v, err := latency(ctx, m.p.Latency, op)
	if err == nil {
		m.add(name, v, "ms")
	}
	return err
}

// localLatency measures the raw local workflow, at both of its ends.
func (m *measuring) localLatency(ctx context.Context) error {
	var earlies []float64
	v, err := latency(ctx, m.p.Latency, func(ctx context.Context) error {
		early, _, err := m.raw.run(ctx, rawLocal)
		earlies = append(earlies, milliseconds(early))
		return err
	})
	if err != nil {
		return err
	}
	m.add(rawLocalMS, v, "ms")
	m.add(rawLocalEarlyMS, median(earlies), "ms")
	return nil
}

func (m *measuring) throughput(ctx context.Context, name string, op operation) error {
	v, used, err := m.s.throughput(ctx, m.p.Throughput, op)
	if err != nil {
		return err
	}
	m.add(name, v, "/s")
	m.r.cpu[name] = append(m.r.cpu[name], used)
	fmt.Fprintf(m.progress, "%-46s %9.2f ms (this process %.2f, temporald %.2f, postgres %.2f)\n", "  processor time of each", used.total(), used.Node, used.Temporald, used.Postgres)
	return nil
}

func (m *measuring) pull(ctx context.Context) error {
	p, err := m.o.pull(ctx, m.p.Pages)
	if err != nil {
		return err
	}
	m.add(pageMS, p.perPage(), "ms")
	began := time.Now()
	if err := m.o.run(ctx, pulling, pullBody(m.p.Pages, false)); err != nil {
		return err
	}
	m.add(wholePageMS, milliseconds(time.Since(began))/float64(m.p.Pages), "ms")
	return nil
}

// api measures calls that run nothing.
func (m *measuring) api(ctx context.Context) error {
	get := func(path string) operation {
		return func(ctx context.Context) error { return m.o.get(ctx, path) }
	}
	run, list := "/runs/"+m.o.ended, "/runs?limit=50"
	for _, x := range []struct {
		name string
		op   operation
	}{{getRunMS, get(run)}, {listRunsMS, get(list)}, {saveToolMS, m.o.saveTool}} {
		if err := m.latency(ctx, x.name, x.op); err != nil {
			return err
		}
	}
	if err := m.throughput(ctx, getRunRate, get(run)); err != nil {
		return err
	}
	return m.throughput(ctx, listRunsRate, get(list))
}

func (m *measuring) longPull(ctx context.Context) error {
	watch := watchMemory()
	p, err := m.o.pull(ctx, m.p.LongPages)
	samples := watch.stop()
	if err != nil {
		return err
	}
	m.add(longPageMS, p.perPage(), "ms")
	m.add(slowdown, p.slowdown(thousand), "× the first")
	g := growth(samples, p.stored[99], p.stored[len(p.stored)-1])
	g.Evaluators = evaluatorMemory()
	m.r.memory = append(m.r.memory, g)
	fmt.Fprintf(m.progress, "%-46s %9.1f MiB (%.1f at page 100, peak %.1f)\n", "memory grew by", g.End-g.Begin, g.Begin, g.Peak)
	return nil
}

// operation is one thing done once, to its end.
type operation func(ctx context.Context) error

// latency calls op again and again, alone, and gives the median in milliseconds.
func latency(ctx context.Context, d time.Duration, op operation) (float64, error) {
	for range 5 {
		if err := op(ctx); err != nil {
			return 0, err
		}
	}
	var took []float64
	for end := time.Now().Add(d); time.Now().Before(end); {
		began := time.Now()
		if err := op(ctx); err != nil {
			return 0, err
		}
		took = append(took, milliseconds(time.Since(began)))
	}
	return median(took), nil
}

// patience is how long a measurement of a rate waits for the first end.
const patience = time.Minute

// throughput has 32 callers call op again and again, and gives how often it ended in a
// second, of a time d after all have begun and before any stops, and the processor time
// that each took.
func (s *stack) throughput(ctx context.Context, d time.Duration, op operation) (float64, usage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for !stopped.Load() {
				if err := op(ctx); err != nil {
					cancel(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	wait(d / 6)
	before, began, used := done.Load(), time.Now(), s.processorTime()
	wait(d)
	for late := time.Now(); done.Load() == before && time.Since(late) < patience && ctx.Err() == nil; {
		wait(d / 10) // a machine that does much else: a rate of 0 would say nothing
	}
	count, took := done.Load()-before, time.Since(began)
	each := s.processorTime().each(used, count)
	stopped.Store(true)
	wg.Wait()
	return float64(count) / took.Seconds(), each, context.Cause(ctx)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median gives the middle of values, 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
