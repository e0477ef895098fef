package workflows

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"stepwell"
	"stepwell/activities"
)

func TestUseLocal(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	type args struct {
		s        Settings
		effects  bool
		parallel bool
		took     time.Duration
		t        task
		now      time.Time
	}
	usual := args{s: DefaultSettings(), t: task{started: now}, now: now}
	for _, test := range []struct {
		name   string
		change func(*args)
		want   bool
	}{
		{"usual", func(*args) {}, true},
		{"a quick page before", func(a *args) { a.took = a.s.SlowPage - 1 }, true},
		{"a slow page before", func(a *args) { a.took = a.s.SlowPage }, false},
		{"effects", func(a *args) { a.effects = true }, false},
		{"an item beside others", func(a *args) { a.parallel = true }, false},
		{"asked for regular ones", func(a *args) { a.s.Activities = ActivitiesRegular }, false},
		{"the last before a yield", func(a *args) { a.t.locals = a.s.YieldCount - 1 }, true},
		{"many locals", func(a *args) { a.t.locals = a.s.YieldCount }, false},
		{"a long task", func(a *args) { a.now = now.Add(a.s.YieldAfter) }, false},
		{"a task not yet long", func(a *args) { a.now = now.Add(a.s.YieldAfter - 1) }, true},
	} {
		a := usual
		test.change(&a)
		if got := useLocal(a.s, a.effects, a.parallel, a.took, a.t, a.now); got != test.want {
			t.Errorf("%s: local is %v", test.name, got)
		}
	}
	// A local activity must be over, and its lease too, before the task's heartbeat.
	s := DefaultSettings()
	heartbeat := TaskTimeout * 8 / 10
	if s.YieldAfter+2*time.Second > heartbeat || s.Lease >= heartbeat {
		t.Errorf("a task may go on for %v and 2 s, and sends until %v: its heartbeat is at %v", s.YieldAfter, s.Lease, heartbeat)
	}
}

