package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stepwell"
)

const finishRun = `
UPDATE runs SET status = $3, error = $4, warnings = $5, completed_at = clock_timestamp(),
       data_step = $6, data_bytes = $7, data_encoding = $8, data = $9, data_blob = $10
WHERE org_id = $1 AND id = $2 AND status = 'running' RETURNING started_at, completed_at`

// finishRunWithPage is insertPage and finishRun in one: none without the other.
const finishRunWithPage = `WITH page AS (` + insertPage + ` RETURNING 1)
UPDATE runs SET status = $17, error = $18, warnings = $19, completed_at = clock_timestamp(),
       data_step = $20, data_bytes = $21, data_encoding = $22, data = $23, data_blob = $24
WHERE org_id = $1 AND id = $2 AND status = 'running' AND EXISTS (SELECT 1 FROM page) RETURNING started_at, completed_at`

// deleteOfEndedRun deletes what ends with a run, when it has ended.
const deleteOfEndedRun = `
WITH ended AS (SELECT org_id, id FROM runs WHERE org_id = $1 AND id = $2 AND status <> 'running'),
     secrets AS (DELETE FROM run_credentials c USING ended e WHERE c.org_id = e.org_id AND c.run_id = e.id),
     waiting AS (DELETE FROM waits w USING ended e WHERE w.org_id = e.org_id AND w.run_id = e.id)
DELETE FROM claims c USING ended e WHERE c.org_id = e.org_id AND c.run_id = e.id`

// ending is a Finish with its bodies made durable: what its statements are given.
type ending struct {
	stepwell.Finish
	page  []any // arguments of insertPage, nil without a last page
	data  []any // of the columns of the data
	files []any // of insertOutputFiles, nil without files
	blobs []string
}

// prepare makes the bodies of a Finish durable.
func (s *Store) prepare(ctx context.Context, f stepwell.Finish) (*ending, error) {
	e := &ending{Finish: f}
	var body storedBody
	var step *int
	var size *int64
	var err error
	if f.Result != nil {
		step, size = f.Result.Step, &f.Result.Bytes
		if step == nil {
			if body, err = s.encodeBody(ctx, blobDir(f.Org, f.Run)+"/data", f.Result.Body); err != nil {
				return nil, err
			}
		}
		if body.blob != nil {
			e.blobs = append(e.blobs, *body.blob)
		}
		if len(f.Result.Files) > 0 {
			columns, blobs, err := s.storeFiles(ctx, f.Org, f.Run, f.Result.Files)
			if err != nil {
				return nil, err
			}
			e.files, e.blobs = append([]any{f.Org, f.Run}, columns...), append(e.blobs, blobs...)
		}
	}
	e.data = []any{step, size, body.encoding, body.inline, body.blob}
	if f.Last != nil {
		e.page, _, err = s.pageArgs(ctx, f.LastKey, f.Last)
	}
	return e, err
}

// status gives the arguments of the columns from the status to the data.
func (e *ending) status(warnings []string) []any {
	return append([]any{string(e.Status), null(e.Error), warnings}, e.data...)
}

// queueRest queues what comes with the final status, whichever statement wrote it.
func (e *ending) queueRest(b *pgx.Batch) {
	if e.files != nil {
		b.Queue(insertOutputFiles, e.files...)
	}
	if e.State != nil {
		b.Queue(deleteRunState, e.Org, e.Run)
	}
	b.Queue(deleteOfEndedRun, e.Org, e.Run)
}

// FinishRun gives a running run its final status, in one transaction with all that ends
// with it and all that follows it. Without Finished in what it gives, the run had ended
// before, or its last page is stored already: nothing changes.
func (s *Store) FinishRun(ctx context.Context, f stepwell.Finish) (stepwell.Ended, error) {
	var out stepwell.Ended
	e, err := s.prepare(ctx, f)
	if err != nil {
		return out, s.wrap("finish run", err)
	}
	if f.Alone {
		out, err = s.finishAlone(ctx, e)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
			out, err = s.finishFollowed(ctx, tx, e)
			return err
		})
		if errors.Is(err, errPageTooLate) {
			out, err = stepwell.Ended{}, nil
		}
	}
	if err != nil {
		return stepwell.Ended{}, s.wrap("finish run", err)
	}
	if !out.Finished {
		for i := range e.blobs {
			s.discard(ctx, f.Org, f.Run, &e.blobs[i])
		}
	}
	return out, nil
}

// finishAlone ends a run that nothing follows: one batch, one round trip.
func (s *Store) finishAlone(ctx context.Context, e *ending) (stepwell.Ended, error) {
	out := stepwell.Ended{Warnings: e.Warnings}
	sql, args := finishRun, []any{e.Org, e.Run}
	if e.page != nil {
		sql, args = finishRunWithPage, e.page
	}
	var b pgx.Batch
	b.Queue(sql, append(args, e.status(e.Warnings)...)...).QueryRow(scanEnded(&out))
	e.queueRest(&b)
	err := s.pool.SendBatch(ctx, &b).Close() // fills out in
	return out, err
}

