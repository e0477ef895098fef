package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"stepwell"
	"stepwell/activities"
)

// maxRepeats is how often an activity may end with an internal error before the run
// fails: bugs end runs, outages do not.
const maxRepeats = 20

// gaveUp is the error of a run that was given up.
const gaveUp = "The run met an internal error again and again and was given up; the service's log says more"

// RunTool is the workflow of a run: its steps in order, then the finish. Failing
// requests do not fail the workflow; a run's status is a row's, not the workflow's.
func RunTool(ctx workflow.Context, in RunInput) error {
	r := &run{in: in, began: workflow.Now(ctx)}
	r.newTask(ctx)
	err := r.steps(ctx)
	if errors.Is(err, errEnded) {
		return nil
	}
	if err == nil || workflow.IsContinueAsNewError(err) {
		return err
	}
	if ctx.Err() == nil && !temporal.IsCanceledError(err) {
		return err
	}
	// Cancelled: by the API, then the row says so already and this changes nothing; or by
	// an operator's Temporal client, then this is what ends the run.
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	return r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunAborted), Reason: "Run cancelled by the system"})
}

// run is the state of one execution of RunTool.
type run struct {
	in    RunInput
	began time.Time // of this execution, in workflow time
	task  task
	count int // activities of this execution
}

func (r *run) steps(ctx workflow.Context) error {
	for at := r.in.At; at.Step < len(r.in.Plan); at = (Position{Step: at.Step + 1}) {
		outcome, err := r.step(ctx, at)
		if err != nil {
			return err
		}
		switch outcome {
		case activities.Gone, activities.Finished:
			return nil
		case activities.Failed:
			if !r.in.Plan[at.Step].Continue {
				return r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunFailed), Step: at.Step})
			}
		}
	}
	return r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunSuccess)})
}

// step runs one step, from a position inside it.
func (r *run) step(ctx workflow.Context, at Position) (activities.Outcome, error) {
	if !r.in.Plan[at.Step].Selects {
		return r.item(ctx, at, at.Step == len(r.in.Plan)-1)
	}
	sel, err := r.selectItems(ctx, at.Step)
	if err != nil || sel.Outcome != activities.Done {
		return sel.Outcome, err
	}
	if !sel.Loop {
		return r.item(ctx, at, at.Step == len(r.in.Plan)-1)
	}
	if r.in.Plan[at.Step].Concurrency > 1 {
		return r.parallelItems(ctx, at, sel.Total)
	}
	for ; at.Item < sel.Total; at = (Position{Step: at.Step, Item: at.Item + 1, TookMS: at.TookMS}) {
		if err := r.continueAsNew(ctx, at); err != nil {
			return "", err
		}
		outcome, err := r.item(ctx, at, false)
		if err != nil || outcome == activities.Gone {
			return outcome, err
		}
		if outcome == activities.Failed && !r.in.Plan[at.Step].Continue {
			return outcome, nil
		}
	}
	return activities.Done, nil
}

// parallelItems runs the items of a loop with bounded parallelism. After a failed one,
// and before the run continues as new, no further one starts; those in flight finish.
func (r *run) parallelItems(ctx workflow.Context, at Position, total int) (activities.Outcome, error) {
	plan := r.in.Plan[at.Step]
	outcome, running, next := activities.Done, 0, at.Item
	var firstErr error
	stop := func() bool {
		return firstErr != nil || outcome != activities.Done || r.wantsContinueAsNew(ctx)
	}
	for next < total || running > 0 {
		for next < total && running < plan.Concurrency && !stop() {
			item := Position{Step: at.Step, Item: next}
			next++
			running++
			workflow.Go(ctx, func(ctx workflow.Context) {
				got, err := r.item(ctx, item, false)
				running--
				switch {
				case err != nil && firstErr == nil:
					firstErr = err
				case got == activities.Gone, got == activities.Failed && !plan.Continue:
					outcome = got
				}
			})
		}
		if running == 0 {
			break
		}
		before := running
		// Not with ctx: a cancelled run still waits for its items, which end by themselves.
		waiting, cancel := workflow.NewDisconnectedContext(ctx)
		err := workflow.Await(waiting, func() bool { return running < before })
		cancel()
		if err != nil {
			return "", err
		}
	}
	if firstErr != nil || outcome != activities.Done || next >= total {
		return outcome, firstErr
	}
	return "", r.continueAsNew(ctx, Position{Step: at.Step, Item: next})
}

// item asks for the pages of one item, one after the other.
func (r *run) item(ctx workflow.Context, at Position, last bool) (activities.Outcome, error) {
	concurrent := r.in.Plan[at.Step].Concurrency > 1
	for at.Page = max(at.Page, 1); ; at.Page++ {
		if !concurrent {
			if err := r.continueAsNew(ctx, at); err != nil {
				return "", err
			}
		}
		res, err := r.page(ctx, at, last)
		if err != nil || res.Outcome != activities.More {
			return res.Outcome, err
		}
		at.TookMS = res.TookMS
	}
}

