package app_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stepwell"
	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/devstack/stacktest"
)

var (
	cancelTimes = flag.Int("cancel.times", 2, "runs that TestCancelStates cancels in each state; 50 in the long form")
	cancelRaces = flag.Int("cancel.races", 100, "runs that TestCancelAgainstCompletion cancels; 2,000 in the long form")
)

// cutWithin is so soon after the answer that a request in flight is cut off.
const cutWithin = 2 * time.Second

// checkedFor is how long a worker that is told nothing may send by a status check.
const checkedFor = 200 * time.Millisecond

// cancelPatience is how long the runs of a state may take together.
func cancelPatience() time.Duration { return time.Minute + time.Duration(*cancelTimes)*5*time.Second }

// cancelState is one state in which runs are cancelled.
type cancelState struct {
	name   string
	toolID string
	mode   string // in which the upstream answers the run's requests
	// ready gives nil when the run is in the state.
	ready func(run *v1.Run, requests []request) error
	// then is the longest time for which a run stays in the state before it is cancelled.
	then  time.Duration
	pages int // that are readable afterwards, at least
	slots int // runs at a time; 10 when 0
}

// stateTools are the tools of the states; %s is the upstream. A run of pull follows one of
// first, when that says so.
var stateTools = []string{
	pullTool,
	`{"id":"first","outputTransform":"(s) => ({run: s.run, mode: s.mode})"}`,
	`{"id":"loop","steps":[
		{"id":"list","config":{"type":"transform","transformCode":"() => Array.from({length: 20}, (_, i) => ({i}))"}},
		{"id":"each","dataSelector":"(s) => s.list.data","concurrency":5,"config":{"url":"%s/pages?run=<<run>>&mode=<<mode>>"}}]}`,
	`{"id":"effect","steps":[{"id":"post","config":{"method":"POST","url":"%s/pages?run=<<run>>&mode=<<mode>>","body":"{}"}}]}`,
	`{"id":"transform","steps":[{"id":"fetch","config":{"url":"%s/pages?run=<<run>>&mode=<<mode>>"}},
		{"id":"busy","config":{"type":"transform","transformCode":"() => { const end = Date.now() + 30000; while (Date.now() < end); }"}}]}`,
	`{"id":"finish","steps":[{"id":"fetch","config":{"url":"%s/pages?run=<<run>>&mode=<<mode>>"}}],
		"outputTransform":"() => { const end = Date.now() + 30000; while (Date.now() < end); }"}`,
}

func asked(n int) func(*v1.Run, []request) error {
	return func(_ *v1.Run, requests []request) error {
		if len(requests) < n {
			return fmt.Errorf("%d requests have begun, not %d", len(requests), n)
		}
		return nil
	}
}

func answered(n int) func(*v1.Run, []request) error {
	return func(_ *v1.Run, requests []request) error {
		if len(requests) < n || requests[n-1].ended.IsZero() {
			return fmt.Errorf("request %d of %d was not answered", n, len(requests))
		}
		return nil
	}
}

func stored(run *v1.Run, _ []request) error {
	if run.Progress == nil || run.Progress.Bytes == 0 {
		return errors.New("nothing is stored")
	}
	return nil
}

func waiting(run *v1.Run, _ []request) error {
	if run.Progress == nil || run.Progress.WaitingFor == nil {
		return errors.New("the run does not wait")
	}
	return nil
}

// readPages is pages for requests with a body: only when it was read does the server
// notice that the client has gone.
func readPages(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	pages(w, r)
}

