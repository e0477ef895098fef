package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// removedKept is how many removed keys of a tool are remembered. A run, or a PUT with an
// ETag, that is older than the oldest of them cannot tell what was removed since it read
// the state; a tool has at most stepwell.MaxStateKeys keys at a time, so that takes a
// hundred replacements of all of them.
const removedKept = 10_000

// stateObject makes one JSON object of the keys of a tool t, values as they are stored.
const stateObject = `coalesce((SELECT json_object_agg(k.key, k.value ORDER BY k.key COLLATE "C") FROM state_keys k
	WHERE k.org_id = t.org_id AND k.tool_id = t.id), '{}')`

// State reads the state of a tool.
func (s *Store) State(ctx context.Context, org, tool string) (*stepwell.State, error) {
	var state stepwell.State
	err := s.pool.QueryRow(ctx, `SELECT t.state_seq, `+stateObject+` FROM tools t WHERE t.org_id = $1 AND t.id = $2`, org, tool).
		Scan(&state.Seq, &state.Values)
	return &state, s.wrap("read state", noTool(err, "Tool"))
}

// StatePut is how a whole state is replaced.
type StatePut struct {
	Since *int64 // the number at which its sender read the state; nil: now
	// Replace gives the new values; it sees the stored ones, and nothing changes them
	// meanwhile. Equal reports whether two values are the same, of which the stored one
	// stays, with its version.
	Replace func(stored json.RawMessage) (map[string]json.RawMessage, error)
	Equal   func(a, b json.RawMessage) bool
}

// StatePutResult is what came of replacing a state.
type StatePutResult struct {
	Seq     int64    // of the state that was written
	Changed []string // keys that others changed since StatePut.Since, in order
	Forgot  bool     // Since is so long ago that some keys removed since may be missing in Changed
}

// PutState replaces the state of a tool.
func (s *Store) PutState(ctx context.Context, org, tool string, put StatePut) (*StatePutResult, error) {
	since := put.Since
	if since == nil {
		now, err := s.State(ctx, org, tool)
		if err != nil {
			return nil, err
		}
		since = &now.Seq
	}
	var out StatePutResult
	err := s.inTx(ctx, "write state", func(tx pgx.Tx) error {
		locked, err := lockState(ctx, tx, org, tool)
		if err != nil {
			return noTool(err, "Tool")
		}
		versions, err := locked.changedSince(ctx, tx, *since, nil)
		if err != nil {
			return err
		}
		out.Changed, out.Forgot = slices.Sorted(maps.Keys(versions)), *since < locked.floor
		var stored json.RawMessage
		if err := tx.QueryRow(ctx, `SELECT `+stateObject+` FROM tools t WHERE t.org_id = $1 AND t.id = $2`, org, tool).Scan(&stored); err != nil {
			return err
		}
		values, err := put.Replace(stored)
		if err != nil {
			return err
		}
		var old map[string]json.RawMessage
		if err := json.Unmarshal(stored, &old); err != nil {
			return err
		}
		var removed []string
		for key, was := range old {
			if value, ok := values[key]; !ok {
				removed = append(removed, key)
			} else if put.Equal(was, value) {
				delete(values, key)
			}
		}
		out.Seq, err = locked.write(ctx, tx, values, removed)
		return err
	})
	return &out, err
}

// ResetState removes all keys of a tool's state and gives their number. What runs that
// read the state before write to one of them is a conflict from here on.
func (s *Store) ResetState(ctx context.Context, org, tool string) (deleted int, err error) {
	err = s.inTx(ctx, "reset state", func(tx pgx.Tx) error {
		locked, err := lockState(ctx, tx, org, tool)
		if err != nil {
			return noTool(err, "Tool")
		}
		rows, err := tx.Query(ctx, `SELECT key FROM state_keys WHERE org_id = $1 AND tool_id = $2`, org, tool)
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		deleted = len(keys)
		_, err = locked.write(ctx, tx, nil, keys)
		return err
	})
	return deleted, err
}

// lockedState is the state of a tool that nobody else writes to until the transaction ends.
type lockedState struct {
	org, tool  string
	seq, floor int64
}

func lockState(ctx context.Context, tx pgx.Tx, org, tool string) (*lockedState, error) {
	l := lockedState{org: org, tool: tool}
	err := tx.QueryRow(ctx, `SELECT state_seq, state_floor FROM tools WHERE org_id = $1 AND id = $2 FOR UPDATE`, org, tool).Scan(&l.seq, &l.floor)
	return &l, err
}