// page asks for one page until it has an outcome; its retries are workflow timers.
func (r *run) page(ctx workflow.Context, at Position, last bool) (activities.PageResult, error) {
	plan := r.in.Plan[at.Step]
	req := activities.PageRequest{Org: r.in.Org, Run: r.in.Run, Step: at.Step, Item: at.Item, Page: at.Page, Attempt: 1, Last: last}
	took := time.Duration(at.TookMS) * time.Millisecond
	for {
		var res activities.PageResult
		c := call{name: activities.PageName, effects: plan.Effects, concurrency: plan.Concurrency, took: took,
			summary: fmt.Sprintf("%s, item %d, page %d", plan.ID, at.Item, at.Page)}
		err := r.call(ctx, c, func(lease time.Time, contended bool) any {
			req.Lease, req.Contended = lease, contended
			return req
		}, &res, func() activities.Outcome { return res.Outcome })
		if err != nil || res.Outcome != activities.Retry {
			return res, err
		}
		if res.Asked {
			req.WaitedMS += res.AfterMS
			req.Waits++
		} else {
			req.Attempt++
		}
		if res.Timeout {
			req.Timeouts++
		}
		if err := r.sleep(ctx, time.Duration(res.AfterMS)*time.Millisecond); err != nil {
			return res, err
		}
	}
}

func (r *run) selectItems(ctx workflow.Context, step int) (activities.SelectResult, error) {
	var res activities.SelectResult
	c := call{name: activities.SelectName, summary: r.in.Plan[step].ID + ", selector"}
	err := r.call(ctx, c, func(lease time.Time, _ bool) any {
		return activities.SelectRequest{Org: r.in.Org, Run: r.in.Run, Step: step, Lease: lease}
	}, &res, func() activities.Outcome { return res.Outcome })
	return res, err
}

// finish ends the run. Only a success may end in a local activity: a stalled worker
// cannot fail a run that another has taken over.
func (r *run) finish(ctx workflow.Context, req activities.FinishRequest) error {
	req.Org, req.Run = r.in.Org, r.in.Run
	var res activities.FinishResult
	c := call{name: activities.FinishName, effects: req.Status != string(stepwell.RunSuccess), summary: req.Status}
	return r.call(ctx, c, func(lease time.Time, _ bool) any {
		req.Lease = lease
		return req
	}, &res, func() activities.Outcome { return res.Outcome })
}

// call is one activity to be made, whichever kind it becomes.
type call struct {
	name        string
	effects     bool // must be regular
	concurrency int
	took        time.Duration // by the one before
	summary     string
}

// call makes an activity, locally where that is safe and quick, until it has an
// outcome. An activity that ends without one (its worker died or stalled, a timeout, a
// cancelled context) is repeated: only outcomes end a page or a run.
func (r *run) call(ctx workflow.Context, c call, request func(lease time.Time, contended bool) any, result any, outcome func() activities.Outcome) error {
	contended := false
	if useLocal(r.in.Settings, c.effects, c.concurrency, c.took, r.task, workflow.Now(ctx)) {
		r.count++
		r.task.locals++
		req := request(r.task.started.Add(r.in.Settings.Lease), false)
		err := workflow.ExecuteLocalActivity(localOptions(ctx), c.name, req).Get(ctx, result)
		if err == nil && outcome() != activities.Pending {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		contended = true
	}
	for repeats, bugs := 0, 0; ; repeats++ {
		r.count++
		err := workflow.ExecuteActivity(regularOptions(ctx, r.in.Settings, c.summary), c.name, request(time.Time{}, contended)).Get(ctx, result)
		r.newTask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		contended = true
		if isBug(err) {
			if bugs++; bugs >= maxRepeats && c.name != activities.FinishName {
				if err := r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunFailed), Step: -1, Reason: gaveUp}); err != nil {
					return err
				}
				return errEnded
			}
		}
		if err := r.sleep(ctx, repeatWait(repeats)); err != nil {
			return err
		}
	}
}

// sleep waits durably.
func (r *run) sleep(ctx workflow.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	err := workflow.Sleep(ctx, d)
	r.newTask(ctx)
	return err
}

// newTask notes that a workflow task has just begun.
func (r *run) newTask(ctx workflow.Context) { r.task = task{started: workflow.Now(ctx)} }

func (r *run) wantsContinueAsNew(ctx workflow.Context) bool {
	if workflow.Now(ctx).Sub(r.began) < r.in.Settings.ContinueMinAge {
		return false
	}
	return r.count >= r.in.Settings.ContinueCount || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// continueAsNew gives the error that continues the run at a position with an empty
// history, when it is time for that.
func (r *run) continueAsNew(ctx workflow.Context, at Position) error {
	if !r.wantsContinueAsNew(ctx) {
		return nil
	}
	in := r.in
	in.At = at
	return workflow.NewContinueAsNewError(ctx, RunTool, in)
}
