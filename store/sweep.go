package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// RunRef names a run.
type RunRef = stepwell.RunRef

// MarkDispatched records that the workflows of runs are known to have started.
// It need not survive a crash: the sweeper starts them again, which changes nothing.
func (s *Store) MarkDispatched(ctx context.Context, runs []RunRef) error {
	orgs, ids := split(runs)
	return s.inTx(ctx, "mark runs", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE runs SET dispatched = true
			FROM unnest($1::text[], $2::text[]) AS x (org, id)
			WHERE runs.org_id = x.org AND runs.id = x.id AND status = 'running' AND NOT dispatched`, orgs, ids)
		return err
	})
}

// Advisory locks under which one process at a time does something for all.
const (
	sweepLock = 0x7377656570 // "sweep"
	bulkLock  = 0x62756c6b   // "bulk"
)

// Sweep runs f in the one process that holds the sweeper's lock; swept is false
// when another holds it.
func (s *Store) Sweep(ctx context.Context, f func(ctx context.Context) error) (swept bool, err error) {
	return s.alone(ctx, "sweep", sweepLock, f)
}

// WorkBulks runs f in the one process that works at bulk operations; worked is false when
// another does.
func (s *Store) WorkBulks(ctx context.Context, f func(ctx context.Context) error) (worked bool, err error) {
	return s.alone(ctx, "bulk", bulkLock, f)
}

func (s *Store) alone(ctx context.Context, what string, lock int64, f func(ctx context.Context) error) (locked bool, err error) {
	err = s.inTx(ctx, what, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, lock).Scan(&locked); err != nil || !locked {
			return err
		}
		return f(ctx)
	})
	return locked, err
}

// Undispatched lists running runs, older than age, whose workflow is not known to
// have started, oldest first.
func (s *Store) Undispatched(ctx context.Context, age time.Duration, limit int) ([]RunRef, error) {
	return s.runRefs(ctx, `SELECT org_id, id FROM runs
		WHERE status = 'running' AND NOT dispatched AND started_at < clock_timestamp() - $1::interval ORDER BY started_at LIMIT $2`, age, limit)
}

// maxCounted is where OpenRuns stops counting.
const maxCounted = 100_000

// OpenRuns counts running runs, up to 100,000, and gives the age of the oldest whose
// workflow is not known to have started, 0 without one.
func (s *Store) OpenRuns(ctx context.Context) (running int, oldestUnstarted time.Duration, err error) {
	err = s.pool.QueryRow(ctx, `
SELECT (SELECT count(*) FROM (SELECT FROM runs WHERE status = 'running' LIMIT $1) r),
       coalesce((SELECT clock_timestamp() - started_at FROM runs WHERE status = 'running' AND NOT dispatched ORDER BY started_at LIMIT 1), '0')`,
		maxCounted).Scan(&running, &oldestUnstarted)
	return running, max(oldestUnstarted, 0), s.wrap("count runs", err)
}

// Stale lists running runs whose workflow had started and that were not looked at for
// age, longest first.
func (s *Store) Stale(ctx context.Context, age time.Duration, limit int) ([]RunRef, error) {
	return s.runRefs(ctx, `SELECT org_id, id FROM runs
		WHERE status = 'running' AND dispatched AND coalesce(checked_at, started_at) < clock_timestamp() - $1::interval
		ORDER BY coalesce(checked_at, started_at) LIMIT $2`, age, limit)
}

// unsettledFor is how long after its end an aborted run is looked after: after it Temporal
// has forgotten a workflow that has closed.
const unsettledFor = 72 * time.Hour

// TakeUnsettled gives aborted runs whose workflow is not known to have ended, those first
// that were not looked at for longest, and notes that they are looked at now.
func (s *Store) TakeUnsettled(ctx context.Context, limit int) ([]RunRef, error) {
	return s.runRefs(ctx, `
WITH next AS (SELECT org_id, id FROM runs WHERE status = 'aborted' AND NOT settled AND completed_at > clock_timestamp() - $2::interval
              ORDER BY coalesce(checked_at, completed_at) LIMIT $1)
UPDATE runs SET checked_at = clock_timestamp() FROM next
WHERE runs.org_id = next.org_id AND runs.id = next.id AND NOT settled RETURNING runs.org_id, runs.id`, limit, unsettledFor)
}

// Settle records that the workflows of aborted runs have ended.
func (s *Store) Settle(ctx context.Context, runs []RunRef) error {
	orgs, ids := split(runs)
	_, err := s.pool.Exec(ctx, `UPDATE runs SET settled = true FROM unnest($1::text[], $2::text[]) AS x (org, id)
		WHERE runs.org_id = x.org AND runs.id = x.id AND status = 'aborted'`, orgs, ids)
	return s.wrap("settle runs", err)
}

func (s *Store) runRefs(ctx context.Context, sql string, args ...any) ([]RunRef, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, s.wrap("sweep", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RunRef])
	return out, s.wrap("sweep", err)
}

// Checked records that a run was looked at. progressed reports whether it stored a
// page within age.
func (s *Store) Checked(ctx context.Context, r RunRef, age time.Duration) (progressed bool, err error) {
	err = s.pool.QueryRow(ctx, `
WITH seen AS (UPDATE runs SET checked_at = clock_timestamp() WHERE org_id = $1 AND id = $2 AND status = 'running')
SELECT EXISTS (SELECT 1 FROM pages WHERE org_id = $1 AND run_id = $2 AND created_at > clock_timestamp() - $3::interval)
    OR EXISTS (SELECT 1 FROM waits WHERE org_id = $1 AND run_id = $2 AND wait_until > clock_timestamp())`, r.Org, r.Run, age).Scan(&progressed)
	return progressed, s.wrap("sweep", err)
}

func split(runs []RunRef) (orgs, ids []string) {
	for _, r := range runs {
		orgs, ids = append(orgs, r.Org), append(ids, r.Run)
	}
	return orgs, ids
}
