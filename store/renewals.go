package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// renewalLease is how long a worker that lives may take to renew an access token: longer
// than one exchange with a token endpoint.
const renewalLease = 30 * time.Second

// credentialsRow is the row that holds the credentials of a place, and its key.
func credentialsRow(p stepwell.CredentialPlace) (row string, key []any) {
	if p.EndUser != "" {
		return `end_user_credentials WHERE org_id = $1 AND end_user_id = $2 AND system_id = $3`, []any{p.Org, p.EndUser, p.System}
	}
	return `systems WHERE org_id = $1 AND id = $2 AND environment = $3`, []any{p.Org, p.System, p.Environment}
}

// updateOf splits the row of credentialsRow around what an UPDATE sets.
func updateOf(p stepwell.CredentialPlace, set string) (sql string, key []any) {
	if p.EndUser != "" {
		return `UPDATE end_user_credentials SET ` + set + ` WHERE org_id = $1 AND end_user_id = $2 AND system_id = $3`, []any{p.Org, p.EndUser, p.System}
	}
	return `UPDATE systems SET ` + set + ` WHERE org_id = $1 AND id = $2 AND environment = $3`, []any{p.Org, p.System, p.Environment}
}

// TakeRenewal reads the credentials of a place and, when due says that their access token
// must be renewed, claims that for a worker: mine. busy means that another worker that
// lives is at it. A place that is gone is KindNotFound.
func (s *Store) TakeRenewal(ctx context.Context, p stepwell.CredentialPlace, worker string, due func(values map[string]string, tokenAt time.Time) bool) (c stepwell.HeldCredentials, mine, busy bool, err error) {
	err = s.inTx(ctx, "claim a renewal", func(tx pgx.Tx) error {
		row, key := credentialsRow(p)
		var sealed []byte
		var at *time.Time
		err := tx.QueryRow(ctx, `SELECT sealed, token_at, coalesce(renewer <> $4 AND renew_until > clock_timestamp()
			AND EXISTS (SELECT FROM workers w WHERE w.id = renewer AND w.lease_until > clock_timestamp()), false)
			FROM `+row+` FOR UPDATE`, append(key, worker)...).Scan(&sealed, &at, &busy)
		if errors.Is(err, pgx.ErrNoRows) {
			return stepwell.NotFound("System")
		}
		if err == nil {
			c, err = s.held(sealed, at, p)
		}
		if err != nil || !due(c.Values, c.TokenAt) {
			busy = false
			return err
		}
		if busy {
			return nil
		}
		mine = true
		sql, key := updateOf(p, `renewer = $4, renew_until = clock_timestamp() + $5`)
		_, err = tx.Exec(ctx, sql, append(key, worker, renewalLease)...)
		return err
	})
	return c, mine && err == nil, busy, err
}

func (s *Store) held(sealed []byte, at *time.Time, p stepwell.CredentialPlace) (c stepwell.HeldCredentials, err error) {
	c.Values, err = s.openCredentials(sealed, p)
	if at != nil {
		c.TokenAt = *at
	}
	return c, err
}

// EndRenewal gives a worker's claim back without a new token.
func (s *Store) EndRenewal(ctx context.Context, p stepwell.CredentialPlace, worker string) error {
	sql, key := updateOf(p, `renewer = NULL, renew_until = NULL`)
	_, err := s.pool.Exec(ctx, sql+` AND renewer = $4`, append(key, worker)...)
	return s.wrap("end a renewal", err)
}

// SaveRenewal lets change put a new token among the credentials of a place that the worker
// has claimed, and ends the claim. Nothing is saved when change says no, and when the claim
// is another's by now. It gives what is stored afterwards.
func (s *Store) SaveRenewal(ctx context.Context, p stepwell.CredentialPlace, worker string, change func(values map[string]string) bool) (c stepwell.HeldCredentials, saved bool, err error) {
	return s.changeToken(ctx, p, `renewer = $4`, worker, `token_at = clock_timestamp(), renewer = NULL, renew_until = NULL`, change)
}

// SpoilToken lets change mark the access token of a place as used up.
func (s *Store) SpoilToken(ctx context.Context, p stepwell.CredentialPlace, change func(values map[string]string) bool) error {
	_, _, err := s.changeToken(ctx, p, `$4 = ''`, "", `token_at = token_at`, change)
	return err
}

func (s *Store) changeToken(ctx context.Context, p stepwell.CredentialPlace, mine, worker, set string, change func(map[string]string) bool) (c stepwell.HeldCredentials, saved bool, err error) {
	err = s.inTx(ctx, "save a token", func(tx pgx.Tx) error {
		row, key := credentialsRow(p)
		var sealed []byte
		var at *time.Time
		var ours bool
		err := tx.QueryRow(ctx, `SELECT sealed, token_at, coalesce(`+mine+`, false) FROM `+row+` FOR UPDATE`, append(key, worker)...).Scan(&sealed, &at, &ours)
		if errors.Is(err, pgx.ErrNoRows) {
			return stepwell.NotFound("System")
		}
		if err == nil {
			c, err = s.held(sealed, at, p)
		}
		if err != nil || !ours || !change(c.Values) {
			return err
		}
		if sealed, err = s.sealCredentials(c.Values, p); err != nil {
			return err
		}
		saved = true
		sql, key := updateOf(p, `sealed = $4, `+set)
		if err = tx.QueryRow(ctx, sql+` RETURNING token_at`, append(key, sealed)...).Scan(&at); err == nil && at != nil {
			c.TokenAt = *at
		}
		return err
	})
	return c, saved && err == nil, err
}
