package store

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// linksRemembered is for how long a link that is over still says why it is.
const linksRemembered = 30 * 24 * time.Hour

// Why the portal lets nobody in.
var (
	errLinkUnknown  = stepwell.Errorf(stepwell.KindNotFound, stepwell.CodeLinkUnknown, "Link not found")
	errLinkExpired  = stepwell.Errorf(stepwell.KindUnauthorized, stepwell.CodeLinkExpired, "The link has expired: ask for a new one")
	errLinkReplaced = stepwell.Errorf(stepwell.KindUnauthorized, stepwell.CodeLinkReplaced, "The link was replaced: use the newest one")
	errSessionEnded = stepwell.Errorf(stepwell.KindUnauthorized, stepwell.CodeSessionEnded, "The session has ended: open the link again")
)

// PutPortalLink saves the link of an end user by the hash of its token, in place of an
// earlier one. KindNotFound when there is no such end user.
func (s *Store) PutPortalLink(ctx context.Context, org, endUser string, hash []byte, expires time.Time) error {
	return s.inTx(ctx, "save portal link", func(tx pgx.Tx) error {
		// Locked, so that of two links made at once one replaces the other.
		tag, err := tx.Exec(ctx, `SELECT 1 FROM end_users WHERE org_id = $1 AND id = $2 FOR UPDATE`, org, endUser)
		if err == nil && tag.RowsAffected() == 0 {
			return stepwell.NotFound("End user")
		}
		if err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(`DELETE FROM portal_links WHERE org_id = $1 AND end_user_id = $2 AND expires_at < now() - $3::interval`, org, endUser, linksRemembered)
		b.Queue(`UPDATE portal_links SET replaced_at = now() WHERE org_id = $1 AND end_user_id = $2 AND replaced_at IS NULL`, org, endUser)
		b.Queue(`INSERT INTO portal_links (org_id, end_user_id, hash, expires_at) VALUES ($1, $2, $3, $4)`, org, endUser, hash, expires)
		return tx.SendBatch(ctx, &b).Close()
	})
}

// guestColumns need a row u of end_users and o of organizations.
const guestColumns = `o.id, o.name, u.id::text, coalesce(u.name, u.email, '')`

func guestFields(g *stepwell.Guest) []any { return []any{&g.OrgID, &g.OrgName, &g.EndUserID, &g.Name} }

// PortalLink finds whom a token's hash is for. Its errors have the codes of links.
func (s *Store) PortalLink(ctx context.Context, hash []byte) (*stepwell.Guest, error) {
	var g stepwell.Guest
	var replaced, expired bool
	err := s.pool.QueryRow(ctx, `
SELECT `+guestColumns+`, l.replaced_at IS NOT NULL, l.expires_at <= now()
FROM portal_links l JOIN end_users u ON u.org_id = l.org_id AND u.id = l.end_user_id JOIN organizations o ON o.id = l.org_id
WHERE l.hash = $1`, hash).Scan(append(guestFields(&g), &replaced, &expired)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errLinkUnknown
	case err != nil:
		return nil, s.wrap("read portal link", err)
	case replaced:
		return nil, errLinkReplaced
	case expired:
		return nil, errLinkExpired
	}
	return &g, nil
}

// OpenPortalSession exchanges a link, by its token's hash, for a session under a hash of
// its own. Errors as of PortalLink. The link stays good. It also removes the end user's
// sessions that are over.
func (s *Store) OpenPortalSession(ctx context.Context, link, session []byte, expires time.Time) error {
	tag, err := s.pool.Exec(ctx, `
WITH link AS (SELECT org_id, end_user_id FROM portal_links WHERE hash = $1 AND replaced_at IS NULL AND expires_at > now()),
     over AS (DELETE FROM portal_sessions s USING link l WHERE s.org_id = l.org_id AND s.end_user_id = l.end_user_id AND s.expires_at <= now())
INSERT INTO portal_sessions (hash, org_id, end_user_id, expires_at) SELECT $2, org_id, end_user_id, $3 FROM link`, link, session, expires)
	if err == nil && tag.RowsAffected() == 0 {
		if _, err := s.PortalLink(ctx, link); err != nil {
			return err
		}
		return errLinkExpired // a moment ago
	}
	return s.wrap("open portal session", err)
}

