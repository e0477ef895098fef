package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/fault"
	"stepwell/results"
)

// unit is one page to be asked for, or one transform to be run.
type unit struct {
	a     *Activities
	key   stepwell.PageKey
	req   PageRequest
	lease *lease

	s       *session
	step    *engine.Step
	def     *stepwell.Step
	pull    *pull
	current json.RawMessage // currentItem
	claimed bool            // a claim of this page is written and goes with the saved page
	// tookOver says that another worker had this page in flight, or may have had: it may
	// only have stalled, and store the page yet.
	tookOver bool
}

func (u *unit) run(ctx context.Context) (PageResult, error) {
	began := time.Now()
	res, err := u.page(ctx)
	took := time.Since(began)
	u.observe(res, err, took)
	res.TookMS = took.Milliseconds()
	return res, err
}

func (u *unit) page(ctx context.Context) (PageResult, error) {
	var err error
	if u.s, err = u.a.sessions.open(ctx, u.key.Org, u.key.Run); err != nil {
		return PageResult{}, err
	}
	defer u.s.release()
	if gone, err := u.open(ctx); gone || err != nil {
		return PageResult{Outcome: Gone}, err
	}
	defer u.pull.mu.Unlock()
	if u.key.Page <= u.pull.known.Load().high {
		return u.stored(), nil
	}
	if high := u.pull.known.Load().high; u.key.Page > high+1 {
		return PageResult{}, fmt.Errorf("page %d was asked for, but only %d are stored", u.key.Page, high)
	}
	if broken := u.s.tool.broken; broken != nil {
		return u.failed(ctx, broken)
	}
	if res, decided, err := u.others(ctx); decided || err != nil {
		return res, err
	}
	if left := time.Until(u.pull.until); left > 0 {
		// Another activity was told to wait, and its outcome was lost.
		return PageResult{Outcome: Retry, AfterMS: left.Milliseconds() + 1, Asked: true}, nil
	}
	if u.current, err = u.item(ctx); err != nil {
		return u.failed(ctx, err)
	}
	if u.def.IsTransform() {
		return u.transform(ctx)
	}
	return u.request(ctx)
}

// open finds the step and what is stored of its pull, and takes the pull's lock.
func (u *unit) open(ctx context.Context) (gone bool, err error) {
	if u.s.isEnded() {
		return true, nil
	}
	if u.key.Step >= len(u.s.tool.def.Steps) {
		return false, fmt.Errorf("step %d was asked for of %d", u.key.Step, len(u.s.tool.def.Steps))
	}
	u.def = &u.s.tool.def.Steps[u.key.Step]
	if u.s.tool.broken == nil {
		u.step = u.s.tool.compiled.Steps[u.key.Step]
	}
	u.pull, err = u.s.pull(ctx, u.key.Step, u.key.Item, u.req.Contended)
	return false, err
}

// stored answers for a page that is stored already: the stored pages decide, never
// one's own. It answers for all that are stored of the item, so that a run that begins
// with many goes on after the last.
func (u *unit) stored() PageResult {
	k := u.pull.known.Load()
	res := resultOf(&k.last)
	res.Page = k.high
	return res
}

func resultOf(p *stepwell.Page) PageResult {
	switch {
	case p.Error != "":
		return PageResult{Outcome: Failed}
	case p.Done:
		return PageResult{Outcome: Done}
	}
	return PageResult{Outcome: More}
}

// pollClaim is how often a live claim of another worker is looked at.
const pollClaim = 100 * time.Millisecond

// others waits while another worker has this page in flight. Only a contended page can
// be: one whose earlier activity ended without an outcome, or that this process meets
// for the first time.
func (u *unit) others(ctx context.Context) (res PageResult, decided bool, err error) {
	if !u.req.Contended && u.pull.met {
		return res, false, nil
	}
	u.pull.met = true
	for {
		began := time.Now()
		claim, running, err := u.a.Store.ReadClaim(ctx, u.key)
		if err != nil {
			return res, false, err
		}
		if !running {
			u.s.finish()
			return PageResult{Outcome: Gone}, true, nil
		}
		u.s.running(began)
		if claim == nil || !claim.Alive || claim.Worker == u.a.Worker {
			u.tookOver = u.req.Contended || claim != nil
			return res, false, u.waits(ctx)
		}
		if u.lease.lost() {
			return PageResult{Outcome: Pending}, true, nil
		}
		select {
		case <-u.s.ctx.Done():
			return PageResult{Outcome: Gone}, true, nil
		case <-time.After(pollClaim):
		}
		head, err := u.a.Store.PageHead(ctx, u.key)
		if err != nil {
			return res, false, err
		}
		if head != nil {
			return resultOf(head), true, u.pull.advance(head)
		}
	}
}

// waits reads what is left of a wait before this page, which a worker that is gone may
// have noted.
func (u *unit) waits(ctx context.Context) error {
	if !u.req.Contended && u.s.unclaimed {
		return nil // nobody was here before
	}
	left, err := u.a.Store.WaitLeft(ctx, u.key)
	u.pull.until = time.Now().Add(left)
	return err
}