// TestCancelStates cancels runs in every state that a run can be in.
func TestCancelStates(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up, stalls, to := startUpstream(t, readPages), stacktest.MeterStalls(t), startReceiver(t, nil)
	t.Cleanup(func() { to.once(t) })
	for _, tool := range stateTools {
		n.tool(t, strings.ReplaceAll(tool, "%s", up.URL))
	}
	n.tool(t, nextTool)
	for _, s := range []cancelState{
		{name: "accepted", toolID: "pull", mode: "fast", ready: asked(0), then: 5 * time.Millisecond},
		{name: "fast request", toolID: "pull", mode: "fast", ready: asked(1), then: 50 * time.Millisecond},
		{name: "slow request", toolID: "pull", mode: "stuck", ready: asked(1)},
		{name: "very slow request", toolID: "pull", mode: "stuck", ready: asked(1), then: 3 * time.Second}, // a regular activity by now
		{name: "retry wait", toolID: "pull", mode: "retry", ready: answered(1), then: 500 * time.Millisecond},
		{name: "Retry-After wait", toolID: "pull", mode: "after", ready: waiting},
		{name: "between pages", toolID: "pull", mode: "fast", ready: answered(3), pages: 1},
		{name: "loop", toolID: "loop", mode: "stuck", ready: asked(5)},
		{name: "loop of quick items", toolID: "loop", mode: "slow", ready: answered(5), then: 300 * time.Millisecond},
		{name: "effect", toolID: "effect", mode: "stuck", ready: asked(1), then: 100 * time.Millisecond},
		{name: "transform", toolID: "transform", mode: "fast", ready: stored, then: 300 * time.Millisecond, pages: 1, slots: 2},
		{name: "finishing", toolID: "finish", mode: "fast", ready: answered(1), then: 300 * time.Millisecond, slots: 2}, // the page is stored with the end
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := &cancelCase{cancelState: s, node: n, up: up, stalls: stalls, to: to}
			c.all(t, func(ctx context.Context, run string) error {
				answered, err := c.stopped(ctx, run)
				if err != nil {
					return err
				}
				return c.over(ctx, run, answered)
			})
		})
	}
	t.Run("just chained", func(t *testing.T) {
		t.Parallel()
		c := &cancelCase{cancelState: cancelState{name: "parent", toolID: "pull"}, node: n, up: up, stalls: stalls, to: to}
		if _, err := n.api.UpdateTool(t.Context(), c.toolID, v1.ToolUpdate{WebhookURL: v1.Some(to.URL)}); err != nil { // that of chained runs
			t.Fatal(err)
		}
		c.all(t, c.chained)
	})
}

// TestCancelApart cancels runs while they continue as new, while Temporal is down and
// while every worker is down.
func TestCancelApart(t *testing.T) {
	t.Parallel()
	s := startSplit(t, 5)
	up, stalls, to := startUpstream(t, readPages), stacktest.MeterStalls(t), startReceiver(t, nil)
	t.Cleanup(func() { to.once(t) })
	s.tool(t, fmt.Sprintf(pullTool, up.URL))
	s.tool(t, nextTool)
	again := cancelState{name: "continues", toolID: "pull", mode: "fast", ready: asked(12), then: 300 * time.Millisecond, pages: 5}
	stuck := cancelState{toolID: "pull", mode: "stuck", ready: asked(1)}

	c := &cancelCase{cancelState: again, node: s.node, up: up, stalls: stalls, to: to}
	c.all(t, func(ctx context.Context, run string) error {
		answered, err := c.stopped(ctx, run)
		if err != nil {
			return err
		}
		return c.over(ctx, run, answered)
	})

	// By a client of Temporal: the cancel must not be lost between two executions.
	c = &cancelCase{cancelState: again, node: s.node, up: up, stalls: stalls, to: to}
	c.name = "operator"
	c.all(t, func(ctx context.Context, run string) error {
		if err := c.begin(ctx, run); err != nil {
			return err
		}
		if err := s.Service.Workflows.CancelRun(ctx, c.org(ctx), run); err != nil {
			return err
		}
		ended, err := s.api.Wait(ctx, run)
		if err == nil && (ended.Status != "aborted" || ended.Error != "Run cancelled by the system") {
			err = fmt.Errorf("the run is %s: %s", ended.Status, ended.Error)
		}
		if err != nil {
			return err
		}
		return s.followed(ctx, to, run)
	})

	// Nobody told the worker: the server died after the update. It finds out by itself,
	// when a request is in flight and before the next one.
	var untold []string
	var mu sync.Mutex
	for name, state := range map[string]cancelState{"untold": stuck, "untold wait": {toolID: "pull", mode: "retry", ready: waiting}} {
		c = &cancelCase{cancelState: state, node: s.node, up: up, stalls: stalls, to: to}
		c.name = name
		c.all(t, func(ctx context.Context, run string) error {
			if err := c.begin(ctx, run); err != nil {
				return err
			}
			if _, err := s.Service.Store.AbortRun(ctx, c.org(ctx), run, "Run cancelled by user"); err != nil {
				return err
			}
			answered := time.Now().Add(checkedFor)
			mu.Lock()
			untold = append(untold, run)
			mu.Unlock()
			return c.quiet(ctx, run, answered)
		})
	}

	temporald := func(signal syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(s.stack.TemporaldPID(), signal); err != nil {
			t.Fatal(err)
		}
	}
	s.cancelAcross(t, "temporal", stuck, up, stalls, to, func() { temporald(syscall.SIGSTOP) }, func() { temporald(syscall.SIGCONT) })
	s.cancelAcross(t, "workers", stuck, up, stalls, to, s.worker.kill, func() { s.worker = startWorker(t, s.cfg) })

	ctx, cancel := context.WithTimeout(t.Context(), cancelPatience())
	defer cancel()
	for _, run := range untold { // the sweeper has started their callbacks, some time
		if err := s.followed(ctx, to, run); err != nil {
			t.Errorf("%s: %v", run, err)
		}
	}
}