func TestRepeatWait(t *testing.T) {
	t.Parallel()
	for repeats, want := range []time.Duration{0, 1, 2, 4, 8, 15, 15, 15} {
		if got := repeatWait(repeats); got != want*time.Second {
			t.Errorf("after %d repeats: %v, want %d s", repeats, got, want)
		}
	}
	if got := repeatWait(1000); got != 15*time.Second {
		t.Errorf("after a thousand: %v", got)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	request := func(change func(*stepwell.Step)) stepwell.Step {
		s := stepwell.Step{ID: "s", Config: stepwell.StepConfig{URL: "http://secret/", Body: "secret"}}
		change(&s)
		return s
	}
	yes := true
	got := activities.Plan(&stepwell.Tool{Steps: []stepwell.Step{
		request(func(*stepwell.Step) {}),
		request(func(s *stepwell.Step) { s.Config.Method = "POST" }),
		request(func(s *stepwell.Step) { s.Modify = &yes }),
		request(func(s *stepwell.Step) { s.DataSelector, s.Concurrency = "(s) => s.x", 5 }),
		request(func(s *stepwell.Step) { s.Concurrency = 5 }), // without a selector there is no loop
		request(func(s *stepwell.Step) { s.FailureBehavior = stepwell.FailureContinue }),
	}})
	want := []PlanStep{{ID: "s"}, {ID: "s", Effects: true}, {ID: "s", Effects: true}, {ID: "s", Selects: true, Concurrency: 5}, {ID: "s"}, {ID: "s", Continue: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// world is what the activities of a test do, and a record of what they were asked.
type world struct {
	t      *testing.T
	env    *testsuite.TestWorkflowEnvironment
	page   func(req activities.PageRequest, local bool) (activities.PageResult, error)
	choose func(req activities.SelectRequest) (activities.SelectResult, error)

	mu       sync.Mutex
	pages    []asked
	finishes []activities.FinishRequest
	locals   []bool // of the finishes
}

// asked is one call of Page.
type asked struct {
	activities.PageRequest
	local bool
	at    time.Time
}

func (a asked) String() string {
	kind := "regular"
	if a.local {
		kind = "local"
	}
	return fmt.Sprintf("%d/%d/%d %s", a.Step, a.Item, a.Page, kind)
}

// newWorld makes a workflow environment. Without page, every step is one page.
func newWorld(t *testing.T) *world {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	w := &world{t: t, env: suite.NewTestWorkflowEnvironment()}
	w.env.SetTestTimeout(20 * time.Second)
	w.env.RegisterWorkflowWithOptions(RunTool, workflow.RegisterOptions{Name: RunToolName})
	w.env.RegisterActivityWithOptions(func(ctx context.Context, req activities.PageRequest) (activities.PageResult, error) {
		local := activity.GetInfo(ctx).IsLocalActivity
		w.mu.Lock()
		w.pages = append(w.pages, asked{req, local, w.env.Now()})
		w.mu.Unlock()
		if w.page == nil {
			return activities.PageResult{Outcome: activities.Done}, nil
		}
		return w.page(req, local)
	}, activity.RegisterOptions{Name: activities.PageName})
	w.env.RegisterActivityWithOptions(func(_ context.Context, req activities.SelectRequest) (activities.SelectResult, error) {
		return w.choose(req)
	}, activity.RegisterOptions{Name: activities.SelectName})
	w.env.RegisterActivityWithOptions(func(ctx context.Context, req activities.FinishRequest) (activities.FinishResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.finishes = append(w.finishes, req)
		w.locals = append(w.locals, activity.GetInfo(ctx).IsLocalActivity)
		return activities.FinishResult{Outcome: activities.Finished}, nil
	}, activity.RegisterOptions{Name: activities.FinishName})
	return w
}

// run runs the workflow and gives its error.
func (w *world) run(in RunInput) error {
	w.t.Helper()
	in.Org, in.Run = "org", "run"
	if in.Settings == (Settings{}) {
		in.Settings = DefaultSettings()
	}
	w.env.ExecuteWorkflow(RunToolName, in)
	if !w.env.IsWorkflowCompleted() {
		w.t.Fatal("the workflow did not end")
	}
	return w.env.GetWorkflowError()
}

// finished checks that the run was finished once, so.
func (w *world) finished(status stepwell.RunStatus, step int, local bool) {
	w.t.Helper()
	if len(w.finishes) != 1 || w.finishes[0].Status != string(status) || w.finishes[0].Step != step || w.locals[0] != local {
		w.t.Errorf("finished as %+v (local %v), want once as %s, step %d (local %v)", w.finishes, w.locals, status, step, local)
	}
}

// order lists the calls of Page.
func (w *world) order() string {
	var out []string
	for _, p := range w.pages {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}

func (w *world) wantOrder(want string) {
	w.t.Helper()
	if got := w.order(); got != want {
		w.t.Errorf("asked for %s\nwant      %s", got, want)
	}
}

// upTo gives More until a page, which is Done.
func upTo(last int) func(activities.PageRequest, bool) (activities.PageResult, error) {
	return func(req activities.PageRequest, _ bool) (activities.PageResult, error) {
		if req.Page < last {
			return activities.PageResult{Outcome: activities.More}, nil
		}
		return activities.PageResult{Outcome: activities.Done}, nil
	}
}

func steps(plan ...PlanStep) RunInput {
	for i := range plan {
		plan[i].ID = fmt.Sprint("s", i)
	}
	return RunInput{Plan: plan}
}

func TestStepsInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := w.env.Now()
	w.page = func(req activities.PageRequest, local bool) (activities.PageResult, error) {
		if req.Step == 0 {
			return upTo(3)(req, local)
		}
		return activities.PageResult{Outcome: activities.Done}, nil
	}
	if err := w.run(steps(PlanStep{}, PlanStep{Effects: true}, PlanStep{})); err != nil {
		t.Fatal(err)
	}
	w.wantOrder("0/0/1 local, 0/0/2 local, 0/0/3 local, 1/0/1 regular, 2/0/1 local")
	w.finished(stepwell.RunSuccess, 0, true)
	for _, p := range w.pages {
		if p.local == p.Lease.IsZero() || p.Contended || p.Attempt != 1 || p.Last != (p.Step == 2) {
			t.Errorf("%s was asked for as %+v", p, p.PageRequest)
		}
		if p.local && p.Lease.Sub(began) > DefaultSettings().Lease+time.Second {
			t.Errorf("%s may send until %v after the start", p, p.Lease.Sub(began))
		}
	}
}

func TestEndsWithoutAFinish(t *testing.T) {
	t.Parallel()
	for _, outcome := range []activities.Outcome{activities.Finished, activities.Gone} {
		w := newWorld(t)
		w.page = func(activities.PageRequest, bool) (activities.PageResult, error) {
			return activities.PageResult{Outcome: outcome}, nil
		}
		if err := w.run(steps(PlanStep{}, PlanStep{})); err != nil {
			t.Error(err)
		}
		if len(w.pages) != 1 || len(w.finishes) != 0 {
			t.Errorf("after %s: %s, and finished as %+v", outcome, w.order(), w.finishes)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for _, goOn := range []bool{false, true} {
		w := newWorld(t)
		w.page = func(req activities.PageRequest, _ bool) (activities.PageResult, error) {
			if req.Step == 1 {
				return activities.PageResult{Outcome: activities.Failed}, nil
			}
			return activities.PageResult{Outcome: activities.Done}, nil
		}
		if err := w.run(steps(PlanStep{}, PlanStep{Continue: goOn}, PlanStep{})); err != nil {
			t.Fatal(err)
		}
		if goOn {
			w.wantOrder("0/0/1 local, 1/0/1 local, 2/0/1 local")
			w.finished(stepwell.RunSuccess, 0, true)
		} else {
			w.wantOrder("0/0/1 local, 1/0/1 local")
			w.finished(stepwell.RunFailed, 1, false) // a stalled worker must not fail a run
		}
	}
}

func TestRetriesAreTimers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	results := []activities.PageResult{
		{Outcome: activities.Retry, AfterMS: 1000},
		{Outcome: activities.Retry, AfterMS: 60_000, Asked: true},
		{Outcome: activities.Retry, AfterMS: 30_000, Asked: true},
		{Outcome: activities.Retry, AfterMS: 500, Timeout: true},
		{Outcome: activities.Done},
	}
	w.page = func(activities.PageRequest, bool) (activities.PageResult, error) {
		return results[len(w.pages)-1], nil
	}
	if err := w.run(steps(PlanStep{})); err != nil {
		t.Fatal(err)
	}
	type count struct {
		attempt, waits, timeouts int
		waited                   int64
	}
	want := []count{{1, 0, 0, 0}, {2, 0, 0, 0}, {2, 1, 0, 60_000}, {2, 2, 0, 90_000}, {3, 2, 1, 90_000}}
	for i, p := range w.pages {
		if got := (count{p.Attempt, p.Waits, p.Timeouts, p.WaitedMS}); got != want[i] {
			t.Errorf("attempt %d was counted as %+v, want %+v", i, got, want[i])
		}
		if i == 0 {
			continue
		}
		if waited, least := p.at.Sub(w.pages[i-1].at), time.Duration(results[i-1].AfterMS)*time.Millisecond; waited < least {
			t.Errorf("attempt %d came after %v, want %v", i, waited, least)
		}
	}
	w.finished(stepwell.RunSuccess, 0, true)
}

func TestYield(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.page = upTo(9)
	in := steps(PlanStep{})
	in.Settings = DefaultSettings()
	in.Settings.YieldCount = 3
	if err := w.run(in); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, p := range w.pages {
		kinds = append(kinds, strings.Fields(p.String())[1])
	}
	if got := strings.Join(kinds, " "); got != "local local local regular local local local regular local" {
		t.Errorf("the pages were %s", got)
	}
}

func TestSlowAndPendingBecomeRegular(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.page = func(req activities.PageRequest, local bool) (activities.PageResult, error) {
		switch {
		case req.Page == 2 && local:
			return activities.PageResult{Outcome: activities.Pending, TookMS: 2000}, nil
		case req.Page == 2:
			return activities.PageResult{Outcome: activities.More, TookMS: 100}, nil
		case req.Page == 3:
			return activities.PageResult{Outcome: activities.More, TookMS: DefaultSettings().SlowPage.Milliseconds()}, nil
		}
		return upTo(5)(req, local)
	}
	if err := w.run(steps(PlanStep{})); err != nil {
		t.Fatal(err)
	}
	w.wantOrder("0/0/1 local, 0/0/2 local, 0/0/2 regular, 0/0/3 local, 0/0/4 regular, 0/0/5 local")
	if !w.pages[2].Contended || w.pages[3].Contended {
		t.Error("only the page that was pending may be in flight elsewhere")
	}
}

func TestOutagesAreRepeatedAndBugsGiveUp(t *testing.T) {
	t.Parallel()
	unavailable := temporal.NewApplicationError("away", "unavailable")
	bug := temporal.NewNonRetryableApplicationError("bug", activities.InternalError, nil)

	w := newWorld(t)
	w.page = func(activities.PageRequest, bool) (activities.PageResult, error) {
		if len(w.pages) <= 2*maxRepeats {
			return activities.PageResult{}, unavailable
		}
		return activities.PageResult{Outcome: activities.Done}, nil
	}
	if err := w.run(steps(PlanStep{})); err != nil {
		t.Fatal(err)
	}
	w.finished(stepwell.RunSuccess, 0, true)
	for i, p := range w.pages[1:] {
		if p.local || !p.Contended {
			t.Errorf("repeat %d was %s, contended %v", i, p, p.Contended)
		}
	}
	if waited := w.pages[20].at.Sub(w.pages[19].at); waited < 15*time.Second {
		t.Errorf("late repeats come every %v", waited)
	}

	w = newWorld(t)
	w.page = func(activities.PageRequest, bool) (activities.PageResult, error) { return activities.PageResult{}, bug }
	if err := w.run(steps(PlanStep{}, PlanStep{})); err != nil {
		t.Fatal(err)
	}
	w.finished(stepwell.RunFailed, -1, false)
	if len(w.pages) != maxRepeats+1 || w.finishes[0].Reason == "" {
		t.Errorf("given up after %d, because %q", len(w.pages), w.finishes[0].Reason)
	}
}

func TestCancelDuringAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.page = func(activities.PageRequest, bool) (activities.PageResult, error) {
		return activities.PageResult{Outcome: activities.Retry, AfterMS: time.Hour.Milliseconds()}, nil
	}
	w.env.RegisterDelayedCallback(w.env.CancelWorkflow, time.Minute)
	if err := w.run(steps(PlanStep{})); err != nil {
		t.Fatal(err)
	}
	w.finished(stepwell.RunAborted, 0, false)
	if len(w.pages) != 1 || w.finishes[0].Reason == "" {
		t.Errorf("asked for %s, aborted because %q", w.order(), w.finishes[0].Reason)
	}
}

// continuedAt gives the position at which a run continued as new.
func continuedAt(t *testing.T, err error) Position {
	t.Helper()
	var again *workflow.ContinueAsNewError
	if !errors.As(err, &again) {
		t.Fatalf("the workflow ended with %v and did not continue as new", err)
	}
	var in RunInput
	if err := converter.GetDefaultDataConverter().FromPayloads(again.Input, &in); err != nil {
		t.Fatal(err)
	}
	if in.Org != "org" || in.Run != "run" || len(in.Plan) == 0 || in.Settings.ContinueCount == 0 {
		t.Errorf("it continues with %+v", in)
	}
	return in.At
}

func TestContinueAsNew(t *testing.T) {
	t.Parallel()
	soon := func(in RunInput) RunInput {
		in.Settings = DefaultSettings()
		in.Settings.ContinueCount, in.Settings.ContinueMinAge = 5, 0
		return in
	}
	w := newWorld(t)
	w.page = func(req activities.PageRequest, local bool) (activities.PageResult, error) {
		res, err := upTo(100)(req, local)
		res.TookMS = 77
		return res, err
	}
	if at := continuedAt(t, w.run(soon(steps(PlanStep{})))); !reflect.DeepEqual(at, Position{Page: 6, TookMS: 77}) {
		t.Errorf("a pull continues at %+v", at)
	}

	// It goes on where it was told to, and not before.
	w = newWorld(t)
	w.page = upTo(9)
	in := soon(steps(PlanStep{}, PlanStep{}))
	in.At = Position{Step: 1, Page: 6}
	if err := w.run(in); err != nil {
		t.Fatal(err)
	}
	w.wantOrder("1/0/6 local, 1/0/7 local, 1/0/8 local, 1/0/9 local")

	// Not before it is old enough: the server would make it wait.
	w = newWorld(t)
	w.page = upTo(50)
	in = soon(steps(PlanStep{}))
	in.Settings.ContinueMinAge = time.Hour
	if err := w.run(in); err != nil || len(w.pages) != 50 {
		t.Errorf("a young run ended with %v after %d pages", err, len(w.pages))
	}

	for _, concurrency := range []int{1, 2} {
		w = newWorld(t)
		w.choose = func(activities.SelectRequest) (activities.SelectResult, error) {
			return activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 20}, nil
		}
		at := continuedAt(t, w.run(soon(steps(PlanStep{Selects: true, Concurrency: concurrency}))))
		if at.Step != 0 || at.Item != len(w.pages) || at.Page > 1 || at.Item < 4 || at.Item > 6 {
			t.Errorf("with concurrency %d, after items %s, the loop continues at %+v", concurrency, w.order(), at)
		}
	}
}

// TestCancelAtContinueAsNew: a cancel that is there when a run would continue as new ends
// it. Temporal gives it to this execution only.
func TestCancelAtContinueAsNew(t *testing.T) {
	t.Parallel()
	for _, parallel := range []bool{false, true} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			ctx, cancel := workflow.WithCancel(ctx)
			in := steps(PlanStep{Selects: parallel, Concurrency: 2})
			in.Settings = DefaultSettings()
			in.Settings.ContinueMinAge = 0
			r := &run{in: in, began: workflow.Now(ctx), count: in.Settings.ContinueCount}
			cancel()
			if !parallel {
				return r.leave(ctx, Position{Page: 3})
			}
			_, err := r.parallelItems(ctx, Position{}, 10)
			return err
		})
		if err := env.GetWorkflowError(); !temporal.IsCanceledError(err) {
			t.Errorf("parallel %v: a cancelled run goes on: %v", parallel, err)
		}
	}
}

