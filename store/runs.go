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

const (
	insertRunRow = `
INSERT INTO runs (org_id, id, tool_id, tool_version, inputs, options, request_source, mode, trace_id, user_id, parent_run_id, rerun_of, credential_names, link, end_user_id, deadline)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, clock_timestamp() + $16::interval)`
	insertRun = insertRunRow + ` RETURNING started_at`
)

// insertRunArgs also notes the names of the credentials in r.
func (s *Store) insertRunArgs(r *stepwell.Run, credentials json.RawMessage) ([]any, error) {
	options, err := json.Marshal(r.Options)
	if err == nil && credentials != nil {
		var values map[string]json.RawMessage
		if err = json.Unmarshal(credentials, &values); err != nil {
			err = errors.New("run-time credentials that are no object") // the decoder's text may hold some
		}
		r.CredentialNames = slices.Sorted(maps.Keys(values))
	}
	return []any{r.OrgID, r.ID, r.ToolID, r.ToolVersion, []byte(r.Inputs), options, r.RequestSource, r.Mode, r.TraceID, r.UserID,
		null(r.ParentRunID), null(r.RerunOf), r.CredentialNames, max(r.Link, 1), null(r.Options.EndUserID), s.deadline()}, err
}

// InsertRun records a new run as running, with its run-time credentials sealed.
// A taken id is a KindConflict error. It sets StartedAt.
func (s *Store) InsertRun(ctx context.Context, r *stepwell.Run, credentials json.RawMessage) error {
	if credentials != nil {
		return s.inTx(ctx, "record run", func(tx pgx.Tx) error { return s.insertRun(ctx, tx, r, credentials) })
	}
	args, err := s.insertRunArgs(r, credentials)
	if err != nil {
		return err
	}
	err = s.pool.QueryRow(ctx, insertRun, args...).Scan(&r.StartedAt)
	return s.wrap("record run", conflictAsTaken(err, r.ID))
}

// insertRun is InsertRun in a transaction.
func (s *Store) insertRun(ctx context.Context, tx pgx.Tx, r *stepwell.Run, credentials json.RawMessage) error {
	args, err := s.insertRunArgs(r, credentials)
	if err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, insertRun, args...).Scan(&r.StartedAt); err != nil {
		return conflictAsTaken(err, r.ID)
	}
	return s.insertCredentials(ctx, tx, r, credentials)
}

// insertCredentials seals the run-time credentials of a run beside it, if it has some.
func (s *Store) insertCredentials(ctx context.Context, tx pgx.Tx, r *stepwell.Run, credentials json.RawMessage) error {
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
trace_id, user_id, coalesce(parent_run_id, ''), coalesce(rerun_of, ''), link, credential_names, warnings, started_at, completed_at, coalesce(data_bytes, -1)`

func scanRun(row pgx.Row, r *stepwell.Run, more ...any) error {
	var options []byte
	var completed *time.Time
	var inputs []byte
	err := row.Scan(append([]any{&r.OrgID, &r.ID, &r.ToolID, &r.ToolVersion, &r.Status, &r.Error, &inputs, &options, &r.RequestSource,
		&r.Mode, &r.TraceID, &r.UserID, &r.ParentRunID, &r.RerunOf, &r.Link, &r.CredentialNames, &r.Warnings, &r.StartedAt, &completed, &r.DataSize}, more...)...)
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
	var hookHeaders []byte
	var hookIsText *bool
	b.Queue(`SELECT (SELECT sealed FROM run_credentials WHERE org_id = $1 AND run_id = $2),
		EXISTS (SELECT 1 FROM pages WHERE org_id = $1 AND run_id = $2),
		EXISTS (SELECT 1 FROM claims WHERE org_id = $1 AND run_id = $2) OR EXISTS (SELECT 1 FROM waits WHERE org_id = $1 AND run_id = $2),
		h.headers, h.is_text FROM (VALUES (1)) AS one LEFT JOIN hook_calls h ON h.org_id = $1 AND h.run_id = $2`, org, id).QueryRow(func(row pgx.Row) error {
		return row.Scan(&sealed, &o.HasPages, &o.HasClaims, &hookHeaders, &hookIsText)
	})
	err := s.pool.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("Run")
	}
	if err != nil {
		return nil, s.wrap("open run", err)
	}
	if o.HookHeaders = hookHeaders; hookIsText != nil {
		o.HookIsText = *hookIsText
	}
	if sealed != nil {
		if o.Credentials, err = s.sealer.Open(sealed, "run_credentials", org, id); err != nil {
			return nil, fmt.Errorf("open the credentials of run %s: %w", id, err)
		}
	}
	return &o, nil
}

// ReadResult reads the data of a successful run; nil when it has none.
func (s *Store) ReadResult(ctx context.Context, org, id string) (*stepwell.Result, error) {
	r, b, err := s.result(ctx, org, id)
	if err != nil || r == nil || r.Step != nil {
		return r, err
	}
	r.Body, err = s.decodeBody(ctx, b, r.Bytes)
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