// cancelAcross cancels runs that are at work, and some just accepted, while something is
// away.
func (s *split) cancelAcross(t *testing.T, name string, state cancelState, up *upstream, stalls *stacktest.Stalls, to *receiver, away, back func()) {
	t.Helper()
	at := &cancelCase{cancelState: state, node: s.node, up: up, stalls: stalls, to: to}
	at.name = name
	var runs []string
	for i := range *cancelTimes {
		runs = append(runs, fmt.Sprintf("%s-at-work-%d", name, i))
		if err := at.begin(t.Context(), runs[i]); err != nil {
			t.Fatal(err)
		}
	}
	away()
	var mu sync.Mutex
	answers := map[string]time.Time{}
	accepted := &cancelCase{cancelState: cancelState{name: name, toolID: "pull", mode: "fast", ready: asked(0)}, node: s.node, up: up, stalls: stalls, to: to}
	accepted.all(t, func(ctx context.Context, run string) error {
		answered, err := accepted.stopped(ctx, run)
		mu.Lock()
		defer mu.Unlock()
		answers[run] = answered
		return err
	})
	for _, run := range runs {
		answered, err := at.cancel(t.Context(), run)
		if err != nil {
			t.Errorf("%s: %v", run, err)
		}
		answers[run] = answered
	}
	back()
	for run, answered := range answers {
		if err := at.over(t.Context(), run, answered); err != nil {
			t.Errorf("%s: %v", run, err)
		}
	}
}

// cancelCase cancels runs in one state.
type cancelCase struct {
	cancelState
	*node
	up     *upstream
	stalls *stacktest.Stalls
	to     *receiver
}

// all does the same to some runs.
func (c *cancelCase) all(t *testing.T, one func(ctx context.Context, run string) error) {
	t.Helper()
	slots := make(chan struct{}, cmp.Or(c.slots, 10))
	ctx, cancel := context.WithTimeout(t.Context(), cancelPatience())
	defer cancel()
	var wg sync.WaitGroup
	for i := range *cancelTimes {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			run := fmt.Sprintf("%s-%d", strings.ReplaceAll(c.name, " ", "-"), i)
			if err := one(ctx, run); err != nil {
				t.Errorf("%s: %v", run, err)
			}
		})
	}
	wg.Wait()
}

func (c *cancelCase) org(ctx context.Context) string {
	org, _ := c.Service.Store.FirstOrganization(ctx)
	return org
}

// begin starts a run and waits until it is in the state.
func (c *cancelCase) begin(ctx context.Context, run string) error {
	_, err := c.api.Run(ctx, c.toolID, v1.RunRequest{RunID: run, Inputs: fmt.Appendf(nil, `{"run":%q,"mode":%q}`, run, c.mode),
		Options: &v1.RunOptions{Async: true, WebhookURL: c.follows(run)}})
	if err != nil {
		return err
	}
	err = poll(ctx, func() error {
		now, err := c.api.GetRun(ctx, run)
		if err != nil {
			return err
		}
		return c.ready(now, c.up.of(run))
	})
	if err == nil && c.then > 0 {
		err = pauseFor(ctx, rand.N(c.then))
	}
	return err
}

// follows is what is to follow a run: a chained run for every other one.
func (c *cancelCase) follows(run string) string {
	if n := run[len(run)-1] - '0'; n%2 == 1 {
		return "tool:next"
	}
	return c.to.URL
}

// chained cancels the run that follows another, half of them at the moment at which they
// are recorded. The other has ended then: it stays a success, with the one run after it.
func (c *cancelCase) chained(ctx context.Context, parent string) error {
	run := stepwell.ChainedRunID(parent)
	_, err := c.api.Run(ctx, "first", v1.RunRequest{RunID: parent, Inputs: fmt.Appendf(nil, `{"run":%q,"mode":"fast"}`, run),
		Options: &v1.RunOptions{Async: true, WebhookURL: "tool:" + c.toolID}})
	if err != nil {
		return err
	}
	if rand.N(2) == 0 {
		if _, err := c.api.Wait(ctx, parent); err != nil {
			return err
		}
		if err := pauseFor(ctx, rand.N(20*time.Millisecond)); err != nil {
			return err
		}
	}
	answered, err := c.cancel(ctx, run)
	for client.Status(err) == http.StatusNotFound && ctx.Err() == nil {
		answered, err = c.cancel(ctx, run)
	}
	if err != nil {
		return err
	}
	if _, err := c.api.Cancel(ctx, parent); client.Status(err) != http.StatusBadRequest {
		return fmt.Errorf("the parent was cancelled: %v", err)
	}
	if err := c.closed(ctx, parent); err != nil { // it has started the workflow of the next one by then
		return err
	}
	if err := c.over(ctx, run, answered); err != nil {
		return err
	}
	if ended, err := c.api.GetRun(ctx, parent); err != nil || ended.Status != "success" {
		return fmt.Errorf("the parent is %+v (%v)", ended, err)
	}
	return c.followed(ctx, c.to, parent)
}