func TestLoops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		selected activities.SelectResult
		goOn     bool
		want     string
		status   stepwell.RunStatus
	}{
		{"three", activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 3}, true, "0/0/1 local, 0/1/1 local, 0/2/1 local, 1/0/1 local", stepwell.RunSuccess},
		{"three, the second fails", activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 3}, false, "0/0/1 local, 0/1/1 local", stepwell.RunFailed},
		{"none", activities.SelectResult{Outcome: activities.Done, Loop: true}, false, "1/0/1 local", stepwell.RunSuccess},
		{"no loop", activities.SelectResult{Outcome: activities.Done, Total: 1}, false, "0/0/1 local, 1/0/1 local", stepwell.RunSuccess},
		{"the selector fails", activities.SelectResult{Outcome: activities.Failed}, false, "", stepwell.RunFailed},
		{"the selector fails, and on", activities.SelectResult{Outcome: activities.Failed}, true, "1/0/1 local", stepwell.RunSuccess},
	} {
		w := newWorld(t)
		w.choose = func(activities.SelectRequest) (activities.SelectResult, error) { return test.selected, nil }
		w.page = func(req activities.PageRequest, _ bool) (activities.PageResult, error) {
			if req.Item == 1 {
				return activities.PageResult{Outcome: activities.Failed}, nil
			}
			return activities.PageResult{Outcome: activities.Done}, nil
		}
		if err := w.run(steps(PlanStep{Selects: true, Continue: test.goOn}, PlanStep{})); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := w.order(); got != test.want || len(w.finishes) != 1 || w.finishes[0].Status != string(test.status) {
			t.Errorf("%s: asked for %q, want %q; finished as %+v", test.name, got, test.want, w.finishes)
		}
	}
}

