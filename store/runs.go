package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stepwell"
)

const uniqueViolation = "23505"

const insertRun = `
INSERT INTO runs (org_id, id, tool_id, tool_version, inputs, options, request_source, mode, trace_id, user_id, parent_run_id, rerun_of, credential_names)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING started_at`

// insertRunArgs also notes the names of the credentials in r.
func insertRunArgs(r *stepwell.Run, credentials json.RawMessage) ([]any, error) {
	options, err := json.Marshal(r.Options)
	if err == nil && credentials != nil {
		var values map[string]json.RawMessage
		if err = json.Unmarshal(credentials, &values); err != nil {
			err = errors.New("run-time credentials that are no object") // the decoder's text may hold some
		}
		r.CredentialNames = slices.Sorted(maps.Keys(values))
	}
	return []any{r.OrgID, r.ID, r.ToolID, r.ToolVersion, []byte(r.Inputs), options, r.RequestSource, r.Mode, r.TraceID, r.UserID,
		null(r.ParentRunID), null(r.RerunOf), r.CredentialNames}, err
}

// InsertRun records a new run as running, with its run-time credentials sealed.
// A taken id is a KindConflict error. It sets StartedAt.
func (s *Store) InsertRun(ctx context.Context, r *stepwell.Run, credentials json.RawMessage) error {
	if credentials != nil {
		return s.inTx(ctx, "record run", func(tx pgx.Tx) error { return s.insertRun(ctx, tx, r, credentials) })
	}
	args, err := insertRunArgs(r, credentials)
	if err != nil {
		return err
	}
	err = s.pool.QueryRow(ctx, insertRun, args...).Scan(&r.StartedAt)
	return s.wrap("record run", conflictAsTaken(err, r.ID))
}

