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
	if temporal.IsCanceledError(err) {
		err = r.cancelled(ctx)
	}
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// run is the state of one execution of RunTool.
type run struct {
	in       RunInput
	began    time.Time // of this execution, in workflow time
	task     task
	count    int        // activities of this execution
	parallel bool       // the items of a loop run side by side
	left     []Position // of the items that stopped for the run to continue as new
}

// cancelled ends a run whose workflow was cancelled: by the API, then the row says so
// already and this changes nothing; or by an operator's Temporal client.
func (r *run) cancelled(ctx workflow.Context) error {
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	return r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunAborted), Reason: "Run cancelled by the system"})
}

func (r *run) steps(ctx workflow.Context) error {
	for at := r.in.At; at.Step < len(r.in.Plan); at = (Position{Step: at.Step + 1}) {
		outcome, err := r.step(ctx, at)
		if err != nil {
			return err
		}
		switch outcome {
		case activities.Gone, activities.Finished:
			if r.in.Chains { // the next run may be recorded and not started
				return r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunSuccess)})
			}
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

// parallelItems runs the items of a loop with bounded parallelism. After a failed one no
// further one begins; those in flight finish. When the run continues as new they stop
// between two activities and go on from there.
func (r *run) parallelItems(ctx workflow.Context, at Position, total int) (activities.Outcome, error) {
	plan := r.in.Plan[at.Step]
	outcome, running, next, open := activities.Done, 0, at.Item, at.Open
	if at.Failed {
		outcome = activities.Failed
	}
	var firstErr error
	take := func() (item Position, ok bool) {
		switch {
		case firstErr != nil || outcome == activities.Gone || r.wantsContinueAsNew(ctx):
		case len(open) > 0:
			item, open = open[0], open[1:]
			return item, true
		case outcome == activities.Done && next < total:
			next++
			return Position{Step: at.Step, Item: next - 1}, true
		}
		return item, false
	}
	r.parallel = true
	defer func() { r.parallel = false }()
	for {
		for running < plan.Concurrency {
			item, ok := take()
			if !ok {
				break
			}
			running++
			workflow.Go(ctx, func(ctx workflow.Context) {
				got, err := r.item(ctx, item, false)
				running--
				switch {
				case errors.Is(err, errLeft):
				case err != nil:
					firstErr = err
				case got == activities.Gone, got == activities.Failed && !plan.Continue && outcome == activities.Done:
					outcome = got
				}
			})
		}
		if running == 0 {
			break
		}
		if err := r.fewer(ctx, &running); err != nil {
			return "", err
		}
	}
	open = append(r.left, open...)
	if firstErr != nil || outcome == activities.Gone || len(open) == 0 && (outcome == activities.Failed || next >= total) {
		return outcome, firstErr
	}
	return "", r.continueAt(ctx, Position{Step: at.Step, Item: next, Open: open, Failed: outcome == activities.Failed})
}

// fewer waits until fewer items are running. It does not end with ctx: a cancelled run
// still waits for its items, which end by themselves.
func (r *run) fewer(ctx workflow.Context, running *int) error {
	before := *running
	waiting, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	return workflow.Await(waiting, func() bool { return *running < before })
}

// item asks for the pages of one item, one after the other.
func (r *run) item(ctx workflow.Context, at Position, last bool) (activities.Outcome, error) {
	for at.Page = max(at.Page, 1); ; at.Page++ {
		res, err := r.page(ctx, at, last)
		if err != nil || res.Outcome != activities.More {
			return res.Outcome, err
		}
		at.Page = max(at.Page, res.Page) // what was stored before is not gone through
		at.TookMS, at.Retry = res.TookMS, Retry{}
	}
}

// page asks for one page until it has an outcome; its retries are workflow timers.
func (r *run) page(ctx workflow.Context, at Position, last bool) (activities.PageResult, error) {
	plan := r.in.Plan[at.Step]
	c := call{name: activities.PageName, effects: plan.Effects, took: time.Duration(at.TookMS) * time.Millisecond,
		summary: fmt.Sprintf("%s, item %d, page %d", plan.ID, at.Item, at.Page)}
	for {
		var res activities.PageResult
		if err := r.leave(ctx, at); err != nil {
			return res, err
		}
		if wait := at.Retry.Until.Sub(workflow.Now(ctx)); wait > 0 {
			if err := r.rest(ctx, wait); err != nil {
				return res, err
			}
			continue
		}
		err := r.attempt(ctx, c, at.Retry.Repeats, func(lease time.Time, contended bool) any {
			return activities.PageRequest{Org: r.in.Org, Run: r.in.Run, Step: at.Step, Item: at.Item, Page: at.Page, Last: last,
				Attempt: at.Retry.Attempts + 1, WaitedMS: at.Retry.WaitedMS, Waits: at.Retry.Waits, Timeouts: at.Retry.Timeouts,
				Lease: lease, Contended: contended}
		}, &res, func() activities.Outcome { return res.Outcome })
		switch {
		case err != nil:
			if err := r.repeat(ctx, &at.Retry, err); err != nil {
				return res, err
			}
		case res.Outcome == activities.Retry:
			at.Retry = at.Retry.after(res, workflow.Now(ctx))
		default:
			return res, nil
		}
	}
}

