package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/fault"
	"stepwell/results"
)

// exactSize is up to how many stored bytes of a merged result its exact size is
// computed; what is larger is larger than any inline limit.
const exactSize = 2 << 20

// finish ends a run. Whatever comes of it, the guarded update decides.
func (a *Activities) finish(ctx context.Context, req FinishRequest, local bool) (FinishResult, error) {
	res, err := a.finishOnce(ctx, req, local)
	if err == nil && res.Outcome == Gone && req.Chains {
		res.Next, err = a.chained(ctx, req) // whoever finished the run may have died before the next one started
	}
	return res, err
}

func (a *Activities) finishOnce(ctx context.Context, req FinishRequest, local bool) (FinishResult, error) {
	f := stepwell.Finish{Org: req.Org, Run: req.Run, Status: stepwell.RunStatus(req.Status), Error: req.Reason}
	if f.Error != "" { // not read first: that it cannot be read may be the reason
		s := a.sessions.get(runKey{req.Org, req.Run})
		defer s.release()
		return a.end(ctx, s, f)
	}
	s, err := a.sessions.open(ctx, req.Org, req.Run)
	if err != nil {
		return FinishResult{}, err
	}
	defer s.release()
	if s.isEnded() {
		return FinishResult{Outcome: Gone}, nil
	}
	switch {
	case f.Status == stepwell.RunSuccess:
		err = a.whole(ctx, s)
		if err == nil {
			f.Result, err = a.output(ctx, s)
		}
		if err == nil {
			err = s.stateWrite(ctx, &f)
		}
		if err == nil {
			err = a.chain(ctx, s, &f)
		}
		var bad *engine.StepError
		if errors.As(err, &bad) {
			if local {
				return FinishResult{Outcome: Pending}, nil // only a regular activity fails a run
			}
			f, err = stepwell.Finish{Org: f.Org, Run: f.Run, Status: stepwell.RunFailed, Error: s.public(bad.Message)}, nil
		}
	default:
		f.Error, err = a.stepError(ctx, s, req.Step)
	}
	if err != nil {
		return FinishResult{}, err
	}
	res, err := a.end(ctx, s, f)
	var bad *engine.StepError
	if !errors.As(err, &bad) {
		return res, err
	}
	if local {
		return FinishResult{Outcome: Pending}, nil
	}
	return a.end(ctx, s, stepwell.Finish{Org: f.Org, Run: f.Run, Status: stepwell.RunFailed, Error: s.public(bad.Message)})
}

// end writes the final status and tells this process about it.
func (a *Activities) end(ctx context.Context, s *session, f stepwell.Finish) (FinishResult, error) {
	run := s.known(f)
	f.Alone = run.ToolID != "" && run.Options.WebhookURL == "" && f.State.Empty()
	var ended stepwell.Ended
	fault.Point(fault.FinishUnsaved)
	err := a.persist(ctx, s, func() (err error) {
		if ended, err = a.Store.FinishRun(ctx, f); err == nil {
			err = fault.Error(fault.FinishSaved)
		}
		return err
	})
	if err != nil {
		return FinishResult{}, err
	}
	fault.Point(fault.FinishSaved)
	if !ended.Finished && f.Last != nil {
		return FinishResult{Outcome: Done}, nil // the page may be stored by another: see SavePage
	}
	if !ended.Finished {
		s.finish()
		return FinishResult{Outcome: Gone}, nil
	}
	if len(ended.Deliveries) > 0 {
		a.Deliver(f.Org, ended.Deliveries)
	}
	run.StartedAt, run.CompletedAt = ended.StartedAt, ended.CompletedAt
	run.Status, run.Error, run.Warnings = f.Status, f.Error, ended.Warnings
	s.report(&run, f)
	a.observeEnd(&run)
	a.Ended(&run)
	fault.Point(fault.FinishTold)
	s.finish()
	res := FinishResult{Outcome: Finished}
	if ended.Chained {
		res.Next, err = a.nextRun(ctx, &f.Chain.Run)
	}
	return res, err
}

// known is the run as this process knows it.
func (s *session) known(f stepwell.Finish) stepwell.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return stepwell.Run{OrgID: f.Org, ID: f.Run}
	}
	return *s.run
}

