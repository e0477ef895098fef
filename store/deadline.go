package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// OverdueRun is a running run past its deadline, which it had so long after its start.
type OverdueRun struct {
	RunRef
	Deadline time.Duration
}

// Overdue lists running runs past their deadline, those that passed it first before others, at most limit. A run has the deadline
// that was configured when it was recorded; one of a release that knew none has what is
// configured now.
func (s *Store) Overdue(ctx context.Context, limit int) ([]OverdueRun, error) {
	rows, err := s.pool.Query(ctx, `
SELECT org_id, id, coalesce(deadline - started_at, $2::interval) FROM runs
WHERE status = 'running' AND (deadline < clock_timestamp() OR deadline IS NULL AND started_at < clock_timestamp() - $2::interval)
ORDER BY deadline LIMIT $1`, limit, s.deadline())
	if err != nil {
		return nil, s.wrap("list overdue runs", err)
	}
	var out []OverdueRun
	var o OverdueRun
	_, err = pgx.ForEachRow(rows, []any{&o.Org, &o.Run, &o.Deadline}, func() error {
		out = append(out, o)
		return nil
	})
	return out, s.wrap("list overdue runs", err)
}

// deadline is the configured deadline as a parameter; nil without one.
func (s *Store) deadline() *time.Duration {
	if s.runDeadline == 0 {
		return nil
	}
	return &s.runDeadline
}
