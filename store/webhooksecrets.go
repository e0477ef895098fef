package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stepwell"
)

const (
	webhookSecretBytes = 32             // Standard Webhooks asks for 24 to 64
	oldSecretFor       = 24 * time.Hour // that a secret stays valid beside a newer one
)

// WebhookSecrets reads the valid signing secrets of an organization, newest first. The
// first is made when it is needed first.
func (s *Store) WebhookSecrets(ctx context.Context, org string) ([]stepwell.WebhookSecret, error) {
	secrets, err := s.webhookSecrets(ctx, s.pool, org)
	if err != nil || len(secrets) > 0 {
		return secrets, s.wrap("read webhook secrets", err)
	}
	err = s.inTx(ctx, "make webhook secret", func(tx pgx.Tx) error {
		if err := s.firstSecret(ctx, tx, org); err != nil {
			return err
		}
		secrets, err = s.webhookSecrets(ctx, tx, org)
		return err
	})
	return secrets, err
}

// RotateWebhookSecret makes a new signing secret, and lets the others expire in a day.
func (s *Store) RotateWebhookSecret(ctx context.Context, org string) (*stepwell.WebhookSecret, error) {
	var made *stepwell.WebhookSecret
	err := s.inTx(ctx, "make webhook secret", func(tx pgx.Tx) error {
		if err := s.firstSecret(ctx, tx, org); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM webhook_secrets WHERE org_id = $1 AND expires_at < clock_timestamp()`, org); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE webhook_secrets SET expires_at = clock_timestamp() + $2::interval WHERE org_id = $1 AND expires_at IS NULL`, org, oldSecretFor)
		if err != nil {
			return err
		}
		made, err = s.insertSecret(ctx, tx, org)
		return err
	})
	return made, err
}

// firstSecret makes sure that an organization has a secret. Until the transaction ends
// nobody else changes its secrets.
func (s *Store) firstSecret(ctx context.Context, tx pgx.Tx, org string) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('webhook secrets ' || $1, 0))`, org); err != nil {
		return err
	}
	var there bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM webhook_secrets WHERE org_id = $1 AND expires_at IS NULL)`, org).Scan(&there)
	if err != nil || there {
		return err
	}
	_, err = s.insertSecret(ctx, tx, org)
	return err
}

func (s *Store) insertSecret(ctx context.Context, tx pgx.Tx, org string) (*stepwell.WebhookSecret, error) {
	w := &stepwell.WebhookSecret{ID: uuid.Must(uuid.NewV7()).String(), Key: make([]byte, webhookSecretBytes)}
	rand.Read(w.Key) // never fails
	sealed, err := s.sealer.Seal(w.Key, "webhook_secrets", org, w.ID)
	if err != nil {
		return nil, err
	}
	err = tx.QueryRow(ctx, `INSERT INTO webhook_secrets (org_id, id, sealed) VALUES ($1, $2, $3) RETURNING created_at`, org, w.ID, sealed).Scan(&w.CreatedAt)
	return w, err
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Store) webhookSecrets(ctx context.Context, q querier, org string) ([]stepwell.WebhookSecret, error) {
	rows, err := q.Query(ctx, `SELECT id, sealed, created_at, expires_at FROM webhook_secrets
		WHERE org_id = $1 AND (expires_at IS NULL OR expires_at > clock_timestamp()) ORDER BY created_at DESC, id DESC`, org)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (w stepwell.WebhookSecret, err error) {
		var sealed []byte
		var expires *time.Time
		if err := row.Scan(&w.ID, &sealed, &w.CreatedAt, &expires); err != nil {
			return w, err
		}
		if expires != nil {
			w.ExpiresAt = *expires
		}
		if w.Key, err = s.sealer.Open(sealed, "webhook_secrets", org, w.ID); err != nil {
			return w, fmt.Errorf("open webhook secret %s: %w", w.ID, err)
		}
		return w, nil
	})
}
