package store

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stepwell"
)

const endUserColumns = `org_id, id::text, coalesce(external_id, ''), coalesce(email, ''), coalesce(name, ''), metadata, allowed_systems, created_at, updated_at`

func scanEndUser(row pgx.Row) (*stepwell.EndUser, error) {
	var u stepwell.EndUser
	var metadata []byte
	err := row.Scan(&u.OrgID, &u.ID, &u.ExternalID, &u.Email, &u.Name, &metadata, &u.AllowedSystems, &u.CreatedAt, &u.UpdatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("End user")
	}
	u.Metadata = metadata
	return &u, err
}

// externalTaken gives the refusal of an externalId that another end user has.
func externalTaken(err error, u *stepwell.EndUser) error {
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == uniqueViolation {
		return stepwell.Errorf(stepwell.KindConflict, "external_id_taken", "Another end user has the externalId '%s'", u.ExternalID)
	}
	return err
}

// CreateEndUser saves a new end user under a new id, together with the key that has the
// hash and may run the tools (nil: all). KindConflict when the ExternalID is taken.
func (s *Store) CreateEndUser(ctx context.Context, u *stepwell.EndUser, keyHash []byte, tools []string) (saved *stepwell.EndUser, err error) {
	id := uuid.Must(uuid.NewV7()).String()
	err = s.inTx(ctx, "create end user", func(tx pgx.Tx) error {
		saved, err = scanEndUser(tx.QueryRow(ctx, `
INSERT INTO end_users (org_id, id, external_id, email, name, metadata, allowed_systems) VALUES ($1, $2, $3, $4, $5, $6, coalesce($7::text[], '{}'))
RETURNING `+endUserColumns, u.OrgID, id, null(u.ExternalID), null(u.Email), null(u.Name), nullJSON(u.Metadata), u.AllowedSystems))
		if err != nil {
			return externalTaken(err, u)
		}
		_, err = tx.Exec(ctx, `INSERT INTO api_keys (org_id, id, name, role, user_id, tools, hash, end_user_id) VALUES ($1, $2, '', $3, $4, $5, $6, $7)`,
			u.OrgID, uuid.Must(uuid.NewV7()).String(), stepwell.RoleEndUser, id, tools, keyHash, id)
		return err
	})
	return saved, err
}

// EndUser reads an end user; KindNotFound when there is none. id is a uuid.
func (s *Store) EndUser(ctx context.Context, org, id string) (*stepwell.EndUser, error) {
	u, err := scanEndUser(s.pool.QueryRow(ctx, `SELECT `+endUserColumns+` FROM end_users WHERE org_id = $1 AND id = $2`, org, id))
	return u, s.wrap("read end user", err)
}

// Connections gives the systems that an end user connected or may be asked to, by id:
// those with tenants that it is allowed.
func (s *Store) Connections(ctx context.Context, org, id string) ([]stepwell.Connection, error) {
	rows, err := s.pool.Query(ctx, `
WITH named AS (SELECT DISTINCT ON (y.id) y.id, y.name FROM systems y WHERE y.org_id = $1 ORDER BY y.id, y.environment = 'prod' DESC),
     asked AS (SELECT DISTINCT y.id FROM systems y JOIN end_users u ON u.org_id = y.org_id AND u.id = $2
               WHERE y.org_id = $1 AND y.multi_tenancy_mode = 'enabled' AND (y.id = ANY(u.allowed_systems) OR $3 = ANY(u.allowed_systems))),
     given AS (SELECT system_id AS id FROM end_user_credentials WHERE org_id = $1 AND end_user_id = $2)
SELECT x.id, coalesce(n.name, ''), EXISTS (SELECT FROM given g WHERE g.id = x.id)
FROM (SELECT id FROM asked UNION SELECT id FROM given) AS x LEFT JOIN named n ON n.id = x.id ORDER BY x.id`, org, id, stepwell.AllSystems)
	if err != nil {
		return nil, s.wrap("read connections", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c stepwell.Connection, err error) {
		return c, row.Scan(&c.SystemID, &c.SystemName, &c.HasCredentials)
	})
	return all, s.wrap("read connections", err)
}