// changedSince gives the versions of the keys that were written or removed after a
// number, of some keys or, when only is nil, of all.
func (l *lockedState) changedSince(ctx context.Context, tx pgx.Tx, since int64, only []string) (map[string]int64, error) {
	rows, err := tx.Query(ctx, `
SELECT key, version FROM state_keys WHERE org_id = $1 AND tool_id = $2 AND version > $3 AND ($4::text[] IS NULL OR key = ANY($4))
UNION ALL
SELECT key, version FROM state_removed WHERE org_id = $1 AND tool_id = $2 AND version > $3 AND ($4::text[] IS NULL OR key = ANY($4))`,
		l.org, l.tool, since, only)
	if err != nil {
		return nil, err
	}
	versions := map[string]int64{}
	var key string
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&key, &version}, func() error { versions[key] = version; return nil })
	return versions, err
}

// write changes keys and gives the number of the state from then on. Without a change it
// stays the same.
func (l *lockedState) write(ctx context.Context, tx pgx.Tx, set map[string]json.RawMessage, removed []string) (seq int64, err error) {
	if len(set) == 0 && len(removed) == 0 {
		return l.seq, nil
	}
	keys := slices.Sorted(maps.Keys(set))
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = string(set[key])
	}
	var b pgx.Batch
	b.Queue(`UPDATE tools SET state_seq = state_seq + 1 WHERE org_id = $1 AND id = $2`, l.org, l.tool)
	if len(keys) > 0 {
		b.Queue(`
INSERT INTO state_keys (org_id, tool_id, key, version, value) SELECT $1, $2, x.key, $3, x.value::json FROM unnest($4::text[], $5::text[]) AS x (key, value)
ON CONFLICT (org_id, tool_id, key) DO UPDATE SET version = excluded.version, value = excluded.value`, l.org, l.tool, l.seq+1, keys, values)
		b.Queue(`DELETE FROM state_removed WHERE org_id = $1 AND tool_id = $2 AND key = ANY($3)`, l.org, l.tool, keys)
	}
	if len(removed) > 0 {
		b.Queue(`DELETE FROM state_keys WHERE org_id = $1 AND tool_id = $2 AND key = ANY($3)`, l.org, l.tool, removed)
		b.Queue(`
INSERT INTO state_removed (org_id, tool_id, key, version) SELECT $1, $2, x.key, $3 FROM unnest($4::text[]) AS x (key)
ON CONFLICT (org_id, tool_id, key) DO UPDATE SET version = excluded.version`, l.org, l.tool, l.seq+1, removed)
		b.Queue(`
WITH last AS (SELECT version FROM state_removed WHERE org_id = $1 AND tool_id = $2 ORDER BY version DESC OFFSET $3 LIMIT 1),
     gone AS (DELETE FROM state_removed r USING last WHERE r.org_id = $1 AND r.tool_id = $2 AND r.version <= last.version)
UPDATE tools SET state_floor = last.version FROM last WHERE org_id = $1 AND id = $2`, l.org, l.tool, removedKept)
	}
	return l.seq + 1, tx.SendBatch(ctx, &b).Close()
}

// writeBack writes what a run changed, in the transaction that ends it, and gives a
// warning for everything that is discarded.
func writeBack(ctx context.Context, tx pgx.Tx, org, run string, w *stepwell.StateWrite) (warnings []string, err error) {
	const gone = "The run's changes to the state were discarded: its tool was deleted"
	var tool string
	if err := tx.QueryRow(ctx, `SELECT tool_id FROM runs WHERE org_id = $1 AND id = $2`, org, run).Scan(&tool); err != nil {
		return nil, err
	}
	locked, err := lockState(ctx, tx, org, tool)
	if errors.Is(err, pgx.ErrNoRows) {
		return []string{gone}, nil
	}
	if err != nil {
		return nil, err
	}
	// Another tool may have taken the id; under the lock it is known.
	var deleted bool
	if err := tx.QueryRow(ctx, `SELECT v.deleted FROM runs r JOIN tool_versions v ON v.key = r.tool_version
		WHERE r.org_id = $1 AND r.id = $2`, org, run).Scan(&deleted); err != nil || deleted {
		return []string{gone}, err
	}
	keys := append(slices.Collect(maps.Keys(w.Set)), w.Removed...)
	versions, err := locked.changedSince(ctx, tx, -1, keys)
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	set, removed := maps.Clone(w.Set), []string(nil)
	for _, key := range keys {
		version, known := versions[key]
		if version > w.Seq || !known && w.Seq < locked.floor {
			warnings = append(warnings, fmt.Sprintf("The key '%s' of the state was changed by another while the run was going on; the run's change of it was discarded", key))
			delete(set, key)
		} else if _, ok := w.Set[key]; !ok {
			removed = append(removed, key)
		}
	}
	var total int
	err = tx.QueryRow(ctx, `SELECT count(*) FROM state_keys WHERE org_id = $1 AND tool_id = $2 AND NOT key = ANY($3)`,
		org, tool, append(slices.Collect(maps.Keys(set)), removed...)).Scan(&total)
	if err != nil {
		return nil, err
	}
	if total += len(set); total > stepwell.MaxStateKeys {
		return []string{fmt.Sprintf("The run's changes to the state were discarded: it would have %d keys, and may have %d", total, stepwell.MaxStateKeys)}, nil
	}
	_, err = locked.write(ctx, tx, set, removed)
	return warnings, err
}

