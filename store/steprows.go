package store

import (
	"context"

	"stepwell"
)

// StepRow is the summary of a step with what its selection says.
type StepRow struct {
	stepwell.StepSummary
	Loop    bool
	Total   int  // items of a loop
	Selects bool // the step has a dataSelector; set by the caller
}

// StepRows gives one row for each step of a run that stored pages or a selection.
func (s *Store) StepRows(ctx context.Context, org, run string) ([]StepRow, error) {
	sums, err := s.Summaries(ctx, org, run)
	if err != nil {
		return nil, err
	}
	byStep, last := map[int]*StepRow{}, -1
	for _, sum := range sums {
		byStep[sum.Step] = &StepRow{StepSummary: sum}
		last = max(last, sum.Step)
	}
	rows, err := s.pool.Query(ctx, `SELECT step, looped, total FROM selections WHERE org_id = $1 AND run_id = $2 AND chunk = 0`, org, run)
	if err != nil {
		return nil, s.wrap("read selections", err)
	}
	defer rows.Close()
	for rows.Next() {
		var step, total int
		var looped bool
		if err := rows.Scan(&step, &looped, &total); err != nil {
			return nil, s.wrap("read selections", err)
		}
		if byStep[step] == nil && !looped {
			continue // selected, but nothing came of it yet
		}
		if byStep[step] == nil {
			byStep[step] = &StepRow{StepSummary: stepwell.StepSummary{Step: step}}
		}
		byStep[step].Loop, byStep[step].Total = looped, total
		last = max(last, step)
	}
	var out []StepRow
	for step := range last + 1 {
		if row := byStep[step]; row != nil {
			out = append(out, *row)
		}
	}
	return out, s.wrap("read selections", rows.Err())
}
