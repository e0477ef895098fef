package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// maxBulkCount is where the count of the runs for a bulk operation stops.
const maxBulkCount = 1_000_000

// maxBulkErrors is how many errors of a bulk operation are shown.
const maxBulkErrors = 100

// bulkConditions selects the runs of a query to which something of a kind can be done.
func (s *Store) bulkConditions(ctx context.Context, org string, kind stepwell.BulkKind, q RunQuery) (conditions, error) {
	if q.SystemID != "" {
		if err := s.resolveSystem(ctx, org, &q); err != nil {
			return conditions{}, err
		}
	}
	c := q.where(org)
	if kind == stepwell.BulkCancel {
		c.texts = append(c.texts, "status = 'running'")
	} else {
		c.texts = append(c.texts, "status IN ('failed', 'aborted')")
	}
	return c, nil
}

// CountBulk counts the runs that a bulk operation would cover, up to a million.
func (s *Store) CountBulk(ctx context.Context, org string, kind stepwell.BulkKind, q RunQuery) (n int, err error) {
	c, err := s.bulkConditions(ctx, org, kind, q)
	if err != nil {
		return 0, err
	}
	err = s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM runs WHERE %s LIMIT %d) AS r`,
		strings.Join(c.texts, " AND "), maxBulkCount), c.args...).Scan(&n)
	return n, s.wrap("count runs", err)
}

// InsertBulk records a bulk operation with the runs of a query, oldest first. It sets
// Total and the times. A taken id is KindConflict, more than stepwell.MaxBulk runs are
// KindInvalid: then nothing is recorded.
func (s *Store) InsertBulk(ctx context.Context, op *stepwell.BulkOperation, q RunQuery) error {
	c, err := s.bulkConditions(ctx, op.OrgID, op.Kind, q)
	if err != nil {
		return err
	}
	caller, err := json.Marshal(op.Caller)
	if err != nil {
		return err
	}
	return s.inTx(ctx, "record bulk operation", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO bulk_operations (org_id, id, kind, caller, total) VALUES ($1, $2, $3, $4, 0)
			ON CONFLICT (org_id, id) DO NOTHING`, op.OrgID, op.ID, string(op.Kind), caller)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return stepwell.Errorf(stepwell.KindConflict, "operation_exists", "An operation with the id '%s' already exists", op.ID)
		}
		args := append(c.args, op.ID)
		tag, err = tx.Exec(ctx, fmt.Sprintf(`INSERT INTO bulk_runs (org_id, operation_id, place, run_id)
			SELECT org_id, $%d, row_number() OVER (ORDER BY started_at, id), id FROM runs WHERE %s ORDER BY started_at, id LIMIT %d`,
			len(args), strings.Join(c.texts, " AND "), stepwell.MaxBulk+1), args...)
		if err != nil {
			return err
		}
		if op.Total = int(tag.RowsAffected()); op.Total > stepwell.MaxBulk {
			return stepwell.Invalid("too_many_runs", "The filter selects more than %d runs: narrow it", stepwell.MaxBulk)
		}
		var completed *time.Time
		err = tx.QueryRow(ctx, `UPDATE bulk_operations SET total = $3, completed_at = CASE WHEN $3 = 0 THEN clock_timestamp() END
			WHERE org_id = $1 AND id = $2 RETURNING created_at, completed_at`, op.OrgID, op.ID, op.Total).Scan(&op.CreatedAt, &completed)
		if completed != nil {
			op.CompletedAt = *completed
		}
		return err
	})
}

const bulkColumns = `org_id, id, kind, caller, total, created_at, completed_at`

func scanBulk(row pgx.Row) (*stepwell.BulkOperation, error) {
	var op stepwell.BulkOperation
	var caller []byte
	var completed *time.Time
	if err := row.Scan(&op.OrgID, &op.ID, &op.Kind, &caller, &op.Total, &op.CreatedAt, &completed); err != nil {
		return nil, err
	}
	if completed != nil {
		op.CompletedAt = *completed
	}
	return &op, json.Unmarshal(caller, &op.Caller)
}

