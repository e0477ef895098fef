package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	sdkactivity "go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"stepwell/activities"
	"stepwell/workflows"
)

// scripted are activities that answer as a test says, and remember what they were asked.
type scripted struct {
	page   func(req activities.PageRequest) (activities.PageResult, error)
	sel    activities.SelectResult
	finish func(req activities.FinishRequest) (activities.FinishResult, error)

	mu       sync.Mutex
	asked    []activities.PageRequest
	finished []activities.FinishRequest
}

func (s *scripted) Page(_ context.Context, req activities.PageRequest) (activities.PageResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, req)
	return s.page(req)
}

func (s *scripted) Select(context.Context, activities.SelectRequest) (activities.SelectResult, error) {
	return s.sel, nil
}

func (s *scripted) Finish(_ context.Context, req activities.FinishRequest) (activities.FinishResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = append(s.finished, req)
	if s.finish != nil {
		return s.finish(req)
	}
	return activities.FinishResult{Outcome: activities.Finished}, nil
}

// run puts a run through all its executions and gives the number of them and how the
// last one ended. each is called before an execution begins.
func (s *scripted) run(t *testing.T, in workflows.RunInput, each func(env *testsuite.TestWorkflowEnvironment)) (executions int, err error) {
	t.Helper()
	for executions = 1; executions < 1000; executions++ {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
		env := suite.NewTestWorkflowEnvironment()
		env.SetTestTimeout(20 * time.Second)
		env.RegisterActivityWithOptions(s.Page, sdkactivity.RegisterOptions{Name: activities.PageName})
		env.RegisterActivityWithOptions(s.Select, sdkactivity.RegisterOptions{Name: activities.SelectName})
		env.RegisterActivityWithOptions(s.Finish, sdkactivity.RegisterOptions{Name: activities.FinishName})
		if each != nil {
			each(env)
		}
		env.ExecuteWorkflow(workflows.RunTool, in)
		if !env.IsWorkflowCompleted() {
			t.Fatalf("execution %d does not end", executions)
		}
		err = env.GetWorkflowError()
		var again *workflow.ContinueAsNewError
		if !errors.As(err, &again) {
			return executions, err
		}
		in = workflows.RunInput{}
		if err := converter.GetDefaultDataConverter().FromPayloads(again.Input, &in); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the run continues as new for ever")
	return executions, err
}

// soon makes a run continue as new after some activities.
func soon(count int) workflows.Settings {
	s := workflows.DefaultSettings()
	s.ContinueCount, s.ContinueMinAge = count, 0
	return s
}

// ofLength answers with pages, each once for an item, the last one done.
func ofLength(pages int) func(activities.PageRequest) (activities.PageResult, error) {
	return func(req activities.PageRequest) (activities.PageResult, error) {
		if req.Page == pages {
			return activities.PageResult{Outcome: activities.Done}, nil
		}
		return activities.PageResult{Outcome: activities.More}, nil
	}
}

// checkOnce makes sure that every page of every item was asked for once, in order.
func (s *scripted) checkOnce(t *testing.T, items, pages int) {
	t.Helper()
	next := make([]int, items)
	for _, req := range s.asked {
		if next[req.Item]++; req.Page != next[req.Item] {
			t.Fatalf("item %d: page %d was asked for, want %d", req.Item, req.Page, next[req.Item])
		}
	}
	for item, n := range next {
		if n != pages {
			t.Errorf("item %d: %d pages, want %d", item, n, pages)
		}
	}
}

func parallel(concurrency int) []workflows.PlanStep {
	return []workflows.PlanStep{{ID: "each", Selects: true, Concurrency: concurrency}}
}

// TestParallelPullsContinueAsNew has items of many pages side by side: no execution may
// grow with their number, and no page may be asked for twice.
func TestParallelPullsContinueAsNew(t *testing.T) {
	t.Parallel()
	s := &scripted{page: ofLength(40), sel: activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 7}}
	most := 0
	executions, err := s.run(t, workflows.RunInput{Plan: parallel(3), Settings: soon(20)}, func(*testsuite.TestWorkflowEnvironment) {
		most = max(most, len(s.asked))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.checkOnce(t, 7, 40)
	if executions < 7*40/25 {
		t.Errorf("%d pages in %d executions: more than some 20 in one", 7*40, executions)
	}
	if len(s.finished) != 1 || s.finished[0].Status != "success" {
		t.Errorf("finished %+v", s.finished)
	}
}

// TestParallelWaitsContinueAsNew has items that an upstream makes wait again and again:
// what they waited for is not forgotten, and no execution grows with it.
func TestParallelWaitsContinueAsNew(t *testing.T) {
	t.Parallel()
	const waits = 60
	s := &scripted{sel: activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 4}}
	s.page = func(req activities.PageRequest) (activities.PageResult, error) {
		if req.Waits < waits {
			return activities.PageResult{Outcome: activities.Retry, Asked: true, AfterMS: 1000}, nil
		}
		if req.WaitedMS != waits*1000 || req.Attempt != 1 {
			return activities.PageResult{}, fmt.Errorf("after %d waits: %+v", waits, req)
		}
		return activities.PageResult{Outcome: activities.Done}, nil
	}
	executions, err := s.run(t, workflows.RunInput{Plan: parallel(4), Settings: soon(20)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := 4 * (waits + 1); len(s.asked) != want || executions < want/25 {
		t.Errorf("%d requests in %d executions, want %d in %d or more", len(s.asked), executions, want, want/25)
	}
}

// TestParallelOutageContinuesAsNew has items whose activities end without an outcome for
// hours.
func TestParallelOutageContinuesAsNew(t *testing.T) {
	t.Parallel()
	s := &scripted{sel: activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 3}}
	s.page = func(req activities.PageRequest) (activities.PageResult, error) {
		if len(s.asked) < 200 {
			return activities.PageResult{}, temporal.NewApplicationError("away", "unavailable")
		}
		if !req.Contended {
			return activities.PageResult{}, errors.New("a page whose activity ended without an outcome is contended")
		}
		return activities.PageResult{Outcome: activities.Done}, nil
	}
	executions, err := s.run(t, workflows.RunInput{Plan: parallel(3), Settings: soon(20)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if executions < 8 {
		t.Errorf("200 activities in %d executions", executions)
	}
}

// TestParallelFailureSurvivesContinueAsNew: after a failed item none begins any more, in
// later executions neither, and those in flight are finished.
func TestParallelFailureSurvivesContinueAsNew(t *testing.T) {
	t.Parallel()
	s := &scripted{sel: activities.SelectResult{Outcome: activities.Done, Loop: true, Total: 50}}
	s.page = func(req activities.PageRequest) (activities.PageResult, error) {
		if req.Item == 0 && req.Page == 3 {
			return activities.PageResult{Outcome: activities.Failed}, nil
		}
		return ofLength(30)(req)
	}
	executions, err := s.run(t, workflows.RunInput{Plan: parallel(2), Settings: soon(10)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if executions < 3 {
		t.Fatalf("%d executions: the run did not continue as new after the failure", executions)
	}
	last := map[int]int{}
	for _, req := range s.asked {
		last[req.Item] = req.Page
	}
	if len(last) != 2 || last[0] != 3 || last[1] != 30 {
		t.Errorf("last pages by item: %v, want 3 of item 0 and 30 of item 1", last)
	}
	if len(s.finished) != 1 || s.finished[0].Status != "failed" {
		t.Errorf("finished %+v", s.finished)
	}
}

// TestPlainPullOfConcurrentStep: a dataSelector that gives one object makes no loop; its
// pages continue as new like any other's, and may be local.
func TestPlainPullOfConcurrentStep(t *testing.T) {
	t.Parallel()
	s := &scripted{page: ofLength(100), sel: activities.SelectResult{Outcome: activities.Done, Total: 1}}
	executions, err := s.run(t, workflows.RunInput{Plan: parallel(5), Settings: soon(20)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.checkOnce(t, 1, 100)
	if executions < 4 {
		t.Errorf("100 pages in %d executions", executions)
	}
	if !slices.ContainsFunc(s.asked, func(r activities.PageRequest) bool { return !r.Lease.IsZero() }) {
		t.Error("no page was a local activity")
	}
}

// TestStoredPagesAreNotGoneThrough: a run that begins with many pages goes on after the
// last of them.
func TestStoredPagesAreNotGoneThrough(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	s.page = func(req activities.PageRequest) (activities.PageResult, error) {
		if req.Page == 1 {
			return activities.PageResult{Outcome: activities.More, Page: 5000}, nil
		}
		return ofLength(5002)(req)
	}
	if _, err := s.run(t, workflows.RunInput{Plan: []workflows.PlanStep{{ID: "pull"}}, Settings: workflows.DefaultSettings()}, nil); err != nil {
		t.Fatal(err)
	}
	if len(s.asked) != 3 || s.asked[1].Page != 5001 {
		t.Errorf("asked for %d pages: %+v", len(s.asked), s.asked[:min(3, len(s.asked))])
	}
}

// TestBugsEndRuns: activities that meet internal errors again and again end the run, the
// finish itself too. A workflow that fails is the sweeper's.
func TestBugsEndRuns(t *testing.T) {
	t.Parallel()
	bug := temporal.NewNonRetryableApplicationError("bug", activities.InternalError, nil)
	one := []workflows.PlanStep{{ID: "one"}}

	s := &scripted{page: func(activities.PageRequest) (activities.PageResult, error) { return activities.PageResult{}, bug }}
	if _, err := s.run(t, workflows.RunInput{Plan: one, Settings: workflows.DefaultSettings()}, nil); err != nil {
		t.Error(err)
	}
	if len(s.finished) != 1 || s.finished[0].Status != "failed" || s.finished[0].Reason == "" {
		t.Errorf("finished %+v", s.finished)
	}

	s = &scripted{page: ofLength(1), finish: func(req activities.FinishRequest) (activities.FinishResult, error) {
		if req.Status == "success" {
			return activities.FinishResult{}, bug
		}
		return activities.FinishResult{Outcome: activities.Finished}, nil
	}}
	if _, err := s.run(t, workflows.RunInput{Plan: one, Settings: workflows.DefaultSettings()}, nil); err != nil {
		t.Error(err)
	}
	if last := s.finished[len(s.finished)-1]; last.Status != "failed" || last.Reason == "" {
		t.Errorf("the last finish is %+v", last)
	}

	s = &scripted{page: ofLength(1), finish: func(activities.FinishRequest) (activities.FinishResult, error) {
		return activities.FinishResult{}, bug
	}}
	if _, err := s.run(t, workflows.RunInput{Plan: one, Settings: workflows.DefaultSettings()}, nil); err == nil {
		t.Error("a run that cannot be finished is a workflow that succeeded")
	}
	if len(s.finished) > 50 {
		t.Errorf("%d attempts to finish a run that cannot be finished", len(s.finished))
	}
}

// TestOutagesEndNothing: an activity that ends without an outcome for other reasons is
// made again for as long as it takes.
func TestOutagesEndNothing(t *testing.T) {
	t.Parallel()
	s := &scripted{}
	s.page = func(activities.PageRequest) (activities.PageResult, error) {
		if len(s.asked) < 100 {
			return activities.PageResult{}, temporal.NewApplicationError("away", "unavailable")
		}
		return activities.PageResult{Outcome: activities.Finished}, nil
	}
	if _, err := s.run(t, workflows.RunInput{Plan: []workflows.PlanStep{{ID: "one"}}, Settings: workflows.DefaultSettings()}, nil); err != nil {
		t.Error(err)
	}
	if len(s.finished) != 0 {
		t.Errorf("finished %+v", s.finished)
	}
}