// deleteRunState forgets what a successful run read. Of other runs it is kept: see copyRunState.
const deleteRunState = `
DELETE FROM run_states s USING runs r WHERE s.org_id = $1 AND s.run_id = $2 AND r.org_id = s.org_id AND r.id = s.run_id AND r.status = 'success'`

// copyRunState lets a rerun that reuses changes of the state read what the run before it
// read: then the changes fit, and a key that was written since is a conflict. It comes after
// the pages; one that reuses no changes reads the state anew.
const copyRunState = `
INSERT INTO run_states (org_id, run_id, seq, state) SELECT s.org_id, $3, s.seq, s.state FROM run_states s
WHERE s.org_id = $1 AND s.run_id = $2 AND EXISTS (SELECT FROM pages p WHERE p.org_id = $1 AND p.run_id = $3 AND p.state IS NOT NULL)`

// StartState gives the state that a run reads: that of its tool when it is first asked
// for, the same ever after. Of a tool that was deleted it is empty. It is nil when the run
// has ended.
func (s *Store) StartState(ctx context.Context, org, run string) (*stepwell.State, error) {
	var state stepwell.State
	var b pgx.Batch
	b.Queue(`
INSERT INTO run_states (org_id, run_id, seq, state)
SELECT r.org_id, r.id, coalesce(t.state_seq, 0), `+stateObject+`
FROM runs r JOIN tool_versions v ON v.key = r.tool_version
LEFT JOIN tools t ON t.org_id = r.org_id AND t.id = r.tool_id AND NOT v.deleted
WHERE r.org_id = $1 AND r.id = $2 AND r.status = 'running'
ON CONFLICT DO NOTHING`, org, run)
	b.Queue(`SELECT seq, state FROM run_states WHERE org_id = $1 AND run_id = $2`, org, run).QueryRow(func(row pgx.Row) error {
		return row.Scan(&state.Seq, &state.Values)
	})
	err := s.pool.SendBatch(ctx, &b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &state, s.wrap("read the state of a run", err)
}

// StateChanges walks over what the transforms of a run changed in its state, in order:
// those of the given steps from one item of a step on and before another.
func (s *Store) StateChanges(ctx context.Context, org, run string, steps []int, from, before [2]int, visit func(step, item int, c *stepwell.StateChange)) error {
	rows, err := s.pool.Query(ctx, `SELECT step, item, state FROM pages
		WHERE org_id = $1 AND run_id = $2 AND step = ANY($3) AND state IS NOT NULL AND (step, item) >= ($4, $5) AND (step, item) < ($6, $7)
		ORDER BY step, item`, org, run, steps, from[0], from[1], before[0], before[1])
	if err != nil {
		return s.wrap("read changes of a state", err)
	}
	var step, item int
	var raw json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&step, &item, &raw}, func() error {
		var c stepwell.StateChange
		if err := json.Unmarshal(raw, &c); err != nil {
			return err
		}
		visit(step, item, &c)
		return nil
	})
	return s.wrap("read changes of a state", err)
}

// SystemSecrets gives the values of all credentials that are known of some systems, of
// every environment and end user (of the 10,000 who connected last). They are secret.
func (s *Store) SystemSecrets(ctx context.Context, org string, systems []string) ([]string, error) {
	rows, err := s.pool.Query(ctx, `
SELECT id, environment, '', sealed FROM systems WHERE org_id = $1 AND id = ANY($2)
UNION ALL
(SELECT system_id, '', end_user_id::text, sealed FROM end_user_credentials WHERE org_id = $1 AND system_id = ANY($2) ORDER BY updated_at DESC LIMIT 10000)`,
		org, systems)
	if err != nil {
		return nil, s.wrap("read credentials of systems", err)
	}
	var secrets []string
	var system, environment, endUser string
	var sealed []byte
	_, err = pgx.ForEachRow(rows, []any{&system, &environment, &endUser, &sealed}, func() error {
		values, err := s.openCredentials(sealed, stepwell.CredentialPlace{Org: org, System: system, Environment: environment, EndUser: endUser})
		for _, value := range values {
			if value != "" {
				secrets = append(secrets, value)
			}
		}
		return err
	})
	return secrets, s.wrap("read credentials of systems", err)
}