// TestParallelLoop counts the items in flight: as many as the step says, no more, and
// after a failure none begins.
func TestParallelLoop(t *testing.T) {
	t.Parallel()
	const concurrency, total = 3, 12
	for _, fails := range []bool{false, true} {
		w := newWorld(t)
		w.choose = func(activities.SelectRequest) (activities.SelectResult, error) {
			return activities.SelectResult{Outcome: activities.Done, Loop: true, Total: total}, nil
		}
		var mu sync.Mutex
		inFlight, most := 0, 0
		full := make(chan struct{})
		w.page = func(req activities.PageRequest, local bool) (activities.PageResult, error) {
			if local {
				t.Error("an item of a parallel loop was local")
			}
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			if inFlight == concurrency && most == concurrency {
				select {
				case <-full:
				default:
					close(full)
				}
			}
			mu.Unlock()
			<-full // the first ones wait until all places are taken
			mu.Lock()
			inFlight--
			mu.Unlock()
			if fails && req.Item == 1 {
				return activities.PageResult{Outcome: activities.Failed}, nil
			}
			return activities.PageResult{Outcome: activities.Done}, nil
		}
		if err := w.run(steps(PlanStep{Selects: true, Concurrency: concurrency})); err != nil {
			t.Fatal(err)
		}
		if most != concurrency {
			t.Errorf("%d items were in flight at once, want %d", most, concurrency)
		}
		if fails {
			w.finished(stepwell.RunFailed, 0, false)
			if len(w.pages) >= total {
				t.Errorf("after a failure the loop went on: %s", w.order())
			}
			continue
		}
		w.finished(stepwell.RunSuccess, 0, true)
		if len(w.pages) != total {
			t.Errorf("%d of %d items: %s", len(w.pages), total, w.order())
		}
	}
}
