package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stepwell"
)

const systemColumns = `org_id, id, environment, name, url, multi_tenancy_mode, credential_keys, metadata, sealed, created_at, updated_at`

// scanSystem reads systemColumns, and more behind them.
func (s *Store) scanSystem(row pgx.Row, more ...any) (*stepwell.System, error) {
	var y stepwell.System
	var metadata, sealed []byte
	err := row.Scan(append([]any{&y.OrgID, &y.ID, &y.Environment, &y.Name, &y.URL, &y.MultiTenancyMode, &y.CredentialKeys, &metadata, &sealed, &y.CreatedAt, &y.UpdatedAt}, more...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.NotFound("System")
	}
	if err != nil {
		return nil, err
	}
	y.Metadata = metadata
	y.Credentials, err = s.openCredentials(sealed, placeOf(&y))
	return &y, err
}

func placeOf(y *stepwell.System) stepwell.CredentialPlace {
	return stepwell.CredentialPlace{Org: y.OrgID, System: y.ID, Environment: y.Environment}
}

// placeNames is the associated data under which the credentials of a place are sealed:
// the table and the primary key, as sealedTables has them.
func placeNames(p stepwell.CredentialPlace) []string {
	if p.EndUser != "" {
		return []string{"end_user_credentials", p.Org, strings.ToLower(p.EndUser), p.System} // as Postgres writes a uuid
	}
	return []string{"systems", p.Org, p.System, p.Environment}
}

func (s *Store) sealCredentials(values map[string]string, p stepwell.CredentialPlace) ([]byte, error) {
	if values == nil {
		values = map[string]string{}
	}
	plain, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	return s.sealer.Seal(plain, placeNames(p)...)
}

func (s *Store) openCredentials(sealed []byte, p stepwell.CredentialPlace) (map[string]string, error) {
	plain, err := s.sealer.Open(sealed, placeNames(p)...)
	if err != nil {
		return nil, fmt.Errorf("open the credentials of system %s: %w", p.System, err)
	}
	values := map[string]string{}
	if json.Unmarshal(plain, &values) != nil { // its text may hold some
		return nil, fmt.Errorf("the credentials of system %s are no object of texts", p.System)
	}
	return values, nil
}

// CreateSystem saves a new system and sets its times; KindConflict when the pair of id and
// environment is taken.
func (s *Store) CreateSystem(ctx context.Context, y *stepwell.System) error {
	sealed, err := s.sealCredentials(y.Credentials, placeOf(y))
	if err != nil {
		return err
	}
	err = s.pool.QueryRow(ctx, `
INSERT INTO systems (org_id, id, environment, name, url, multi_tenancy_mode, credential_keys, metadata, sealed)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING created_at, updated_at`,
		y.OrgID, y.ID, y.Environment, y.Name, y.URL, y.MultiTenancyMode, y.CredentialKeys, nullJSON(y.Metadata), sealed).Scan(&y.CreatedAt, &y.UpdatedAt)
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == uniqueViolation {
		return stepwell.Errorf(stepwell.KindConflict, "system_exists", "A system with the id '%s' already exists in the environment '%s'", y.ID, y.Environment)
	}
	return s.wrap("create system", err)
}

// pickSystem is the row of $2 in environment $3, or, when that is empty, the one of prod
// before that of dev.
const pickSystem = ` FROM systems WHERE org_id = $1 AND id = $2 AND ($3 = '' OR environment = $3)
ORDER BY environment = 'prod' DESC LIMIT 1`

// System reads a system with its credentials; an empty environment means prod if there is
// one, else dev.
func (s *Store) System(ctx context.Context, org, id, environment string) (*stepwell.System, error) {
	y, err := s.scanSystem(s.pool.QueryRow(ctx, `SELECT `+systemColumns+pickSystem, org, id, environment))
	return y, s.wrap("read system", err)
}

// ListSystems gives a page of an organization's systems, newest first, with their
// credentials, and their number.
func (s *Store) ListSystems(ctx context.Context, org string, page, limit int) ([]*stepwell.System, int, error) {
	var total int
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM systems WHERE org_id = $1`, org).Scan(&total); err != nil {
		return nil, 0, s.wrap("list systems", err)
	}
	rows, err := s.pool.Query(ctx, `SELECT `+systemColumns+` FROM systems WHERE org_id = $1
		ORDER BY created_at DESC, id DESC, environment LIMIT $2 OFFSET $3`, org, limit, offset(page, limit))
	if err != nil {
		return nil, 0, s.wrap("list systems", err)
	}
	systems, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.System, error) { return s.scanSystem(row) })
	return systems, total, s.wrap("list systems", err)
}

// UpdateSystem lets change alter a system, but not its id and environment, and saves it.
// The environment is picked as by System. An error of change is returned as it is.
func (s *Store) UpdateSystem(ctx context.Context, org, id, environment string, change func(*stepwell.System) error) (y *stepwell.System, err error) {
	err = s.inTx(ctx, "change system", func(tx pgx.Tx) error {
		if y, err = s.scanSystem(tx.QueryRow(ctx, `SELECT `+systemColumns+pickSystem+` FOR UPDATE`, org, id, environment)); err != nil {
			return err
		}
		place, token := placeOf(y), y.Credentials[accessToken]
		if err := change(y); err != nil {
			return err
		}
		sealed, err := s.sealCredentials(y.Credentials, place)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `UPDATE systems SET name = $4, url = $5, multi_tenancy_mode = $6, credential_keys = $7, metadata = $8,
			sealed = $9, token_at = CASE WHEN $10 THEN token_at END, updated_at = clock_timestamp()
			WHERE org_id = $1 AND id = $2 AND environment = $3 RETURNING updated_at`,
			place.Org, place.System, place.Environment, y.Name, y.URL, y.MultiTenancyMode, y.CredentialKeys, nullJSON(y.Metadata),
			sealed, token == y.Credentials[accessToken]).Scan(&y.UpdatedAt)
	})
	return y, err
}

// accessToken is the credential that is renewed.
const accessToken = "access_token"

// DeleteSystem deletes a system, picked as by System, and with the last environment of its
// id what end users connected to it.
func (s *Store) DeleteSystem(ctx context.Context, org, id, environment string) error {
	return s.inTx(ctx, "delete system", func(tx pgx.Tx) error {
		var picked string
		err := tx.QueryRow(ctx, `SELECT environment`+pickSystem+` FOR UPDATE`, org, id, environment).Scan(&picked)
		if errors.Is(err, pgx.ErrNoRows) {
			return stepwell.NotFound("System")
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM systems WHERE org_id = $1 AND id = $2 AND environment = $3`, org, id, picked); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM end_user_credentials c WHERE c.org_id = $1 AND c.system_id = $2
			AND NOT EXISTS (SELECT FROM systems y WHERE y.org_id = $1 AND y.id = $2)`, org, id)
		return err
	})
}

// RunSystems gives those of some systems that exist, as a run of a mode and an end user
// (empty: none) uses them: the row of the mode as a whole, else the other's; the end
// user's values in place of the stored ones where the system has tenants. What the end
// user is not allowed comes without its values.
func (s *Store) RunSystems(ctx context.Context, org string, ids []string, mode, endUser string) (map[string]*stepwell.BoundSystem, error) {
	var user *uuid.UUID
	if endUser != "" {
		id, err := uuid.Parse(endUser)
		if err != nil {
			id = uuid.Nil // nobody's: an unknown end user has connected nothing
		}
		user, endUser = &id, id.String()
	}
	rows, err := s.pool.Query(ctx, `
SELECT DISTINCT ON (y.id) y.id, y.environment, y.url, y.multi_tenancy_mode, y.sealed, y.token_at, c.sealed, c.token_at,
       $4::uuid IS NULL OR coalesce(u.allowed_systems && ARRAY[y.id, $5], false)
FROM systems y LEFT JOIN end_user_credentials c ON c.org_id = y.org_id AND c.system_id = y.id AND c.end_user_id = $4
LEFT JOIN end_users u ON u.org_id = y.org_id AND u.id = $4
WHERE y.org_id = $1 AND y.id = ANY($2) ORDER BY y.id, y.environment = $3 DESC`, org, ids, mode, user, stepwell.AllSystems)
	if err != nil {
		return nil, s.wrap("read systems", err)
	}
	systems := map[string]*stepwell.BoundSystem{}
	var environment, id, url, tenancy string
	var own, theirs []byte
	var ownAt, theirsAt *time.Time
	var allowed bool
	_, err = pgx.ForEachRow(rows, []any{&id, &environment, &url, &tenancy, &own, &ownAt, &theirs, &theirsAt, &allowed}, func() (err error) {
		if !allowed {
			systems[id] = &stepwell.BoundSystem{Place: stepwell.CredentialPlace{Org: org, System: id, Environment: environment}, Forbidden: true}
			return nil
		}
		b := &stepwell.BoundSystem{Place: stepwell.CredentialPlace{Org: org, System: id, Environment: environment}, URL: url}
		if b.Values, err = s.openCredentials(own, b.Place); err != nil {
			return err
		}
		at := ownAt
		if user != nil && tenancy == stepwell.TenancyEnabled {
			// One row for both environments: one place, so that one renewal at a time is made.
			b.Place, at = stepwell.CredentialPlace{Org: org, System: id, EndUser: endUser}, theirsAt
			b.Client, b.Values = b.Values, nil
			if theirs != nil {
				b.Values, err = s.openCredentials(theirs, b.Place)
			}
		}
		if at != nil {
			b.TokenAt = *at
		}
		systems[id] = b
		return err
	})
	return systems, s.wrap("read systems", err)
}

// PutEndUserCredentials replaces what an end user connected to a system. The end user
// must exist: KindNotFound.
func (s *Store) PutEndUserCredentials(ctx context.Context, org, endUser, system string, values map[string]string) error {
	return s.putEndUserCredentials(ctx, org, endUser, system, values, false)
}

// PutEndUserToken is PutEndUserCredentials for credentials that hold an access token that
// was obtained just now.
func (s *Store) PutEndUserToken(ctx context.Context, org, endUser, system string, values map[string]string) error {
	return s.putEndUserCredentials(ctx, org, endUser, system, values, true)
}

func (s *Store) putEndUserCredentials(ctx context.Context, org, endUser, system string, values map[string]string, obtained bool) error {
	sealed, err := s.sealCredentials(values, stepwell.CredentialPlace{Org: org, System: system, EndUser: endUser})
	if err != nil {
		return err
	}
	tag, err := s.pool.Exec(ctx, `
INSERT INTO end_user_credentials (org_id, end_user_id, system_id, sealed, token_at)
SELECT u.org_id, u.id, $3, $4, CASE WHEN $5 THEN clock_timestamp() END FROM end_users u WHERE u.org_id = $1 AND u.id = $2
ON CONFLICT (org_id, end_user_id, system_id) DO UPDATE
SET sealed = excluded.sealed, token_at = excluded.token_at, updated_at = clock_timestamp()`, org, endUser, system, sealed, obtained)
	if err == nil && tag.RowsAffected() == 0 {
		return stepwell.NotFound("End user")
	}
	return s.wrap("connect system", err)
}

// DeleteEndUserCredentials removes what an end user connected to a system, if anything.
func (s *Store) DeleteEndUserCredentials(ctx context.Context, org, endUser, system string) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM end_user_credentials WHERE org_id = $1 AND end_user_id = $2 AND system_id = $3`, org, endUser, system)
	return s.wrap("disconnect system", err)
}