// ListEndUsers gives a page of an organization's end users, newest first, and their number.
func (s *Store) ListEndUsers(ctx context.Context, org string, page, limit int) ([]*stepwell.EndUser, int, error) {
	var total int
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM end_users WHERE org_id = $1`, org).Scan(&total); err != nil {
		return nil, 0, s.wrap("list end users", err)
	}
	rows, err := s.pool.Query(ctx, `SELECT `+endUserColumns+` FROM end_users WHERE org_id = $1
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, org, limit, offset(page, limit))
	if err != nil {
		return nil, 0, s.wrap("list end users", err)
	}
	users, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.EndUser, error) { return scanEndUser(row) })
	return users, total, s.wrap("list end users", err)
}

// UpdateEndUser lets change alter an end user, but not its id, and saves it. KindNotFound
// when there is none, KindConflict when the ExternalID is taken. An error of change is
// returned as it is.
func (s *Store) UpdateEndUser(ctx context.Context, org, id string, change func(*stepwell.EndUser) error) (saved *stepwell.EndUser, err error) {
	err = s.inTx(ctx, "change end user", func(tx pgx.Tx) error {
		u, err := scanEndUser(tx.QueryRow(ctx, `SELECT `+endUserColumns+` FROM end_users WHERE org_id = $1 AND id = $2 FOR UPDATE`, org, id))
		if err != nil {
			return err
		}
		if err := change(u); err != nil {
			return err
		}
		saved, err = scanEndUser(tx.QueryRow(ctx, `UPDATE end_users SET external_id = $3, email = $4, name = $5, metadata = $6,
			allowed_systems = coalesce($7::text[], '{}'), updated_at = clock_timestamp() WHERE org_id = $1 AND id = $2 RETURNING `+endUserColumns,
			org, id, null(u.ExternalID), null(u.Email), null(u.Name), nullJSON(u.Metadata), u.AllowedSystems))
		return externalTaken(err, u)
	})
	return saved, err
}

// DeleteEndUser deletes an end user with its keys, what it connected, its portal link and
// sessions. Its runs stay.
func (s *Store) DeleteEndUser(ctx context.Context, org, id string) error {
	tag, err := s.pool.Exec(ctx, `DELETE FROM end_users WHERE org_id = $1 AND id = $2`, org, id)
	if err == nil && tag.RowsAffected() == 0 {
		return stepwell.NotFound("End user")
	}
	return s.wrap("delete end user", err)
}

// SystemAccess says what stands against a run of a mode that uses some systems for an end
// user. Systems that do not exist stand against nothing once they are allowed. KindNotFound
// when there is no such end user.
func (s *Store) SystemAccess(ctx context.Context, org, id string, systems []string, mode string) (a stepwell.SystemAccess, err error) {
	rows, err := s.pool.Query(ctx, `
SELECT u.allowed_systems, x.id, coalesce(y.multi_tenancy_mode = 'enabled', false) AND c.system_id IS NULL
FROM end_users u LEFT JOIN LATERAL (SELECT DISTINCT id FROM unnest($3::text[]) AS n (id)) AS x ON true
LEFT JOIN LATERAL (SELECT multi_tenancy_mode FROM systems WHERE org_id = u.org_id AND id = x.id ORDER BY environment = $4 DESC LIMIT 1) AS y ON true
LEFT JOIN end_user_credentials c ON c.org_id = u.org_id AND c.end_user_id = u.id AND c.system_id = x.id
WHERE u.org_id = $1 AND u.id = $2 ORDER BY x.id`, org, id, systems, mode)
	if err != nil {
		return a, s.wrap("read access", err)
	}
	found := false
	var allowed []string
	var system *string // none when the run uses none
	var missing bool
	_, err = pgx.ForEachRow(rows, []any{&allowed, &system, &missing}, func() error {
		found = true
		switch {
		case system == nil:
		case !slices.Contains(allowed, *system) && !slices.Contains(allowed, stepwell.AllSystems):
			a.Forbidden = append(a.Forbidden, *system)
		case missing:
			a.Missing = append(a.Missing, *system)
		}
		return nil
	})
	if err == nil && !found {
		return a, stepwell.NotFound("End user")
	}
	return a, s.wrap("read access", err)
}