// closed waits until the workflow of a run has closed.
func (c *cancelCase) closed(ctx context.Context, run string) error {
	return poll(ctx, func() error {
		state, err := c.Service.Workflows.RunState(ctx, c.org(ctx), run)
		if err == nil && state.Open {
			err = errors.New("the workflow is open")
		}
		return err
	})
}

// stopped starts a run, brings it into the state and cancels it.
func (c *cancelCase) stopped(ctx context.Context, run string) (answered time.Time, err error) {
	if err := c.begin(ctx, run); err != nil {
		return answered, err
	}
	return c.cancel(ctx, run)
}

func (c *cancelCase) cancel(ctx context.Context, run string) (answered time.Time, err error) {
	asked := time.Now()
	got, err := c.api.Cancel(ctx, run)
	answered = time.Now()
	if took := answered.Sub(asked); took > stacktest.Promised(cutWithin) {
		return answered, fmt.Errorf("the answer to the cancel took %s", took)
	}
	if err == nil && (got.Status != "aborted" || got.Error != "Run cancelled by user") {
		err = fmt.Errorf("cancel answered %s, %q", got.Status, got.Error)
	}
	return answered, err
}

// over checks what must hold after a cancel, and what follows it.
func (c *cancelCase) over(ctx context.Context, run string, answered time.Time) error {
	if err := c.quiet(ctx, run, answered); err != nil {
		return err
	}
	return c.followed(ctx, c.to, run)
}

// quiet checks what must hold after a cancel, once the workflow has closed: then the run
// can do nothing any more.
func (c *cancelCase) quiet(ctx context.Context, run string, answered time.Time) error {
	if err := c.closed(ctx, run); err != nil {
		return err
	}
	if err := c.wasCut(ctx, run, answered); err != nil {
		return err
	}
	after, err := c.api.GetRun(ctx, run)
	if err != nil {
		return err
	}
	if after.Status != "aborted" || after.Error != "Run cancelled by user" || after.Data != nil {
		return fmt.Errorf("the run became %s: %s %s", after.Status, after.Error, after.Data)
	}
	if _, err := c.cancel(ctx, run); err != nil {
		return fmt.Errorf("a second cancel: %w", err)
	}
	claim, _, err := c.Service.Store.ReadClaim(ctx, stepwell.PageKey{Org: c.org(ctx), Run: run, Page: 1})
	if err == nil && claim != nil {
		err = errors.New("a claim is left")
	}
	if err != nil {
		return err
	}
	return c.readable(ctx, run)
}

// wasCut checks the requests that the upstream saw.
func (c *cancelCase) wasCut(ctx context.Context, run string, answered time.Time) error {
	err := poll(ctx, func() error {
		if slices.ContainsFunc(c.up.of(run), func(r request) bool { return r.ended.IsZero() }) {
			return errors.New("a request is still in flight")
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range c.up.of(run) {
		if late := r.began.Sub(answered); late > onTheWire+c.stalls.Worst() {
			return fmt.Errorf("a request began %s after the answer", late)
		}
		if late := r.ended.Sub(answered); late > stacktest.Promised(cutWithin) {
			return fmt.Errorf("a request was cut off %s after the answer", late)
		}
	}
	return nil
}

// readable reads the pages that were stored before.
func (c *cancelCase) readable(ctx context.Context, run string) error {
	res, err := c.api.Results(ctx, run)
	if err != nil || c.pages == 0 {
		return err
	}
	if res.Data == nil || len(res.Data.StepResults) == 0 {
		return errors.New("nothing is readable any more")
	}
	first := res.Data.StepResults[0]
	if len(first.Data) == 0 || c.pages > 1 && first.Pages < c.pages {
		return fmt.Errorf("%d pages are readable: %s", first.Pages, first.Data)
	}
	return nil
}

// poll asks until there is nothing to complain of.
func poll(ctx context.Context, ok func() error) error {
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if pauseFor(ctx, 10*time.Millisecond) != nil {
			return fmt.Errorf("until the end of the test: %w", err)
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
