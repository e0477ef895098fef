package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// ChainedRun reads the run that follows a run of a chain; nil when there is none.
func (s *Store) ChainedRun(ctx context.Context, org, parent string) (*stepwell.Run, error) {
	var r stepwell.Run
	err := scanRun(s.pool.QueryRow(ctx, `SELECT `+runColumns+` FROM runs WHERE org_id = $1 AND id = $2 AND parent_run_id = $3`,
		org, stepwell.ChainedRunID(parent), parent), &r)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &r, s.wrap("read chained run", err)
}
