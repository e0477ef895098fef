package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// WorkerLease is how long a worker process counts as alive after its last
// renewal. It is shorter than the 5 s after which Temporal repeats an activity.
const WorkerLease = 4 * time.Second

const deleteClaim = `DELETE FROM claims WHERE org_id = $1 AND run_id = $2 AND step = $3 AND item = $4 AND page = $5`

// RenewWorker extends the lease of a worker process, or begins it, and forgets
// workers that have been gone for a day.
func (s *Store) RenewWorker(ctx context.Context, worker string) error {
	_, err := s.pool.Exec(ctx, `
WITH gone AS (DELETE FROM workers WHERE lease_until < clock_timestamp() - interval '1 day' AND id <> $1)
INSERT INTO workers (id, lease_until) VALUES ($1, clock_timestamp() + $2)
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`, worker, WorkerLease)
	return s.wrap("renew worker", err)
}

// EndWorker ends the lease of a worker process that stops.
func (s *Store) EndWorker(ctx context.Context, worker string) error {
	_, err := s.pool.Exec(ctx, `UPDATE workers SET lease_until = clock_timestamp() WHERE id = $1`, worker)
	return s.wrap("end worker", err)
}

// LiveWorkers lists the worker processes whose lease is valid.
func (s *Store) LiveWorkers(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT id FROM workers WHERE lease_until > clock_timestamp()`)
	if err != nil {
		return nil, s.wrap("list workers", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return out, s.wrap("list workers", err)
}

// TakeClaim claims a page for a worker while the run is running.
//
//	mine      the claim is the worker's now; running is true
//	other     somebody else's claim stands (alive or not), or an older one of the worker itself
//	running   false: the run has ended, nothing is claimed
//
// A dead worker's claim is taken over only with takeOver.
func (s *Store) TakeClaim(ctx context.Context, k stepwell.PageKey, worker string, effect, takeOver bool) (mine bool, other *stepwell.Claim, running bool, err error) {
	tag, err := s.pool.Exec(ctx, `
INSERT INTO claims (org_id, run_id, step, item, page, worker, effect)
SELECT r.org_id, r.id, $3, $4, $5, $6, $7 FROM runs r WHERE r.org_id = $1 AND r.id = $2 AND r.status = 'running'
ON CONFLICT (org_id, run_id, step, item, page) DO UPDATE SET worker = excluded.worker, claimed_at = clock_timestamp()
WHERE $8 AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = claims.worker AND w.id <> excluded.worker AND w.lease_until > clock_timestamp())`,
		k.Org, k.Run, k.Step, k.Item, k.Page, worker, effect, takeOver)
	if err != nil {
		return false, nil, false, s.wrap("claim page", err)
	}
	if tag.RowsAffected() == 1 {
		return true, nil, true, nil
	}
	other, running, err = s.ReadClaim(ctx, k)
	return false, other, running, err
}

// ReadClaim reads the claim of a page, nil when there is none, and whether the run is running.
func (s *Store) ReadClaim(ctx context.Context, k stepwell.PageKey) (c *stepwell.Claim, running bool, err error) {
	var worker *string
	var effect, alive *bool
	err = s.pool.QueryRow(ctx, `
SELECT r.status = 'running', c.worker, c.effect,
       EXISTS (SELECT 1 FROM workers w WHERE w.id = c.worker AND w.lease_until > clock_timestamp())
FROM runs r LEFT JOIN claims c ON c.org_id = r.org_id AND c.run_id = r.id AND c.step = $3 AND c.item = $4 AND c.page = $5
WHERE r.org_id = $1 AND r.id = $2`, k.Org, k.Run, k.Step, k.Item, k.Page).Scan(&running, &worker, &effect, &alive)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, s.wrap("read claim", err)
	}
	if worker == nil {
		return nil, running, nil
	}
	return &stepwell.Claim{Worker: *worker, Effect: *effect, Alive: *alive}, running, nil
}

// ReleaseClaim forgets the claim of a page, of which it is known that nothing was done.
func (s *Store) ReleaseClaim(ctx context.Context, k stepwell.PageKey, worker string) error {
	_, err := s.pool.Exec(ctx, deleteClaim+` AND worker = $6`, k.Org, k.Run, k.Step, k.Item, k.Page, worker)
	return s.wrap("release claim", err)
}