// errPageTooLate takes back a last page: its run ended before it was locked.
var errPageTooLate = errors.New("the run has ended")

// finishFollowed ends a run with all that follows it. What may add warnings comes before
// the final status, which carries them; the lock makes the guard hold until then. The last
// page comes before the lock, as in finishRunWithPage: in another order the two could wait
// for each other.
func (s *Store) finishFollowed(ctx context.Context, tx pgx.Tx, e *ending) (out stepwell.Ended, err error) {
	if e.page != nil {
		tag, err := tx.Exec(ctx, insertPage, e.page...)
		if err != nil || tag.RowsAffected() == 0 {
			return out, err
		}
	}
	var options stepwell.RunOptions
	err = tx.QueryRow(ctx, `SELECT coalesce(options->>'webhookUrl', '') FROM runs
		WHERE org_id = $1 AND id = $2 AND status = 'running' FOR NO KEY UPDATE`, e.Org, e.Run).Scan(&options.WebhookURL)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && e.page != nil:
		return out, errPageTooLate
	case errors.Is(err, pgx.ErrNoRows):
		_, err = tx.Exec(ctx, deleteOfEndedRun, e.Org, e.Run)
		return out, err
	case err != nil:
		return out, err
	}
	out.Warnings = e.Warnings
	if e.Chain != nil {
		if err := s.chain(ctx, tx, e.Chain, &out); err != nil {
			return out, err
		}
	}
	if !e.State.Empty() {
		warnings, err := writeBack(ctx, tx, e.Org, e.Run, e.State)
		if err != nil {
			return out, err
		}
		out.Warnings = append(out.Warnings, warnings...)
	}
	var b pgx.Batch
	b.Queue(finishRun, append([]any{e.Org, e.Run}, e.status(out.Warnings)...)...).QueryRow(scanEnded(&out))
	if options.CallsBack() {
		id := uuid.Must(uuid.NewV7()).String()
		b.Queue(`INSERT INTO deliveries (org_id, id, run_id) VALUES ($1, $2, $3)`, e.Org, id, e.Run)
		out.Deliveries = append(out.Deliveries, id)
	}
	e.queueRest(&b)
	err = tx.SendBatch(ctx, &b).Close() // fills out in
	return out, err
}

// scanEnded reads what the statement of the final status gives.
func scanEnded(out *stepwell.Ended) func(pgx.Row) error {
	return func(row pgx.Row) error {
		err := row.Scan(&out.StartedAt, &out.CompletedAt)
		out.Finished = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}
}

// chain records the run that follows. One that cannot begin is recorded as failed, with
// its own callback.
func (s *Store) chain(ctx context.Context, tx pgx.Tx, c *stepwell.Chain, out *stepwell.Ended) (err error) {
	r := c.Run
	if r.ToolVersion == 0 {
		if r.ToolVersion, err = lastVersion(ctx, tx, r.OrgID, r.ToolID); err != nil {
			return err
		}
	}
	args, err := s.insertRunArgs(&r, c.Credentials)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, insertRunRow+` ON CONFLICT DO NOTHING`, args...)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("The chained run was not made: a run with its id '%s' already exists", r.ID))
		return nil
	}
	if c.Failed == "" {
		out.Chained = true
		return s.insertCredentials(ctx, tx, &r, c.Credentials)
	}
	failed, err := s.finishFollowed(ctx, tx, &ending{Finish: stepwell.Finish{Org: r.OrgID, Run: r.ID, Status: stepwell.RunFailed, Error: c.Failed},
		data: []any{nil, nil, nil, nil, nil}})
	out.Deliveries = append(out.Deliveries, failed.Deliveries...)
	return err
}

// lastVersion gives the last version of a tool that is gone. A tool of which nothing is
// left gets an empty version: a run shows what it was to run.
func lastVersion(ctx context.Context, tx pgx.Tx, org, id string) (key int64, err error) {
	err = tx.QueryRow(ctx, `SELECT key FROM tool_versions WHERE org_id = $1 AND tool_id = $2 ORDER BY key DESC LIMIT 1`, org, id).Scan(&key)
	if !errors.Is(err, pgx.ErrNoRows) {
		return key, err
	}
	none := &stepwell.Tool{ID: id, Version: firstVersion, Steps: []stepwell.Step{}}
	if err := insertVersion(ctx, tx, org, none); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `UPDATE tool_versions SET deleted = true WHERE org_id = $1 AND key = $2`, org, none.VersionKey)
	return none.VersionKey, err
}

// AbortRun ends a running run as aborted, guarded like every final write.
func (s *Store) AbortRun(ctx context.Context, org, id, reason string) (stepwell.Ended, error) {
	return s.FinishRun(ctx, stepwell.Finish{Org: org, Run: id, Status: stepwell.RunAborted, Error: reason})
}