// item gives currentItem, `{}` for a step without a dataSelector.
func (u *unit) item(ctx context.Context) (json.RawMessage, error) {
	if u.def.DataSelector == "" {
		return json.RawMessage("{}"), nil
	}
	return u.s.item(ctx, u.key.Step, u.key.Item)
}

func (u *unit) transform(ctx context.Context) (PageResult, error) {
	if running, err := u.s.check(ctx); err != nil || !running {
		return PageResult{Outcome: Gone}, err
	}
	scope, err := u.s.scope(ctx, u.key.Step, u.key.Item, u.current, true)
	if err != nil {
		return u.unbound(ctx, err)
	}
	out, err := u.step.Transform(u.s.ctx, u.a.Evaluator, scope)
	u.a.console(u.s, u.key, out.Console)
	if err != nil {
		return u.failed(ctx, err)
	}
	p, err := u.transformed(out)
	if err != nil {
		return u.failed(ctx, err)
	}
	if p.State, err = u.s.stateChange(ctx, u.step, u.key.Step, u.key.Item, out); err != nil {
		return u.failed(ctx, err)
	}
	return u.save(ctx, p)
}

// failed stores the failure of a step. An error that is none of the step's goes back:
// the activity is repeated.
func (u *unit) failed(ctx context.Context, err error) (PageResult, error) {
	var bad *engine.StepError
	if !errors.As(err, &bad) {
		if u.s.isEnded() {
			return PageResult{Outcome: Gone}, nil
		}
		return PageResult{}, err
	}
	return u.save(ctx, &stepwell.Page{Error: u.s.public(bad.Message), Done: true})
}

// save stores the page, and does not give up while the store is away: what was fetched
// is not asked for again. When the blob store does not take its body, the step fails.
func (u *unit) save(ctx context.Context, p *stepwell.Page) (PageResult, error) {
	res, err := u.keep(ctx, p)
	var bad *engine.StepError
	if errors.As(err, &bad) && p.Error == "" {
		return u.failed(ctx, bad)
	}
	return res, err
}

func (u *unit) keep(ctx context.Context, p *stepwell.Page) (PageResult, error) {
	p.Step, p.Item, p.Page, p.Bytes = u.key.Step, u.key.Item, u.key.Page, int64(len(p.Body))
	if u.endsRun(p) {
		if res, ended, err := u.saveAndFinish(ctx, p); ended || err != nil {
			return res, err
		}
	}
	began := time.Now()
	var saved bool
	fault.Point(fault.PageUnsaved)
	err := u.a.persist(ctx, u.s, func() (err error) {
		began = time.Now()
		if saved, err = u.a.Store.SavePage(ctx, u.key, p, u.claimed); err == nil {
			err = fault.Error(fault.PageSaved)
		}
		return err
	})
	if err != nil {
		return PageResult{}, err
	}
	fault.Point(fault.PageSaved)
	if !saved {
		return u.lostRace(ctx)
	}
	u.s.running(began)
	u.pull.at = began
	if u.def.IsTransform() {
		u.s.stateSaved(u.key.Step, u.key.Item, p.State)
	}
	if len(p.Files) > 0 {
		u.s.hasFiles.Store(true)
	}
	if p.Done {
		u.keepValue(p)
	}
	return resultOf(p), u.pull.advance(p)
}

// lostRace reads back what stands in place of a page that was not saved.
func (u *unit) lostRace(ctx context.Context) (PageResult, error) {
	head, err := u.a.Store.PageHead(ctx, u.key)
	if err != nil {
		return PageResult{}, err
	}
	if running, err := u.s.checkNow(ctx); err != nil || !running {
		return PageResult{Outcome: Gone}, err
	}
	if head == nil {
		return PageResult{}, fmt.Errorf("page %d was not saved, though the run is running", u.key.Page)
	}
	u.a.Metrics.AskedTwice()
	return resultOf(head), u.pull.advance(head)
}

// keepValue caches the value of a step of one page: the next step mostly asks for it.
func (u *unit) keepValue(p *stepwell.Page) {
	if p.Page == 1 && (u.def.DataSelector == "" || !u.s.loops(u.key.Step)) {
		u.s.keep(u.key.Step, results.Plain(u.current, p.Body, p.Error))
	}
}

// pageState is the state with which a page is built: a copy, since Build completes it.
func (u *unit) pageState() *engine.PageState {
	if !u.def.Paginated() {
		return nil
	}
	st := u.pull.known.Load().state
	return &st
}

// pageOf makes the stored page of an outcome.
func (u *unit) pageOf(out *engine.PageOutcome) (*stepwell.Page, error) {
	p := &stepwell.Page{Body: out.Data, Records: out.Count, Cursor: out.Cursor, Done: out.Done, EndedBy: out.EndedBy}
	if out.File != nil {
		u.keepFile(p, out.File)
	}
	if out.Done {
		return p, nil
	}
	var err error
	p.Next, err = json.Marshal(out.Next)
	return p, err
}
