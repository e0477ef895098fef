package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"time"
)

// afterwards is how long after an answer a profile still looks: what a run leaves to be
// done (its workflow's end, notices, Temporal's queues) counts for throughput.
const afterwards = 60 * time.Millisecond

// profile shows where the time of one-step runs goes, one caller at a time, and beside
// it the same of raw local workflows.
func profile(ctx context.Context, o options, out io.Writer) error {
	watch := &observers{}
	s, err := startStack(ctx, o, watch)
	if err != nil {
		return err
	}
	defer s.close()
	ours, err := newOurs(ctx, s)
	if err != nil {
		return err
	}
	defer ours.close()
	temporal, err := watch.grpc("raw", s.temporal)
	if err != nil {
		return err
	}
	raw, err := startRaw(temporal, s.log)
	if err != nil {
		return err
	}
	defer raw.close()
	if err := watched(ctx, watch, out, "One step, synchronous, over HTTP", o.profileRun, func(ctx context.Context) (observed, error) {
		return ours.observe(ctx, oneStep)
	}); err != nil {
		return err
	}
	if err := watched(ctx, watch, out, "Raw workflow of one empty local activity", o.profileRun, func(ctx context.Context) (observed, error) {
		seen := observed{began: time.Now()}
		_, _, err := raw.run(ctx, rawLocal)
		seen.ended = time.Now()
		return seen, err
	}); err != nil {
		return err
	}
	if err := watchedPull(ctx, watch, out, ours); err != nil {
		return err
	}
	if o.cpuProfile == "" {
		return nil
	}
	return cpuProfile(ctx, o.cpuProfile, out, s, ours)
}

// profiledPages is the length of the pull that a profile looks at.
const profiledPages = 500

// watchedPull makes a pull and writes what a mean page of it is made of.
func watchedPull(ctx context.Context, watch *observers, out io.Writer, o *ours) error {
	if err := pause(ctx); err != nil {
		return err
	}
	watch.take()
	p, err := o.pull(ctx, profiledPages)
	if err != nil {
		return err
	}
	type sum struct {
		kind, label string
		count       int
		took        time.Duration
	}
	byLabel := map[string]*sum{}
	var under []event
	for _, e := range watch.take() {
		if e.from == "temporald" {
			continue
		}
		if byLabel[e.kind+e.label] == nil {
			byLabel[e.kind+e.label] = &sum{kind: e.kind, label: e.label}
		}
		x := byLabel[e.kind+e.label]
		x.count++
		x.took += e.end.Sub(e.start)
		under = append(under, e)
	}
	slices.SortFunc(under, func(a, b event) int { return a.start.Compare(b.start) })
	sums := slices.SortedFunc(maps.Values(byLabel), func(a, b *sum) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(out, "\nA page of a pull of %d: %.2f ms, through the observers\n\n%8s %8s %8s\n", profiledPages, p.perPage(), "ms/page", "each ms", "times")
	for _, x := range sums[:min(8, len(sums))] {
		fmt.Fprintf(out, "%8.3f %8.2f %8d  %s %s\n", milliseconds(x.took)/profiledPages, milliseconds(x.took)/float64(x.count), x.count, x.kind, x.label)
	}
	rest := p.perPage() - milliseconds(covered(under, time.Now()))/profiledPages
	fmt.Fprintf(out, "%8.3f                    none of them under way: code, evaluators, scheduling\n", rest)
	return nil
}

// cpuProfile writes a profile of this process while 32 callers run the one-step tool.
func cpuProfile(ctx context.Context, path string, out io.Writer, s *stack, o *ours) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	rate, _, err := s.throughput(ctx, 5*time.Second, func(ctx context.Context) error { return o.run(ctx, oneStep, "{}") })
	pprof.StopCPUProfile()
	fmt.Fprintf(out, "\n32 callers, through the observers: %.0f runs a second; profile in %s\n", rate, path)
	return errors.Join(err, f.Close())
}

// exchange is what the same event of all runs came to.
type exchange struct {
	event
	nth    int           // how often the same came before in its run
	runs   int           // in which it came
	offset time.Duration // from the start of its run, of all runs
	took   time.Duration // of all runs
	late   int           // runs in which it began after the answer
}

// watched makes runs one after the other and writes the mean timeline of one.
func watched(ctx context.Context, watch *observers, out io.Writer, title string, runs int, once func(context.Context) (observed, error)) error {
	for range 50 {
		if _, err := once(ctx); err != nil {
			return err
		}
	}
	t := timeline{exchanges: map[exchangeKey]*exchange{}}
	for range runs {
		if err := pause(ctx); err != nil {
			return err
		}
		watch.take()
		seen, err := once(ctx)
		if err != nil {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
		t.add(seen, watch.take())
	}
	t.write(out, title)
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(afterwards):
		return nil
	}
}