// after is what is known of a page after an attempt that failed and is repeated.
func (y Retry) after(res activities.PageResult, now time.Time) Retry {
	y.Repeats, y.Bugs = 0, 0
	if res.Asked {
		y.WaitedMS += res.AfterMS
		y.Waits++
	} else {
		y.Attempts++
	}
	if res.Timeout {
		y.Timeouts++
	}
	y.Until = now.Add(time.Duration(res.AfterMS) * time.Millisecond)
	return y
}

func (r *run) selectItems(ctx workflow.Context, step int) (activities.SelectResult, error) {
	var res activities.SelectResult
	c := call{name: activities.SelectName, summary: r.in.Plan[step].ID + ", selector"}
	err := r.insist(ctx, c, func(lease time.Time, _ bool) any {
		return activities.SelectRequest{Org: r.in.Org, Run: r.in.Run, Step: step, Lease: lease}
	}, &res, func() activities.Outcome { return res.Outcome })
	return res, err
}

// finish ends the run. Only a success may end in a local activity: a stalled worker
// cannot fail a run that another has taken over.
func (r *run) finish(ctx workflow.Context, req activities.FinishRequest) error {
	req.Org, req.Run, req.Chains = r.in.Org, r.in.Run, r.in.Chains
	var res activities.FinishResult
	c := call{name: activities.FinishName, effects: req.Status != string(stepwell.RunSuccess), summary: req.Status, last: req.Reason == gaveUp}
	err := r.insist(ctx, c, func(lease time.Time, _ bool) any {
		req.Lease = lease
		return req
	}, &res, func() activities.Outcome { return res.Outcome })
	if err != nil || res.Next == nil {
		return err
	}
	return r.startNext(ctx, res.Next)
}

// call is one activity to be made, whichever kind it becomes.
type call struct {
	name    string
	effects bool          // must be regular
	took    time.Duration // by the one before
	summary string
	last    bool // gives the run up: nothing is left to try after it
}

// insist makes an activity until it has an outcome.
func (r *run) insist(ctx workflow.Context, c call, request func(lease time.Time, contended bool) any, result any, outcome func() activities.Outcome) error {
	for again := (Retry{}); ; {
		err := r.attempt(ctx, c, again.Repeats, request, result, outcome)
		if err == nil || c.last && again.Bugs+1 >= maxRepeats {
			return err // a workflow that fails is the sweeper's: it fails the run
		}
		if err := r.repeat(ctx, &again, err); err != nil {
			return err
		}
		if err := r.sleep(ctx, again.Until.Sub(workflow.Now(ctx))); err != nil {
			return err
		}
	}
}

// attempt makes an activity once, locally where that is safe and quick. One that was
// made before and ended without an outcome is regular.
func (r *run) attempt(ctx workflow.Context, c call, repeats int, request func(lease time.Time, contended bool) any, result any, outcome func() activities.Outcome) error {
	contended := repeats > 0
	if !contended && useLocal(r.in.Settings, c.effects, r.parallel, c.took, r.task, workflow.Now(ctx)) {
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
	r.count++
	err := workflow.ExecuteActivity(regularOptions(ctx, r.in.Settings, c.summary), c.name, request(time.Time{}, contended)).Get(ctx, result)
	r.newTask(ctx)
	return err
}

// repeat says when an activity that ended without an outcome (its worker died or
// stalled, a timeout, a cancelled context) is made again: only outcomes end a page or a
// run. One that meets internal errors again and again ends the run.
func (r *run) repeat(ctx workflow.Context, again *Retry, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isBug(err) {
		if again.Bugs++; again.Bugs >= maxRepeats {
			if err := r.finish(ctx, activities.FinishRequest{Status: string(stepwell.RunFailed), Step: -1, Reason: gaveUp}); err != nil {
				return err
			}
			return errEnded
		}
	}
	again.Until = workflow.Now(ctx).Add(repeatWait(again.Repeats))
	again.Repeats++
	return nil
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

// rest is sleep before a page. An item of a parallel loop wakes up sooner when the run
// continues as new.
func (r *run) rest(ctx workflow.Context, d time.Duration) error {
	if !r.parallel {
		return r.sleep(ctx, d)
	}
	_, err := workflow.AwaitWithTimeout(ctx, d, func() bool { return r.wantsContinueAsNew(ctx) })
	return err
}

// newTask notes that a workflow task has just begun.
func (r *run) newTask(ctx workflow.Context) { r.task = task{started: workflow.Now(ctx)} }

// wantsContinueAsNew reports whether the run should go on with an empty history.
func (r *run) wantsContinueAsNew(ctx workflow.Context) bool {
	if workflow.Now(ctx).Sub(r.began) < r.in.Settings.ContinueMinAge {
		return false
	}
	return r.count >= r.in.Settings.ContinueCount || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// leave stops before an activity when it is time to continue as new: the whole run, or
// one item of a parallel loop.
func (r *run) leave(ctx workflow.Context, at Position) error {
	if !r.wantsContinueAsNew(ctx) {
		return nil
	}
	if r.parallel {
		r.left = append(r.left, at)
		return errLeft
	}
	return r.continueAt(ctx, at)
}

// continueAt gives the error that continues the run at a position with an empty history.
// A cancelled run ends instead: its next execution would know nothing of the cancel.
func (r *run) continueAt(ctx workflow.Context, at Position) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	in := r.in
	in.At = at
	return workflow.NewContinueAsNewError(ctx, RunTool, in)
}
