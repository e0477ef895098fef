package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stepwell"
)

// firstVersion is the version of a new tool.
const firstVersion = "1.0.0"

// idTries is how many ids are tried for a new tool before it is a conflict.
const idTries = 100

// toolColumns reads a version v of a tool t.
const toolColumns = `v.key, v.document, v.version, t.created_at, v.created_at`

func scanTool(row pgx.Row) (*stepwell.Tool, error) {
	var t stepwell.Tool
	var key int64
	var document []byte
	var version string
	var created, updated time.Time
	if err := row.Scan(&key, &document, &version, &created, &updated); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(document, &t); err != nil {
		return nil, fmt.Errorf("tool version %d: %w", key, err)
	}
	t.VersionKey, t.Version, t.CreatedAt, t.UpdatedAt = key, version, created, updated
	return &t, nil
}

// writeTool is the document of a tool. It has no escapes for HTML: texts that are kept as
// they were given, such as headers, are full of < and >.
func writeTool(t *stepwell.Tool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(t)
	return b.Bytes(), err
}

// insertVersion saves t as a version and sets its key and times.
func insertVersion(ctx context.Context, tx pgx.Tx, org string, t *stepwell.Tool) error {
	document, err := writeTool(t)
	if err != nil {
		return err
	}
	err = tx.QueryRow(ctx, `INSERT INTO tool_versions (org_id, tool_id, version, document) VALUES ($1, $2, $3, $4)
		RETURNING key, created_at`, org, t.ID, t.Version, document).Scan(&t.VersionKey, &t.UpdatedAt)
	if err != nil {
		return err
	}
	var systems []string
	for i := range t.Steps {
		if id := t.Steps[i].Config.SystemID; id != "" {
			systems = append(systems, id)
		}
	}
	if len(systems) == 0 {
		return nil
	}
	_, err = tx.Exec(ctx, `INSERT INTO tool_version_systems (org_id, system_id, version_key)
		SELECT DISTINCT $1, x.id, $3::bigint FROM unnest($2::text[]) AS x (id)`, org, systems, t.VersionKey)
	return err
}

// CreateTool saves a new tool at version 1.0.0. An empty id becomes a UUID; a taken
// one gets the first free suffix, KindConflict when there is none.
func (s *Store) CreateTool(ctx context.Context, org string, t *stepwell.Tool) (*stepwell.Tool, error) {
	saved := *t
	saved.Version = firstVersion
	if saved.ID == "" {
		saved.ID = uuid.NewString()
	}
	err := s.inTx(ctx, "create tool", func(tx pgx.Tx) error {
		id, err := freeToolID(ctx, tx, org, saved.ID)
		if err != nil {
			return err
		}
		saved.ID = id
		if err := insertVersion(ctx, tx, org, &saved); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `INSERT INTO tools (org_id, id, version_key, archived) VALUES ($1, $2, $3, $4) RETURNING created_at`,
			org, id, saved.VersionKey, saved.Archived).Scan(&saved.CreatedAt)
	})
	return &saved, err
}

var idSuffix = regexp.MustCompile(`^(.*)-(\d{1,9})$`)

// freeToolID gives id, or the first free one after it. It holds a lock on the ids of
// the organization until the transaction ends.
func freeToolID(ctx context.Context, tx pgx.Tx, org, id string) (string, error) {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('tool ids ' || $1, 0))`, org); err != nil {
		return "", err
	}
	base, n := id, 0
	if m := idSuffix.FindStringSubmatch(id); m != nil {
		base = m[1]
		n, _ = strconv.Atoi(m[2])
	}
	candidates := []string{id}
	for i := 1; i <= idTries; i++ {
		if c := base + "-" + strconv.Itoa(n+i); len(c) <= stepwell.MaxToolID {
			candidates = append(candidates, c)
		}
	}
	var free *string
	err := tx.QueryRow(ctx, `SELECT c.id FROM unnest($2::text[]) WITH ORDINALITY AS c (id, n)
		WHERE NOT EXISTS (SELECT 1 FROM tools t WHERE t.org_id = $1 AND t.id = c.id) ORDER BY c.n LIMIT 1`, org, candidates).Scan(&free)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", stepwell.Errorf(stepwell.KindConflict, "tool_id_taken", "No free tool id could be made from '%s'; choose another id", id)
	}
	if err != nil {
		return "", err
	}
	return *free, nil
}

// Tool reads the latest version of a tool.
func (s *Store) Tool(ctx context.Context, org, id string) (*stepwell.Tool, error) {
	t, err := scanTool(s.pool.QueryRow(ctx, `SELECT `+toolColumns+` FROM tools t JOIN tool_versions v ON v.key = t.version_key
		WHERE t.org_id = $1 AND t.id = $2`, org, id))
	return t, s.wrap("read tool", noTool(err, "Tool"))
}

func noTool(err error, what string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return stepwell.NotFound(what)
	}
	return err
}

// ToolByKey reads the version that a run is pinned to, also of a deleted tool.
func (s *Store) ToolByKey(ctx context.Context, org string, key int64) (*stepwell.Tool, error) {
	t, err := scanTool(s.pool.QueryRow(ctx, `SELECT v.key, v.document, v.version, v.created_at, v.created_at
		FROM tool_versions v WHERE v.org_id = $1 AND v.key = $2`, org, key))
	return t, s.wrap("read tool version", noTool(err, "Version"))
}

// ListTools gives a page of tools, newest first, and their number.
func (s *Store) ListTools(ctx context.Context, org string, includeArchived bool, only []string, page, limit int) ([]*stepwell.Tool, int, error) {
	const where = ` WHERE t.org_id = $1 AND ($2 OR NOT t.archived) AND ($3::text[] IS NULL OR t.id = ANY($3))`
	var total int
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM tools t`+where, org, includeArchived, only).Scan(&total); err != nil {
		return nil, 0, s.wrap("list tools", err)
	}
	rows, err := s.pool.Query(ctx, `SELECT `+toolColumns+` FROM tools t JOIN tool_versions v ON v.key = t.version_key`+where+
		` ORDER BY t.created_at DESC, t.id DESC LIMIT $4 OFFSET $5`, org, includeArchived, only, limit, offset(page, limit))
	if err != nil {
		return nil, 0, s.wrap("list tools", err)
	}
	tools, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.Tool, error) { return scanTool(row) })
	return tools, total, s.wrap("list tools", err)
}