type exchangeKey struct {
	from, kind, label string
	commit            bool
	nth               int
}

// timeline adds up runs.
type timeline struct {
	exchanges map[exchangeKey]*exchange
	totals    []float64 // of each run, ms
	rest      []float64 // of it without any exchange of stepwell's
}

func (t *timeline) add(seen observed, events []event) {
	slices.SortFunc(events, func(a, b event) int { return a.start.Compare(b.start) })
	count := map[exchangeKey]int{}
	var waited []event
	for _, e := range events {
		key := exchangeKey{from: e.from, kind: e.kind, label: e.label, commit: e.commit}
		nth := count[key]
		count[key]++
		key.nth = nth
		x := t.exchanges[key]
		if x == nil {
			x = &exchange{event: e, nth: nth}
			t.exchanges[key] = x
		}
		x.runs++
		x.offset += e.start.Sub(seen.began)
		x.took += e.end.Sub(e.start)
		if e.start.After(seen.ended) {
			x.late++
		} else if e.from != "temporald" {
			waited = append(waited, e)
		}
	}
	total := seen.ended.Sub(seen.began)
	t.totals = append(t.totals, milliseconds(total))
	t.rest = append(t.rest, milliseconds(total-covered(waited, seen.ended)))
}

// covered is the time that events, in the order of their start, cover until a moment.
func covered(events []event, until time.Time) time.Duration {
	var sum time.Duration
	var reached time.Time
	for _, e := range events {
		start, end := e.start, e.end
		if start.Before(reached) {
			start = reached
		}
		if end.After(until) {
			end = until
		}
		if end.After(start) {
			sum += end.Sub(start)
			reached = end
		}
	}
	return sum
}

// write writes what at least half of the runs have in common.
func (t *timeline) write(out io.Writer, title string) {
	n := len(t.totals)
	var usual []*exchange
	var before, after tally
	for _, x := range t.exchanges {
		if x.late*2 > x.runs {
			after.add(x, n)
		} else {
			before.add(x, n)
		}
		if x.runs*2 >= n {
			usual = append(usual, x)
		}
	}
	slices.SortFunc(usual, func(a, b *exchange) int {
		return cmp.Compare(a.offset/time.Duration(a.runs), b.offset/time.Duration(b.runs))
	})
	fmt.Fprintf(out, "\n%s: %.2f ms at the median of %d runs, through the observers\n\n", title, median(t.totals), n)
	fmt.Fprintf(out, "%8s %8s  %-6s %s\n", "at ms", "took ms", "runs", "what (* commit; what temporald asks of Postgres is indented)")
	answered := false
	for _, x := range usual {
		if !answered && x.late*2 > x.runs {
			fmt.Fprintln(out, "------- the answer -------")
			answered = true
		}
		x.write(out, n)
	}
	fmt.Fprintf(out, "\nuntil the answer: %s\nafter it:         %s\n", before, after)
	fmt.Fprintf(out, "none of stepwell's exchanges under way (code, scheduling, HTTP to the caller): %.2f ms\n", median(t.rest))
}

func (x *exchange) write(out io.Writer, n int) {
	indent, mark := "", " "
	if x.from == "temporald" {
		indent = "        "
	}
	if x.commit {
		mark = "*"
	}
	runs := time.Duration(x.runs)
	fmt.Fprintf(out, "%8.2f %8.2f  %4d%%  %s%s %s %s\n", milliseconds(x.offset/runs), milliseconds(x.took/runs), x.runs*100/n, indent, mark, x.kind, x.label)
}

// tally counts exchanges of a mean run.
type tally struct{ ours, oursCommits, calls, upstream, temporalds, temporaldsCommits float64 }

func (t *tally) add(x *exchange, n int) {
	share := float64(x.runs) / float64(n)
	switch {
	case x.kind == "temporal":
		t.calls += share
	case x.kind == "upstream":
		t.upstream += share
	case x.from == "temporald":
		t.temporalds += share
		if x.commit {
			t.temporaldsCommits += share
		}
	default:
		t.ours += share
		if x.commit {
			t.oursCommits += share
		}
	}
}

func (t tally) String() string {
	return fmt.Sprintf("stepwell: %.1f round trips to Postgres (%.1f commits), %.1f calls to Temporal, %.1f upstream; temporald: %.1f round trips (%.1f commits)",
		t.ours, t.oursCommits, t.calls, t.upstream, t.temporalds, t.temporaldsCommits)
}
