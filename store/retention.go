package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sizes of one batch of retention: it must not hold locks for long.
const (
	expiredRuns  = 100
	expiredPages = 5000 // of all its runs together, unless one alone has more
	deletedBlobs = 500
)

// retainLock is the advisory lock under which one process at a time deletes.
const retainLock = 0x72657461696e // "retain"

// DeleteExpired deletes a batch of runs that ended longer ago than age, with all that
// belongs to them, and gives their number; 0 when there are none, or another process is
// at it. A run to which a rerun or a chained run refers stays as long as that one does:
// a rerun shares the blobs of the run that it took up; one whose callback is pending stays
// until it is not. Blobs are only noted: see RemoveDeletedBlobs.
func (s *Store) DeleteExpired(ctx context.Context, age time.Duration) (deleted int, err error) {
	err = s.inTx(ctx, "delete expired runs", func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, int64(retainLock)).Scan(&mine); err != nil || !mine {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT id FROM organizations ORDER BY id`)
		if err != nil {
			return err
		}
		orgs, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, org := range orgs {
			if err != nil || deleted > 0 {
				break
			}
			deleted, err = s.deleteExpired(ctx, tx, org, age)
		}
		return err
	})
	return deleted, err
}

// deleteExpired is DeleteExpired for one organization, whose runs it walks from the
// oldest on.
func (s *Store) deleteExpired(ctx context.Context, tx pgx.Tx, org string, age time.Duration) (int, error) {
	rows, err := tx.Query(ctx, `
SELECT r.id FROM runs r WHERE r.org_id = $1 AND r.started_at < clock_timestamp() - $2::interval AND r.completed_at < clock_timestamp() - $2::interval
  AND NOT EXISTS (SELECT FROM runs c WHERE c.org_id = r.org_id AND (c.rerun_of = r.id OR c.parent_run_id = r.id))
  AND NOT EXISTS (SELECT FROM deliveries d WHERE d.org_id = r.org_id AND d.run_id = r.id AND d.status = 'pending')
ORDER BY r.started_at, r.id LIMIT $3 FOR UPDATE SKIP LOCKED`, org, age, expiredRuns)
	if err != nil {
		return 0, err
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	ids, err := firstExpired(ctx, tx, org, locked)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	dirs := make([]string, len(ids))
	for i, id := range ids {
		dirs[i] = blobDir(org, id) + "/"
	}
	// A rerun's rows may name blobs of the run that it took up: those are not its own.
	_, err = tx.Exec(ctx, `
WITH p AS (DELETE FROM pages WHERE org_id = $1 AND run_id = ANY($2) RETURNING run_id, blob),
     c AS (DELETE FROM selections WHERE org_id = $1 AND run_id = ANY($2) RETURNING run_id, blob),
     f AS (DELETE FROM files WHERE org_id = $1 AND run_id = ANY($2) RETURNING run_id, blob),
     h AS (DELETE FROM hook_calls WHERE org_id = $1 AND run_id = ANY($2) RETURNING run_id, blob),
     r AS (DELETE FROM runs WHERE org_id = $1 AND id = ANY($2) RETURNING id, data_blob),
     x AS (DELETE FROM claims WHERE org_id = $1 AND run_id = ANY($2)),
     w AS (DELETE FROM waits WHERE org_id = $1 AND run_id = ANY($2)),
     blobs AS (SELECT * FROM p UNION SELECT * FROM c UNION SELECT * FROM f UNION SELECT * FROM h UNION SELECT * FROM r)
INSERT INTO deleted_blobs (key, org_id, run_id)
SELECT b.blob, $1, b.run_id FROM blobs b JOIN unnest($2::text[], $3::text[]) AS own (run, dir) ON own.run = b.run_id AND starts_with(b.blob, own.dir)
ON CONFLICT DO NOTHING`, org, ids, dirs)
	return len(ids), err
}

// firstExpired takes of locked runs the first ones that together have not too many
// pages. It looks once more for reruns, and for callbacks that are to be sent: they may
// have come before the lock.
func firstExpired(ctx context.Context, tx pgx.Tx, org string, locked []string) (ids []string, err error) {
	rows, err := tx.Query(ctx, `
SELECT x.id, (SELECT count(*) FROM pages p WHERE p.org_id = $1 AND p.run_id = x.id) FROM unnest($2::text[]) WITH ORDINALITY AS x (id, n)
WHERE NOT EXISTS (SELECT FROM runs c WHERE c.org_id = $1 AND c.rerun_of = x.id)
  AND NOT EXISTS (SELECT FROM deliveries d WHERE d.org_id = $1 AND d.run_id = x.id AND (d.status = 'pending' OR d.started < d.rounds)) ORDER BY x.n`, org, locked)
	if err != nil {
		return nil, err
	}
	var id string
	var pages, sum int
	_, err = pgx.ForEachRow(rows, []any{&id, &pages}, func() error {
		if sum += pages; len(ids) == 0 || sum <= expiredPages {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

// RemoveDeletedBlobs removes a batch of the blobs of deleted runs, those after a key, and
// gives the last key that it looked at; empty when there was none. Those that cannot be
// removed stay noted and are in the error: a caller who goes on after them is not held up.
// One that a new run of the same id has come to use meanwhile stays.
func (s *Store) RemoveDeletedBlobs(ctx context.Context, after string) (last string, removed int, err error) {
	var failures error
	err = s.inTx(ctx, "remove blobs", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
SELECT d.key, `+referred("d.org_id", "d.run_id", "d.key")+`
FROM deleted_blobs d WHERE d.key > $1 ORDER BY d.key LIMIT $2 FOR UPDATE OF d SKIP LOCKED`, after, deletedBlobs)
		if err != nil {
			return err
		}
		var key string
		var used bool
		var done, unused []string
		_, err = pgx.ForEachRow(rows, []any{&key, &used}, func() error {
			last = key
			if used {
				done = append(done, key)
			} else {
				unused = append(unused, key)
			}
			return nil
		})
		if err != nil || last == "" {
			return err
		}
		failed, err := s.blobs.Delete(ctx, unused...)
		if failures = err; ctx.Err() != nil {
			return ctx.Err()
		}
		for _, key := range unused {
			if !slices.Contains(failed, key) {
				done = append(done, key)
				removed++
			}
		}
		_, err = tx.Exec(ctx, `DELETE FROM deleted_blobs WHERE key = ANY($1)`, done)
		return err
	})
	if err != nil {
		return "", 0, err
	}
	return last, removed, failures
}
