package service

import (
	"context"
	"slices"

	"stepwell"
	"stepwell/api"
	"stepwell/store"
)

// reuse says with which stored results a rerun begins: those of every step before the
// one that it begins at and, when the caller left that to us, the pages and items inside.
// Steps are found again by their ids: another version may have them elsewhere.
func (s *Service) reuse(ctx context.Context, n api.NewRun) (store.Reuse, error) {
	var out store.Reuse
	of, steps := n.Rerun.Of, n.Tool.Steps
	rows, err := s.Store.StepRows(ctx, of.OrgID, of.ID)
	if err != nil {
		return out, err
	}
	ended := make([]endedStep, len(steps))
	from := -1
	for i := range steps {
		ended[i] = findEnded(of.Tool, rows, &steps[i])
		if from < 0 && (n.Rerun.FromStep == steps[i].ID || n.Rerun.FromStep == "" && !ended[i].succeeded()) {
			from = i
		}
	}
	if from < 0 { // only the output is to be made again
		from = len(steps)
	}
	if n.Rerun.NewInputs && from > 0 {
		return out, stepwell.Invalid("invalid_rerun", "New 'inputs' need a rerun from the first step: give 'fromStep' with its id")
	}
	for i := range from {
		if !ended[i].reusable() {
			return out, stepwell.Invalid("invalid_rerun", "'fromStep' skips the step '%s', which has no whole results to reuse: give that step, or one before it", steps[i].ID)
		}
		out.Steps = append(out.Steps, store.ReusedStep{From: ended[i].place, To: i, Selection: true})
	}
	if from < len(steps) && n.Rerun.FromStep == "" && !n.Rerun.NewInputs && ended[from].resumable() {
		last := &ended[from]
		// A selection of one item is made again unless a page of it is there: it may stand
		// for a selector that failed.
		chosen := last.row.Loop || last.row.Pages > last.row.Failed
		out.Steps = append(out.Steps, store.ReusedStep{From: last.place, To: from, Selection: chosen, Part: true})
	}
	return out, nil
}

// endedStep is a step of the version to run, and what the ended run stored of it.
type endedStep struct {
	place int // in the ended run; -1 when it had no such step
	old   *stepwell.Step
	def   *stepwell.Step
	row   *store.StepRow // nil when nothing is stored
}

func findEnded(t *stepwell.Tool, rows []store.StepRow, def *stepwell.Step) endedStep {
	e := endedStep{def: def, place: slices.IndexFunc(t.Steps, func(old stepwell.Step) bool { return old.ID == def.ID })}
	if e.place < 0 {
		return e
	}
	e.old = &t.Steps[e.place]
	if i := slices.IndexFunc(rows, func(r store.StepRow) bool { return r.Step == e.place }); i >= 0 {
		e.row = &rows[i]
	}
	return e
}

// comparable reports whether what is stored means the same under the version to run: of
// a request or a transform, of pages of the same kind, of a step that selects or not.
func (e *endedStep) comparable() bool {
	return e.row != nil && e.old.IsTransform() == e.def.IsTransform() && pagination(e.old) == pagination(e.def) &&
		(e.old.DataSelector == "") == (e.def.DataSelector == "")
}

func pagination(s *stepwell.Step) string {
	if !s.Paginated() {
		return ""
	}
	return s.Config.Pagination.Type
}

// reusable reports whether the whole results are stored: of every item, and without a
// failure that would have ended the run.
func (e *endedStep) reusable() bool {
	if !e.comparable() || e.row.Failed > 0 && !e.old.ContinueOnFailure() {
		return false
	}
	want := 1
	if e.old.DataSelector != "" {
		want = e.row.Total
	}
	return e.row.Items == want && (want == 0 || e.row.Whole)
}

// succeeded reports whether the row of the step in stepResults says so.
func (e *endedStep) succeeded() bool {
	return e.reusable() && (e.row.Failed == 0 || e.row.Loop)
}

// resumable reports whether the pages and items inside can be gone on with.
func (e *endedStep) resumable() bool {
	return e.comparable() && e.old.DataSelector == e.def.DataSelector
}