// report adds data and step results to a finished run when they are all at hand.
func (s *session) report(run *stepwell.Run, f stepwell.Finish) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	run.Tool = s.tool.def
	if s.hasFiles.Load() || f.Result != nil && len(f.Result.Files) > 0 {
		return // the store knows them
	}
	rows := []stepwell.StepResult{}
	for i := range s.tool.def.Steps[:s.reached(f)] {
		v, p := s.values[i], s.pulls[pullKey{i, 0}]
		if v == nil || v.Loop || p == nil {
			return
		}
		k := p.known.Load()
		row := stepwell.StepResult{StepID: s.tool.def.Steps[i].ID, Success: v.Success, Error: k.last.Error}
		if s.tool.def.Steps[i].Paginated() {
			row.Pages, row.Items, row.EndedBy = k.high, k.records, k.last.EndedBy
			if row.Error != "" {
				row.Pages-- // a failure is stored as a page of its own
			}
		}
		row.Data = results.RowData(s.tool.filters(), v)
		rows = append(rows, row)
	}
	if f.Result != nil {
		run.DataSize, run.Data = f.Result.Bytes, f.Result.Body
		if f.Result.Step != nil {
			run.Data = s.values[*f.Result.Step].Data
		}
	}
	run.StepResults = rows
}

// filters are the tool's response filters; those of a broken one are not known, so its
// rows show nothing that they could have hidden: it stored nothing.
func (t *tool) filters() *engine.Filters {
	if t.broken != nil {
		return &engine.Filters{}
	}
	return t.compiled.Filters
}

// reached is how many steps a run that ends has begun, as this process knows it; a run
// that failed ends at the first step without continue that failed.
func (s *session) reached(f stepwell.Finish) int {
	if f.Result != nil {
		return len(s.tool.def.Steps)
	}
	for i := range s.tool.def.Steps {
		p := s.pulls[pullKey{i, 0}]
		if p != nil && p.known.Load().last.Error != "" && !s.tool.def.Steps[i].ContinueOnFailure() {
			return i + 1
		}
	}
	return len(s.tool.def.Steps)
}

// whole checks that the stored pages of every step are all there: a success is complete.
func (a *Activities) whole(ctx context.Context, s *session) error {
	if s.sawAll() {
		return nil
	}
	sums, err := a.Store.Summaries(ctx, s.key.org, s.key.run)
	if err != nil {
		return err
	}
	byStep := map[int]stepwell.StepSummary{}
	for _, sum := range sums {
		byStep[sum.Step] = sum
	}
	for i := range s.tool.def.Steps {
		want := 1
		if s.tool.def.Steps[i].DataSelector != "" {
			sel, err := a.Store.Selection(ctx, s.key.org, s.key.run, i)
			if err != nil {
				return err
			}
			if sel == nil {
				return fmt.Errorf("step %d has no stored selection", i)
			}
			want = sel.Total
		}
		if sum := byStep[i]; sum.Items != want || want > 0 && !sum.Whole {
			return fmt.Errorf("step %d is not whole: %d of %d items are stored", i, sum.Items, want)
		}
	}
	return nil
}

// sawAll reports whether this process itself saw every step end.
func (s *session) sawAll() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.tool.def.Steps {
		p := s.pulls[pullKey{i, 0}]
		if p == nil || !p.known.Load().last.Done || s.tool.def.Steps[i].DataSelector != "" {
			return false
		}
	}
	return true
}

// output makes the data of a successful run: the outputTransform's value, else the last
// successful step's, checked against the outputSchema and filtered.
func (a *Activities) output(ctx context.Context, s *session) (*stepwell.Result, error) {
	if s.tool.broken != nil {
		return nil, s.tool.broken
	}
	t := s.tool.compiled
	if t.Output != nil {
		scope, err := s.scope(ctx, len(s.tool.def.Steps), 0, nil, false)
		if err != nil {
			return nil, err
		}
		out, err := t.Output.Transform(s.ctx, a.Evaluator, scope)
		a.console(s, stepwell.PageKey{Org: s.key.org, Run: s.key.run, Step: len(s.tool.def.Steps)}, out.Console)
		if err != nil {
			return nil, err
		}
		files, err := t.Output.OutputFiles(out.Files)
		if err != nil {
			return nil, err
		}
		result, err := a.filtered(t, out.Data)
		if err == nil {
			for i := range files {
				files[i].Key = engine.OutputFileKey(i)
			}
			result.Files = files
			result.State, err = s.stateChange(ctx, t.Output, len(s.tool.def.Steps), 0, out)
		}
		return result, err
	}
	for i := len(s.tool.def.Steps) - 1; i >= 0; i-- {
		if plain := t.OutputSchema == nil && t.Filters.Empty(); plain {
			if r, err := a.reference(ctx, s, i); r != nil || err != nil {
				return r, err
			}
			continue
		}
		v, err := s.value(ctx, i)
		if err != nil {
			return nil, err
		}
		if v != nil && v.Success {
			return a.filtered(t, v.Data)
		}
	}
	return a.filtered(t, json.RawMessage("null"))
}

