package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// InsertHookRun is InsertRun for a run that a hook's call starts, with the call beside
// it. When a call with the same key came for the same tool within stepwell.HookKeyLife,
// nothing is recorded and first is the id of that call's run. Of several at once, on
// several servers, one is the first: the others wait for its transaction.
func (s *Store) InsertHookRun(ctx context.Context, r *stepwell.Run, call *stepwell.HookCall) (first string, err error) {
	body, err := s.encodeBody(ctx, blobDir(r.OrgID, r.ID)+"/hook", call.Body)
	if err != nil {
		return "", s.wrap("record hook", err)
	}
	if body.inline == nil && body.blob == nil {
		body.inline = []byte{}
	}
	err = s.inTx(ctx, "record hook", func(tx pgx.Tx) error {
		if call.Key != nil {
			if first, err = takeHookKey(ctx, tx, r, call.Key); err != nil || first != "" {
				return err
			}
		}
		if err := s.insertRun(ctx, tx, r, nil); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO hook_calls (org_id, run_id, headers, is_text, encoding, body, blob) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			r.OrgID, r.ID, []byte(call.Headers), call.IsText(), body.encoding, body.inline, body.blob)
		return err
	})
	if err == nil && first != "" {
		s.discard(ctx, r.OrgID, r.ID, body.blob)
	}
	return first, err
}

// takeHookKey notes the key of a call for its run, or gives the run of the call that had
// it before.
func takeHookKey(ctx context.Context, tx pgx.Tx, r *stepwell.Run, key []byte) (first string, err error) {
	tag, err := tx.Exec(ctx, `
INSERT INTO hook_keys (org_id, tool_id, key, run_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (org_id, tool_id, key) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at
WHERE hook_keys.created_at < clock_timestamp() - $5::interval`, r.OrgID, r.ToolID, key, r.ID, stepwell.HookKeyLife)
	if err != nil || tag.RowsAffected() == 1 {
		return "", err
	}
	// The row is locked until the end of the transaction, so nobody removes it meanwhile.
	err = tx.QueryRow(ctx, `SELECT run_id FROM hook_keys WHERE org_id = $1 AND tool_id = $2 AND key = $3`, r.OrgID, r.ToolID, key).Scan(&first)
	return first, err
}

// HookRun gives the id of the run that a call with a key started within
// stepwell.HookKeyLife; empty when there is none.
func (s *Store) HookRun(ctx context.Context, org, tool string, key []byte) (run string, err error) {
	err = s.pool.QueryRow(ctx, `SELECT run_id FROM hook_keys WHERE org_id = $1 AND tool_id = $2 AND key = $3 AND created_at >= clock_timestamp() - $4::interval`,
		org, tool, key, stepwell.HookKeyLife).Scan(&run)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return run, s.wrap("read hook key", err)
}

// expiredHookKeys is how many keys one batch removes.
const expiredHookKeys = 5000

// DeleteHookKeys removes a batch of keys that are older than stepwell.HookKeyLife and
// gives their number.
func (s *Store) DeleteHookKeys(ctx context.Context) (deleted int, err error) {
	tag, err := s.pool.Exec(ctx, `
DELETE FROM hook_keys k USING (SELECT org_id, tool_id, key FROM hook_keys WHERE created_at < clock_timestamp() - $1::interval
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED) old
WHERE k.org_id = old.org_id AND k.tool_id = old.tool_id AND k.key = old.key`, stepwell.HookKeyLife, expiredHookKeys)
	return int(tag.RowsAffected()), s.wrap("delete hook keys", err)
}

// HookBody reads the body of the call that started a run, as it came; a KindNotFound
// error when no hook started it.
func (s *Store) HookBody(ctx context.Context, org, run string) ([]byte, error) {
	var b storedBody
	err := s.pool.QueryRow(ctx, `SELECT encoding, body, blob FROM hook_calls WHERE org_id = $1 AND run_id = $2`, org, run).Scan(&b.encoding, &b.inline, &b.blob)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("Hook")
	}
	if err != nil {
		return nil, s.wrap("read hook", err)
	}
	body, err := s.decodeBody(ctx, b, -1)
	return body, s.wrap("read hook", err)
}
