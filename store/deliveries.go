package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

const deliveryColumns = `d.org_id, d.id, d.run_id, r.tool_id, r.options->>'webhookUrl', d.status, d.created_at, d.next_attempt_at, d.scheduled, d.rounds`

func scanDelivery(row pgx.Row) (*stepwell.Delivery, error) {
	var d stepwell.Delivery
	var next *time.Time
	err := row.Scan(&d.OrgID, &d.ID, &d.RunID, &d.ToolID, &d.URL, &d.Status, &d.CreatedAt, &next, &d.Scheduled, &d.Rounds)
	if next != nil {
		d.NextAttemptAt = *next
	}
	return &d, err
}

// Delivery reads a callback with its attempts; a KindNotFound error when there is none.
func (s *Store) Delivery(ctx context.Context, org, id string) (*stepwell.Delivery, error) {
	return s.delivery(ctx, `d.org_id = $1 AND d.id = $2`, org, id)
}

// RunDelivery is Delivery for the callback of a run, which has one at most.
func (s *Store) RunDelivery(ctx context.Context, org, run string) (*stepwell.Delivery, error) {
	return s.delivery(ctx, `d.org_id = $1 AND d.run_id = $2`, org, run)
}

func (s *Store) delivery(ctx context.Context, where string, org, id string) (*stepwell.Delivery, error) {
	const attempts = `SELECT a.round, a.number, a.started_at, a.duration_ms, coalesce(a.response_status, 0), coalesce(a.error, '')
		FROM deliveries d JOIN delivery_attempts a ON a.org_id = d.org_id AND a.delivery_id = d.id WHERE `
	var d *stepwell.Delivery
	var all []stepwell.DeliveryAttempt
	var b pgx.Batch
	b.Queue(`SELECT `+deliveryColumns+` FROM deliveries d JOIN runs r ON r.org_id = d.org_id AND r.id = d.run_id WHERE `+where, org, id).
		QueryRow(func(row pgx.Row) (err error) {
			d, err = scanDelivery(row)
			return err
		})
	b.Queue(attempts+where+` ORDER BY a.started_at, a.round, a.number`, org, id).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a stepwell.DeliveryAttempt, err error) {
			var took int64
			err = row.Scan(&a.Round, &a.Number, &a.StartedAt, &took, &a.Status, &a.Error)
			a.Duration = time.Duration(took) * time.Millisecond
			return a, err
		})
		return err
	})
	err := s.pool.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("Delivery")
	}
	if err != nil {
		return nil, s.wrap("read delivery", err)
	}
	d.Attempts = all
	return d, nil
}

// RecordAttempt stores an attempt and what follows from it. ends says that the schedule
// goes no further; next, of an attempt of the schedule that it follows, is the time of the
// one after. An attempt that is stored already changes nothing.
func (s *Store) RecordAttempt(ctx context.Context, org, delivery string, a stepwell.DeliveryAttempt, ends bool, next time.Time) error {
	return s.inTx(ctx, "record delivery attempt", func(tx pgx.Tx) error {
		// A delivery whose run was deleted meanwhile has no row, and takes no attempt.
		tag, err := tx.Exec(ctx, `
INSERT INTO delivery_attempts (org_id, delivery_id, round, number, started_at, duration_ms, response_status, error)
SELECT d.org_id, d.id, $3, $4, $5, $6, $7, $8 FROM deliveries d WHERE d.org_id = $1 AND d.id = $2 FOR UPDATE
ON CONFLICT DO NOTHING`, org, delivery, a.Round, a.Number, a.StartedAt, a.Duration.Milliseconds(), nullInt(a.Status), null(a.Error))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `
UPDATE deliveries SET
  scheduled = scheduled AND NOT ($3 OR $4),
  status = CASE WHEN status = 'delivered' OR $3 THEN 'delivered' WHEN scheduled AND NOT $4 THEN 'pending' ELSE 'failed' END,
  next_attempt_at = CASE WHEN status = 'delivered' OR $3 OR $4 OR NOT scheduled THEN NULL ELSE coalesce($5, next_attempt_at) END
WHERE org_id = $1 AND id = $2`, org, delivery, a.Error == "", ends, nullTime(next))
		return err
	})
}

func nullInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// Redeliver asks for one more attempt of a callback and gives its new round. A failed one
// is pending again. A KindNotFound error when there is none.
func (s *Store) Redeliver(ctx context.Context, org, id string) (*stepwell.Delivery, error) {
	// The lock keeps the run from being deleted between this answer and the attempt.
	tag, err := s.pool.Exec(ctx, `
WITH run AS (SELECT r.org_id, r.id FROM deliveries d JOIN runs r ON r.org_id = d.org_id AND r.id = d.run_id
             WHERE d.org_id = $1 AND d.id = $2 FOR KEY SHARE OF r)
UPDATE deliveries d SET rounds = rounds + 1, asked_at = clock_timestamp(),
  status = CASE status WHEN 'failed' THEN 'pending' ELSE status END,
  next_attempt_at = CASE status WHEN 'failed' THEN clock_timestamp() ELSE next_attempt_at END
FROM run WHERE d.org_id = run.org_id AND d.run_id = run.id`, org, id)
	if err != nil {
		return nil, s.wrap("redeliver", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, stepwell.NotFound("Delivery")
	}
	return s.Delivery(ctx, org, id)
}

// Round is one round of a callback: what one workflow does.
type Round struct {
	Org, Delivery string
	Round         int
}

// DueRounds lists rounds whose workflow is not known to have started age after they were
// asked for, and those of callbacks whose next attempt is late by so much.
func (s *Store) DueRounds(ctx context.Context, age, late time.Duration, limit int) ([]Round, error) {
	rows, err := s.pool.Query(ctx, `
SELECT org_id, id, round FROM (
  (SELECT org_id, id, started + 1 AS first, rounds FROM deliveries
   WHERE started < rounds AND asked_at < clock_timestamp() - $1::interval ORDER BY asked_at LIMIT $3)
  UNION
  (SELECT org_id, id, CASE WHEN scheduled THEN 1 ELSE rounds END, rounds FROM deliveries
   WHERE status = 'pending' AND next_attempt_at < clock_timestamp() - $2::interval ORDER BY next_attempt_at LIMIT $3)
) AS due, generate_series(first, rounds) AS round LIMIT $3`, age, late, limit)
	if err != nil {
		return nil, s.wrap("list deliveries", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Round])
	return out, s.wrap("list deliveries", err)
}

// MarkRounds records that the workflows of rounds are known to have started, where those
// of all rounds before are. It need not survive a crash: they are started again, and find
// what they did stored.
func (s *Store) MarkRounds(ctx context.Context, rounds []Round) error {
	var b pgx.Batch
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	for _, r := range rounds {
		b.Queue(`UPDATE deliveries SET started = $3 WHERE org_id = $1 AND id = $2 AND started = $3 - 1`, r.Org, r.Delivery, r.Round)
	}
	return s.wrap("mark deliveries", s.pool.SendBatch(ctx, &b).Close())
}

// OldestDelivery gives the age of the oldest callback that is pending, 0 without one.
func (s *Store) OldestDelivery(ctx context.Context) (age time.Duration, err error) {
	err = s.pool.QueryRow(ctx, `SELECT coalesce((SELECT clock_timestamp() - created_at FROM deliveries WHERE status = 'pending' ORDER BY created_at LIMIT 1), '0')`).Scan(&age)
	return max(age, 0), s.wrap("read deliveries", err)
}