// UpdateTool lets change alter the latest version and saves the outcome as the next
// one; bump gives its version, or the old one when nothing changed. change runs
// outside a transaction and is repeated when another update came between.
func (s *Store) UpdateTool(ctx context.Context, org, id string, change func(*stepwell.Tool) error, bump func(before, after *stepwell.Tool) string) (*stepwell.Tool, error) {
	for {
		before, err := s.Tool(ctx, org, id)
		if err != nil {
			return nil, err
		}
		after, err := copyOf(before)
		if err != nil {
			return nil, err
		}
		if err := change(after); err != nil {
			return nil, err
		}
		after.ID = before.ID
		if after.Version = bump(before, after); after.Version == before.Version {
			return before, nil
		}
		saved, err := s.replaceVersion(ctx, org, before.VersionKey, after)
		if err != nil || saved {
			return after, err
		}
	}
}

// copyOf gives a tool that shares no memory with t: a change in place of one is none of
// the other.
func copyOf(t *stepwell.Tool) (*stepwell.Tool, error) {
	document, err := writeTool(t)
	if err != nil {
		return nil, fmt.Errorf("copy tool: %w", err)
	}
	c := &stepwell.Tool{VersionKey: t.VersionKey}
	return c, json.Unmarshal(document, c)
}

// replaceVersion makes t the latest version if old still is it.
func (s *Store) replaceVersion(ctx context.Context, org string, old int64, t *stepwell.Tool) (saved bool, err error) {
	err = s.inTx(ctx, "update tool", func(tx pgx.Tx) error {
		var current int64
		err := tx.QueryRow(ctx, `SELECT version_key FROM tools WHERE org_id = $1 AND id = $2 FOR UPDATE`, org, t.ID).Scan(&current)
		if err != nil {
			return noTool(err, "Tool")
		}
		if saved = current == old; !saved {
			return nil
		}
		if err := insertVersion(ctx, tx, org, t); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE tools SET version_key = $3, archived = $4, updated_at = now() WHERE org_id = $1 AND id = $2`,
			org, t.ID, t.VersionKey, t.Archived)
		return err
	})
	return saved, err
}

// DeleteTool removes a tool and hides its versions; runs keep showing theirs.
func (s *Store) DeleteTool(ctx context.Context, org, id string) error {
	return s.inTx(ctx, "delete tool", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM tools WHERE org_id = $1 AND id = $2`, org, id)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return stepwell.Errorf(stepwell.KindNotFound, "not_found", "Tool not found (404)")
		}
		_, err = tx.Exec(ctx, `UPDATE tool_versions SET deleted = true WHERE org_id = $1 AND tool_id = $2 AND NOT deleted`, org, id)
		if err != nil {
			return err
		}
		// A tool that is made anew under the id has seen none of its calls.
		_, err = tx.Exec(ctx, `DELETE FROM hook_keys WHERE org_id = $1 AND tool_id = $2`, org, id)
		return err
	})
}

// ToolVersions gives all versions of a tool, newest first.
func (s *Store) ToolVersions(ctx context.Context, org, id string) ([]*stepwell.Tool, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+toolColumns+` FROM tools t JOIN tool_versions v
		ON v.org_id = t.org_id AND v.tool_id = t.id AND NOT v.deleted
		WHERE t.org_id = $1 AND t.id = $2 ORDER BY v.key DESC`, org, id)
	if err != nil {
		return nil, s.wrap("list versions", err)
	}
	tools, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.Tool, error) { return scanTool(row) })
	if err == nil && len(tools) == 0 {
		return nil, stepwell.NotFound("Tool")
	}
	return tools, s.wrap("list versions", err)
}

// ToolVersion gives one version of a tool.
func (s *Store) ToolVersion(ctx context.Context, org, id, version string) (*stepwell.Tool, error) {
	t, err := scanTool(s.pool.QueryRow(ctx, `SELECT `+toolColumns+` FROM tools t JOIN tool_versions v
		ON v.org_id = t.org_id AND v.tool_id = t.id AND NOT v.deleted
		WHERE t.org_id = $1 AND t.id = $2 AND v.version = $3`, org, id, version))
	return t, s.wrap("read version", noTool(err, "Version"))
}