// Bulk reads a bulk operation with its progress; KindNotFound when there is none.
func (s *Store) Bulk(ctx context.Context, org, id string) (*stepwell.BulkOperation, error) {
	op, err := scanBulk(s.pool.QueryRow(ctx, `SELECT `+bulkColumns+` FROM bulk_operations WHERE org_id = $1 AND id = $2`, org, id))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("Operation")
	}
	if err != nil {
		return nil, s.wrap("read bulk operation", err)
	}
	var b pgx.Batch
	b.Queue(`SELECT count(*) FILTER (WHERE outcome = 'done'), count(*) FILTER (WHERE outcome = 'skipped'), count(*) FILTER (WHERE outcome = 'failed')
		FROM bulk_runs WHERE org_id = $1 AND operation_id = $2`, org, id).
		QueryRow(func(row pgx.Row) error { return row.Scan(&op.Done, &op.Skipped, &op.Failed) })
	b.Queue(`SELECT run_id, error FROM bulk_runs WHERE org_id = $1 AND operation_id = $2 AND error IS NOT NULL ORDER BY place LIMIT $3`, org, id, maxBulkErrors).
		Query(func(rows pgx.Rows) (err error) {
			op.Errors, err = pgx.CollectRows(rows, pgx.RowToStructByPos[stepwell.BulkError])
			return err
		})
	return op, s.wrap("read bulk operation", s.pool.SendBatch(ctx, &b).Close())
}

// OpenBulks lists bulk operations that go on: the first of each organization, then the
// second of each, and so on, so that none holds up all others; cancels come before reruns,
// which may wait for runs to end.
func (s *Store) OpenBulks(ctx context.Context, limit int) ([]*stepwell.BulkOperation, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+bulkColumns+` FROM bulk_operations WHERE completed_at IS NULL
		ORDER BY row_number() OVER (PARTITION BY org_id ORDER BY kind, created_at), created_at LIMIT $1`, limit)
	if err != nil {
		return nil, s.wrap("list bulk operations", err)
	}
	ops, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.BulkOperation, error) { return scanBulk(row) })
	return ops, s.wrap("list bulk operations", err)
}

// NextOfBulk lists runs of a bulk operation whose turn has not been.
func (s *Store) NextOfBulk(ctx context.Context, org, id string, limit int) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT run_id FROM bulk_runs WHERE org_id = $1 AND operation_id = $2 AND outcome IS NULL ORDER BY place LIMIT $3`, org, id, limit)
	if err != nil {
		return nil, s.wrap("read bulk operation", err)
	}
	runs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return runs, s.wrap("read bulk operation", err)
}

// RecordBulk records outcomes of runs of a bulk operation, and its end with the last.
func (s *Store) RecordBulk(ctx context.Context, org, id string, results []stepwell.BulkResult) error {
	var runs, outcomes []string
	var reasons []*string
	for _, r := range results {
		runs, outcomes, reasons = append(runs, r.Run), append(outcomes, string(r.Outcome)), append(reasons, null(r.Error))
	}
	var b pgx.Batch
	b.Queue(`UPDATE bulk_runs SET outcome = x.outcome, error = x.error FROM unnest($3::text[], $4::text[], $5::text[]) AS x (run, outcome, error)
		WHERE org_id = $1 AND operation_id = $2 AND run_id = x.run AND bulk_runs.outcome IS NULL`, org, id, runs, outcomes, reasons)
	b.Queue(`UPDATE bulk_operations SET completed_at = clock_timestamp() WHERE org_id = $1 AND id = $2 AND completed_at IS NULL
		AND NOT EXISTS (SELECT 1 FROM bulk_runs WHERE org_id = $1 AND operation_id = $2 AND outcome IS NULL)`, org, id)
	return s.wrap("record bulk operation", s.pool.SendBatch(ctx, &b).Close())
}

// DeleteBulks deletes some bulk operations that ended longer than age ago.
func (s *Store) DeleteBulks(ctx context.Context, age time.Duration) (deleted int, err error) {
	tag, err := s.pool.Exec(ctx, `DELETE FROM bulk_operations WHERE (org_id, id) IN
		(SELECT org_id, id FROM bulk_operations WHERE completed_at < clock_timestamp() - $1::interval LIMIT 10)`, age)
	return int(tag.RowsAffected()), s.wrap("delete bulk operations", err)
}