// PortalSession finds whose session a hash is; CodeSessionEnded when it is unknown or over.
func (s *Store) PortalSession(ctx context.Context, hash []byte) (*stepwell.Guest, error) {
	var g stepwell.Guest
	err := s.pool.QueryRow(ctx, `
SELECT `+guestColumns+`
FROM portal_sessions s JOIN end_users u ON u.org_id = s.org_id AND u.id = s.end_user_id JOIN organizations o ON o.id = s.org_id
WHERE s.hash = $1 AND s.expires_at > now()`, hash).Scan(guestFields(&g)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errSessionEnded
	}
	return &g, s.wrap("read portal session", err)
}

// ClosePortalSession ends a session, if there is one.
func (s *Store) ClosePortalSession(ctx context.Context, hash []byte) error {
	_, err := s.pool.Exec(ctx, `DELETE FROM portal_sessions WHERE hash = $1`, hash)
	return s.wrap("close portal session", err)
}

// TenantSystems gives the systems that an end user may connect, by id: those with tenants
// that it is allowed; of two environments that of prod.
func (s *Store) TenantSystems(ctx context.Context, org, endUser string) ([]stepwell.TenantSystem, error) {
	rows, err := s.pool.Query(ctx, `
SELECT DISTINCT ON (y.id) y.org_id, y.id, y.environment, y.name, y.url, y.multi_tenancy_mode, y.credential_keys, y.metadata, y.sealed,
       y.created_at, y.updated_at, c.updated_at
FROM systems y JOIN end_users u ON u.org_id = y.org_id AND u.id = $2
LEFT JOIN end_user_credentials c ON c.org_id = y.org_id AND c.end_user_id = u.id AND c.system_id = y.id
WHERE y.org_id = $1 AND y.multi_tenancy_mode = 'enabled' AND (y.id = ANY(u.allowed_systems) OR $3 = ANY(u.allowed_systems))
ORDER BY y.id, y.environment = 'prod' DESC`, org, endUser, stepwell.AllSystems)
	if err != nil {
		return nil, s.wrap("read systems", err)
	}
	systems, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t stepwell.TenantSystem, err error) {
		var at *time.Time
		t.System, err = s.scanSystem(row, &at)
		if at != nil {
			t.ConnectedAt = *at
		}
		return t, err
	})
	return systems, s.wrap("read systems", err)
}

// PutSignIn notes a sign-in that begins in a session, by the hash of its state. It also
// removes the session's that are over. CodeSessionEnded when there is no such session.
func (s *Store) PutSignIn(ctx context.Context, session, state []byte, in stepwell.SignIn, expires time.Time) error {
	sealed, err := s.sealer.Seal([]byte(in.Verifier), signInPlace(state)...)
	if err != nil {
		return err
	}
	tag, err := s.pool.Exec(ctx, `
WITH over AS (DELETE FROM portal_signins WHERE session = $1 AND expires_at <= now())
INSERT INTO portal_signins (state, session, org_id, end_user_id, system_id, environment, sealed, expires_at)
SELECT $2, s.hash, s.org_id, s.end_user_id, $3, $4, $5, $6 FROM portal_sessions s WHERE s.hash = $1 AND s.expires_at > now()`,
		session, state, in.System, in.Environment, sealed, expires)
	if err == nil && tag.RowsAffected() == 0 {
		return errSessionEnded
	}
	return s.wrap("begin a sign-in", err)
}

// TakeSignIn takes a session's sign-in back, once. A state that is unknown, used, over or
// another session's is KindInvalid.
func (s *Store) TakeSignIn(ctx context.Context, session, state []byte) (*stepwell.SignIn, error) {
	var in stepwell.SignIn
	var sealed []byte
	err := s.pool.QueryRow(ctx, `
DELETE FROM portal_signins WHERE state = $2 AND session = $1 AND expires_at > now()
RETURNING org_id, end_user_id::text, system_id, environment, sealed`, session, state).
		Scan(&in.Guest.OrgID, &in.Guest.EndUserID, &in.System, &in.Environment, &sealed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, stepwell.Invalid("unknown_sign_in", "This sign-in was not begun here, or too long ago")
	}
	if err != nil {
		return nil, s.wrap("end a sign-in", err)
	}
	verifier, err := s.sealer.Open(sealed, signInPlace(state)...)
	in.Verifier = string(verifier)
	return &in, err
}

// signInPlace is what a sign-in's verifier is sealed for; see sealedTables.
func signInPlace(state []byte) []string {
	return []string{"portal_signins", `\x` + hex.EncodeToString(state)} // as Postgres writes bytes
}