// insertRun is InsertRun in a transaction.
func (s *Store) insertRun(ctx context.Context, tx pgx.Tx, r *stepwell.Run, credentials json.RawMessage) error {
	args, err := insertRunArgs(r, credentials)
	if err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, insertRun, args...).Scan(&r.StartedAt); err != nil {
		return conflictAsTaken(err, r.ID)
	}
	if credentials == nil {
		return nil
	}
	sealed, err := s.sealer.Seal(credentials, "run_credentials", r.OrgID, r.ID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO run_credentials (org_id, run_id, sealed) VALUES ($1, $2, $3)`, r.OrgID, r.ID, sealed)
	return err
}

func conflictAsTaken(err error, id string) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == uniqueViolation {
		return stepwell.Errorf(stepwell.KindConflict, "run_exists", "A run with the id '%s' already exists", id)
	}
	return err
}

const runColumns = `org_id, id, tool_id, tool_version, status, coalesce(error, ''), inputs, options, request_source, mode,
trace_id, user_id, coalesce(parent_run_id, ''), coalesce(rerun_of, ''), credential_names, warnings, started_at, completed_at, coalesce(data_bytes, -1)`

func scanRun(row pgx.Row, r *stepwell.Run, more ...any) error {
	var options []byte
	var completed *time.Time
	var inputs []byte
	err := row.Scan(append([]any{&r.OrgID, &r.ID, &r.ToolID, &r.ToolVersion, &r.Status, &r.Error, &inputs, &options, &r.RequestSource,
		&r.Mode, &r.TraceID, &r.UserID, &r.ParentRunID, &r.RerunOf, &r.CredentialNames, &r.Warnings, &r.StartedAt, &completed, &r.DataSize}, more...)...)
	if err != nil {
		return err
	}
	r.Inputs = inputs
	if completed != nil {
		r.CompletedAt = *completed
	}
	return json.Unmarshal(options, &r.Options)
}

// Run reads a run without its tool and data; a KindNotFound error when there is none.
func (s *Store) Run(ctx context.Context, org, id string) (*stepwell.Run, error) {
	var r stepwell.Run
	err := scanRun(s.pool.QueryRow(ctx, `SELECT `+runColumns+` FROM runs WHERE org_id = $1 AND id = $2`, org, id), &r)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("Run")
	}
	return &r, s.wrap("read run", err)
}

// RunStatus reads only the status of a run; empty when there is none.
func (s *Store) RunStatus(ctx context.Context, org, id string) (stepwell.RunStatus, error) {
	var status stepwell.RunStatus
	err := s.pool.QueryRow(ctx, `SELECT status FROM runs WHERE org_id = $1 AND id = $2`, org, id).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return status, s.wrap("read status", err)
}

// OpenRun reads all that a worker needs to begin with a run, in one round trip. A
// missing run is a KindNotFound error.
func (s *Store) OpenRun(ctx context.Context, org, id string) (*stepwell.OpenRun, error) {
	var o stepwell.OpenRun
	var sealed []byte
	var b pgx.Batch
	b.Queue(`SELECT `+runColumns+` FROM runs WHERE org_id = $1 AND id = $2`, org, id).QueryRow(func(row pgx.Row) error { return scanRun(row, &o.Run) })
	b.Queue(`SELECT (SELECT sealed FROM run_credentials WHERE org_id = $1 AND run_id = $2),
		EXISTS (SELECT 1 FROM pages WHERE org_id = $1 AND run_id = $2),
		EXISTS (SELECT 1 FROM claims WHERE org_id = $1 AND run_id = $2) OR EXISTS (SELECT 1 FROM waits WHERE org_id = $1 AND run_id = $2)`, org, id).QueryRow(func(row pgx.Row) error {
		return row.Scan(&sealed, &o.HasPages, &o.HasClaims)
	})
	err := s.pool.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("Run")
	}
	if err != nil {
		return nil, s.wrap("open run", err)
	}
	if sealed != nil {
		if o.Credentials, err = s.sealer.Open(sealed, "run_credentials", org, id); err != nil {
			return nil, fmt.Errorf("open the credentials of run %s: %w", id, err)
		}
	}
	return &o, nil
}

const finishRun = `
UPDATE runs SET status = $3, error = $4, warnings = $5, completed_at = clock_timestamp(),
       data_step = $6, data_bytes = $7, data_encoding = $8, data = $9, data_blob = $10
WHERE org_id = $1 AND id = $2 AND status = 'running' RETURNING started_at, completed_at`

// finishRunWithPage is insertPage and finishRun in one: none without the other.
const finishRunWithPage = `WITH page AS (` + insertPage + ` RETURNING 1)
UPDATE runs SET status = $16, error = $17, warnings = $18, completed_at = clock_timestamp(),
       data_step = $19, data_bytes = $20, data_encoding = $21, data = $22, data_blob = $23
WHERE org_id = $1 AND id = $2 AND status = 'running' AND EXISTS (SELECT 1 FROM page) RETURNING started_at, completed_at`

// deleteOfEndedRun deletes what ends with a run, when it has ended.
const deleteOfEndedRun = `
WITH ended AS (SELECT org_id, id FROM runs WHERE org_id = $1 AND id = $2 AND status <> 'running'),
     secrets AS (DELETE FROM run_credentials c USING ended e WHERE c.org_id = e.org_id AND c.run_id = e.id),
     waiting AS (DELETE FROM waits w USING ended e WHERE w.org_id = e.org_id AND w.run_id = e.id)
DELETE FROM claims c USING ended e WHERE c.org_id = e.org_id AND c.run_id = e.id`

// FinishRun gives a running run its final status, in one transaction with all that
// ends with it. finished is false when the run had ended before: nothing changes.
func (s *Store) FinishRun(ctx context.Context, f stepwell.Finish) (started, completed time.Time, finished bool, err error) {
	var body storedBody
	var step *int
	var size *int64
	var fileBlobs []string
	if f.Result != nil {
		step, size = f.Result.Step, &f.Result.Bytes
		if step == nil {
			if body, err = s.encodeBody(ctx, blobDir(f.Org, f.Run)+"/data", f.Result.Body); err != nil {
				return started, completed, false, s.wrap("finish run", err)
			}
		}
	}
	sql := finishRun
	args := []any{f.Org, f.Run, string(f.Status), null(f.Error), f.Warnings, step, size, body.encoding, body.inline, body.blob}
	if f.Last != nil {
		page, _, err := s.pageArgs(ctx, f.LastKey, f.Last)
		if err != nil {
			return started, completed, false, s.wrap("finish run", err)
		}
		sql, args = finishRunWithPage, append(page, args[2:]...)
	}
	var b pgx.Batch
	b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&started, &completed)
		finished = err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if f.Result != nil && len(f.Result.Files) > 0 {
		var columns []any
		if columns, fileBlobs, err = s.storeFiles(ctx, f.Org, f.Run, f.Result.Files); err != nil {
			return started, completed, false, s.wrap("finish run", err)
		}
		b.Queue(insertOutputFiles, append([]any{f.Org, f.Run}, columns...)...)
		if err != nil {
			return started, completed, false, s.wrap("finish run", err)
		}
	}
	b.Queue(deleteOfEndedRun, f.Org, f.Run)
	err = s.pool.SendBatch(ctx, &b).Close()
	if err == nil && !finished {
		s.discard(ctx, f.Org, f.Run, body.blob)
		for i := range fileBlobs {
			s.discard(ctx, f.Org, f.Run, &fileBlobs[i])
		}
	}
	return started, completed, finished, s.wrap("finish run", err)
}

// ReadResult reads the data of a successful run; nil when it has none.
func (s *Store) ReadResult(ctx context.Context, org, id string) (*stepwell.Result, error) {
	r, b, err := s.result(ctx, org, id)
	if err != nil || r == nil || r.Step != nil {
		return r, err
	}
	r.Body, err = s.decodeBody(ctx, b)
	return r, s.wrap("read result", err)
}

// OpenResult is ReadResult for data of any size: the Result has no Body, which is read
// from body instead, at about 5 MiB of memory. body is nil when the data is a step's;
// else the caller closes it.
func (s *Store) OpenResult(ctx context.Context, org, id string) (r *stepwell.Result, body io.ReadCloser, err error) {
	r, b, err := s.result(ctx, org, id)
	if err != nil || r == nil || r.Step != nil {
		return r, nil, err
	}
	body, err = s.openBody(ctx, b)
	return r, body, s.wrap("read result", err)
}

// result reads what is known of a run's data, and its body as the row holds it.
func (s *Store) result(ctx context.Context, org, id string) (*stepwell.Result, storedBody, error) {
	var r stepwell.Result
	var size *int64
	var encoding *int16
	var b storedBody
	err := s.pool.QueryRow(ctx, `SELECT data_step, data_bytes, data_encoding, data, data_blob FROM runs
		WHERE org_id = $1 AND id = $2 AND status = 'success'`, org, id).Scan(&r.Step, &size, &encoding, &b.inline, &b.blob)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, b, nil
	}
	if err != nil {
		return nil, b, s.wrap("read result", err)
	}
	if size != nil {
		r.Bytes = *size
	}
	if encoding != nil {
		b.encoding = *encoding
	}
	return &r, b, nil
}

// Running counts the unfinished runs of an organization, up to a bound.
func (s *Store) Running(ctx context.Context, org string, bound int) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM runs WHERE org_id = $1 AND status = 'running' LIMIT $2) AS r`, org, bound).Scan(&n)
	return n, s.wrap("count runs", err)
}

// AbortRun ends a running run as aborted, guarded like every final write. aborted is
// false when it had ended before.
func (s *Store) AbortRun(ctx context.Context, org, id, reason string) (aborted bool, err error) {
	_, _, aborted, err = s.FinishRun(ctx, stepwell.Finish{Org: org, Run: id, Status: stepwell.RunAborted, Error: reason})
	return aborted, err
}
