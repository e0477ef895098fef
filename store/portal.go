package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// errPortalEnded is the answer to a link or session that is unknown, replaced or over.
var errPortalEnded = stepwell.Errorf(stepwell.KindUnauthorized, "portal_ended", "The portal link is no longer valid: ask for a new one")

// PutPortalLink saves the link of an end user by the hash of its token, in place of an
// earlier one. KindNotFound when there is no such end user.
func (s *Store) PutPortalLink(ctx context.Context, org, endUser string, hash []byte, expires time.Time) error {
	tag, err := s.pool.Exec(ctx, `
INSERT INTO portal_links (org_id, end_user_id, hash, expires_at)
SELECT u.org_id, u.id, $3, $4 FROM end_users u WHERE u.org_id = $1 AND u.id = $2
ON CONFLICT (org_id, end_user_id) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at`, org, endUser, hash, expires)
	if err == nil && tag.RowsAffected() == 0 {
		return stepwell.NotFound("End user")
	}
	return s.wrap("save portal link", err)
}

// PortalLink finds whose link a token's hash is; KindUnauthorized when it is unknown,
// replaced by a newer one, or over.
func (s *Store) PortalLink(ctx context.Context, hash []byte) (org, endUser string, err error) {
	return s.portalOwner(ctx, `SELECT org_id, end_user_id::text FROM portal_links WHERE hash = $1 AND expires_at > now()`, hash)
}

// OpenPortalSession exchanges a link, by its token's hash, for a session under a hash of
// its own. KindUnauthorized as in PortalLink. The link stays good. It also removes the end
// user's sessions that are over.
func (s *Store) OpenPortalSession(ctx context.Context, link, session []byte, expires time.Time) error {
	tag, err := s.pool.Exec(ctx, `
WITH link AS (SELECT org_id, end_user_id FROM portal_links WHERE hash = $1 AND expires_at > now()),
     over AS (DELETE FROM portal_sessions s USING link l WHERE s.org_id = l.org_id AND s.end_user_id = l.end_user_id AND s.expires_at <= now())
INSERT INTO portal_sessions (hash, org_id, end_user_id, expires_at) SELECT $2, org_id, end_user_id, $3 FROM link`, link, session, expires)
	if err == nil && tag.RowsAffected() == 0 {
		return errPortalEnded
	}
	return s.wrap("open portal session", err)
}

// PortalSession finds whose session a hash is; KindUnauthorized when it is unknown or over.
func (s *Store) PortalSession(ctx context.Context, hash []byte) (org, endUser string, err error) {
	return s.portalOwner(ctx, `SELECT org_id, end_user_id::text FROM portal_sessions WHERE hash = $1 AND expires_at > now()`, hash)
}

func (s *Store) portalOwner(ctx context.Context, sql string, hash []byte) (org, endUser string, err error) {
	err = s.pool.QueryRow(ctx, sql, hash).Scan(&org, &endUser)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", errPortalEnded
	}
	return org, endUser, s.wrap("read portal", err)
}
