package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stepwell"
)

// CreateOrganization makes an organization and gives its id.
func (s *Store) CreateOrganization(ctx context.Context, name string) (string, error) {
	id := uuid.Must(uuid.NewV7()).String()
	_, err := s.pool.Exec(ctx, `INSERT INTO organizations (id, name) VALUES ($1, $2)`, id, name)
	return id, s.wrap("create organization", err)
}

// FirstOrganization gives the id of the oldest organization, empty when there is none.
func (s *Store) FirstOrganization(ctx context.Context) (string, error) {
	var id string
	err := s.pool.QueryRow(ctx, `SELECT id FROM organizations ORDER BY created_at, id LIMIT 1`).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return id, s.wrap("read organization", err)
}

// CallerByKey finds who a key belongs to by the key's hash; KindUnauthorized when it
// is unknown or expired. expires is zero for a key without an end.
func (s *Store) CallerByKey(ctx context.Context, hash []byte) (c *stepwell.Caller, expires time.Time, err error) {
	var until *time.Time
	c = &stepwell.Caller{}
	err = s.pool.QueryRow(ctx, `
SELECT k.org_id, o.name, k.id, k.user_id, k.role, k.tools, coalesce(k.end_user_id::text, ''), k.expires_at
FROM api_keys k JOIN organizations o ON o.id = k.org_id
WHERE k.hash = $1 AND (k.expires_at IS NULL OR k.expires_at > now())`, hash).Scan(&c.OrgID, &c.OrgName, &c.KeyID, &c.UserID, &c.Role, &c.Tools, &c.EndUserID, &until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, expires, stepwell.Errorf(stepwell.KindUnauthorized, "unauthorized", "The API key is unknown, expired or revoked; send a valid one as 'Authorization: Bearer <key>'")
	}
	if until != nil {
		expires = *until
	}
	return c, expires, s.wrap("authenticate", err)
}

// TouchKeys notes when keys were last used. It need not survive a crash.
func (s *Store) TouchKeys(ctx context.Context, used map[[2]string]time.Time) error {
	var b pgx.Batch
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	for key, at := range used {
		b.Queue(`UPDATE api_keys SET last_used_at = greatest(last_used_at, $3) WHERE org_id = $1 AND id = $2`, key[0], key[1], at)
	}
	return s.wrap("note key use", s.pool.SendBatch(ctx, &b).Close())
}

const keyColumns = `org_id, id, name, role, user_id, tools, expires_at, created_at, last_used_at`

func scanKey(row pgx.Row) (*stepwell.APIKey, error) {
	var k stepwell.APIKey
	var expires, used *time.Time
	if err := row.Scan(&k.OrgID, &k.ID, &k.Name, &k.Role, &k.UserID, &k.Tools, &expires, &k.CreatedAt, &used); err != nil {
		return nil, err
	}
	if expires != nil {
		k.ExpiresAt = *expires
	}
	if used != nil {
		k.LastUsedAt = *used
	}
	return &k, nil
}

// InsertKey saves a key under the hash of its text. An empty ID is made, an empty
// UserID becomes the id. A key that exists already stays as it is; inserted is false.
func (s *Store) InsertKey(ctx context.Context, k *stepwell.APIKey, hash []byte) (saved *stepwell.APIKey, inserted bool, err error) {
	id := uuid.Must(uuid.NewV7()).String()
	user := k.UserID
	if user == "" {
		user = id
	}
	saved, err = scanKey(s.pool.QueryRow(ctx, `
INSERT INTO api_keys (org_id, id, name, role, user_id, tools, hash, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (hash) DO NOTHING RETURNING `+keyColumns, k.OrgID, id, k.Name, k.Role, user, k.Tools, hash, nullTime(k.ExpiresAt)))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return saved, err == nil, s.wrap("save key", err)
}

// ListKeys gives a page of an organization's keys, newest first, and their number. Those
// of end users are none of them: they come and go with the end users.
func (s *Store) ListKeys(ctx context.Context, org string, page, limit int) ([]*stepwell.APIKey, int, error) {
	var total int
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM api_keys WHERE org_id = $1 AND end_user_id IS NULL`, org).Scan(&total); err != nil {
		return nil, 0, s.wrap("list keys", err)
	}
	rows, err := s.pool.Query(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE org_id = $1 AND end_user_id IS NULL
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, org, limit, offset(page, limit))
	if err != nil {
		return nil, 0, s.wrap("list keys", err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.APIKey, error) { return scanKey(row) })
	return keys, total, s.wrap("list keys", err)
}

// UpdateKey changes a key, or deletes it when change is nil. An organization keeps at
// least one admin key without an end, or with one to come.
func (s *Store) UpdateKey(ctx context.Context, org, id string, change func(*stepwell.APIKey) error) (k *stepwell.APIKey, err error) {
	err = s.inTx(ctx, "change key", func(tx pgx.Tx) error {
		// One change of keys at a time in an organization: the last admin key is counted.
		// Rows that refer to the organization, such as new runs, do not wait for it.
		if _, err := tx.Exec(ctx, `SELECT 1 FROM organizations WHERE id = $1 FOR NO KEY UPDATE`, org); err != nil {
			return err
		}
		k, err = scanKey(tx.QueryRow(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE org_id = $1 AND id = $2 AND end_user_id IS NULL`, org, id))
		if errors.Is(err, pgx.ErrNoRows) {
			return stepwell.NotFound("API key")
		}
		if err != nil {
			return err
		}
		if change == nil {
			_, err = tx.Exec(ctx, `DELETE FROM api_keys WHERE org_id = $1 AND id = $2`, org, id)
		} else {
			if err := change(k); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, `UPDATE api_keys SET name = $3, role = $4, tools = $5, expires_at = $6 WHERE org_id = $1 AND id = $2`,
				org, id, k.Name, k.Role, k.Tools, nullTime(k.ExpiresAt))
		}
		if err != nil {
			return err
		}
		var admins int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM api_keys WHERE org_id = $1 AND role = 'admin'
			AND (expires_at IS NULL OR expires_at > now())`, org).Scan(&admins); err != nil {
			return err
		}
		if admins == 0 {
			return stepwell.Invalid("last_admin_key", "This is the organization's last admin key; make another admin key first")
		}
		return nil
	})
	return k, err
}

func offset(page, limit int) int { return (page - 1) * limit }