// reference makes a result that is the stored pages of a step; nil when the step failed.
func (a *Activities) reference(ctx context.Context, s *session, step int) (*stepwell.Result, error) {
	size, failed, known := s.size(step)
	if !known {
		sums, err := a.Store.Summaries(ctx, s.key.org, s.key.run)
		if err != nil {
			return nil, err
		}
		for _, sum := range sums {
			if sum.Step == step {
				size, failed = sum.Bytes, sum.Failed > 0 && sum.Failed == sum.Items
			}
		}
	}
	if failed && s.tool.def.Steps[step].DataSelector != "" {
		sel, err := a.Store.Selection(ctx, s.key.org, s.key.run, step)
		if err != nil {
			return nil, err
		}
		failed = sel == nil || !sel.Loop // a loop's data is its envelopes, of failed items too
	}
	if failed {
		return nil, nil
	}
	if size <= exactSize {
		v, err := s.value(ctx, step)
		if err != nil {
			return nil, err
		}
		if v == nil {
			return nil, fmt.Errorf("step %d has no stored value", step)
		}
		if !v.Success {
			return nil, nil
		}
		size = int64(len(v.Data))
	}
	return &stepwell.Result{Step: &step, Bytes: size}, nil
}

// size gives the stored bytes of a plain step that this process saw end.
func (s *session) size(step int) (bytes int64, failed, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pulls[pullKey{step, 0}]
	if p == nil || !p.known.Load().last.Done || s.tool.def.Steps[step].DataSelector != "" {
		return 0, false, false
	}
	return p.known.Load().bytes, p.known.Load().last.Error != "", true
}

// filtered checks and filters data and makes it a stored result.
func (a *Activities) filtered(t *engine.Tool, data json.RawMessage) (*stepwell.Result, error) {
	if t.OutputSchema != nil {
		if problems := t.OutputSchema.Validate(data); len(problems) > 0 {
			return nil, &engine.StepError{Message: "The output does not match outputSchema: " + problemsText(problems)}
		}
	}
	data, err := t.Filters.Apply(data)
	if err != nil {
		var refused *engine.FilterError
		if errors.As(err, &refused) {
			return nil, &engine.StepError{Message: refused.Error()}
		}
		return nil, err
	}
	return &stepwell.Result{Body: data, Bytes: int64(len(data))}, nil
}

// stepError reads the stored error of a failed step.
func (a *Activities) stepError(ctx context.Context, s *session, step int) (string, error) {
	if p := s.failedPull(step); p != "" {
		return p, nil
	}
	sums, err := a.Store.Summaries(ctx, s.key.org, s.key.run)
	if err != nil {
		return "", err
	}
	for _, sum := range sums {
		if sum.Step == step && sum.FirstError != "" {
			return sum.FirstError, nil
		}
	}
	return "", fmt.Errorf("step %d failed without a stored error", step)
}

func (s *session) failedPull(step int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pulls[pullKey{step, 0}]; p != nil {
		return p.known.Load().last.Error
	}
	return ""
}

// endsRun reports whether a page is the last of a run that can be finished with it, in
// one transaction: a plain success whose data is at hand.
func (u *unit) endsRun(p *stepwell.Page) bool {
	_, chains := u.s.run.Options.ChainTarget() // the finish alone makes the next run
	if chains || u.s.tool.writes {
		return false
	}
	return u.req.Last && p.Done && p.Page == 1 && p.Error == "" && len(p.Files) == 0 && !u.claimed && u.def.DataSelector == "" && u.key.Step == len(u.s.tool.def.Steps)-1
}

// saveAndFinish stores the last page and ends the run with it. ended is false when the
// run does not end well: then the page is stored alone and the finish says why.
func (u *unit) saveAndFinish(ctx context.Context, p *stepwell.Page) (res PageResult, ended bool, err error) {
	if !u.s.keep(u.key.Step, results.Plain(u.current, p.Body, "")) {
		return res, false, nil
	}
	before := u.pull.known.Load()
	u.pull.known.Store(&known{high: 1, last: *p, records: p.Records, bytes: p.Bytes})
	if res, ended, err = u.finishNow(ctx, p); !ended {
		u.pull.known.Store(before)
		u.s.unkeep(u.key.Step) // another's page may stand in its place
	}
	return res, ended, err
}

func (u *unit) finishNow(ctx context.Context, p *stepwell.Page) (res PageResult, ended bool, err error) {
	if !u.s.sawAll() {
		return res, false, nil
	}
	result, err := u.a.output(ctx, u.s)
	if err != nil {
		return res, false, nil // the finish meets it again and reports it
	}
	f := stepwell.Finish{Org: u.key.Org, Run: u.key.Run, Status: stepwell.RunSuccess, Result: result, Last: p, LastKey: u.key}
	if err := u.s.stateWrite(ctx, &f); err != nil {
		return res, false, nil
	}
	done, err := u.a.end(ctx, u.s, f)
	return PageResult{Outcome: done.Outcome}, err == nil && done.Outcome != Done, err
}

// problemsText lists violations of a schema in one line.
func problemsText(problems []engine.Problem) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}
