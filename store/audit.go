package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stepwell"
)

// AddAudit adds a row to the audit log. Its id and time are made here; an empty OrgID
// stands for every organization, for what concerns the whole installation.
func (s *Store) AddAudit(ctx context.Context, e stepwell.AuditEntry) error {
	if e.OrgID == "" {
		_, err := s.pool.Exec(ctx, `INSERT INTO audit (org_id, id, user_id, action, target_type, target, trace_id)
			SELECT o.id, gen_random_uuid(), $1, $2, $3, $4, $5 FROM organizations o`, e.UserID, e.Action, e.TargetType, e.Target, e.TraceID)
		return s.wrap("write audit", err)
	}
	_, err := s.pool.Exec(ctx, `INSERT INTO audit (org_id, id, user_id, action, target_type, target, trace_id) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		e.OrgID, uuid.Must(uuid.NewV7()).String(), e.UserID, e.Action, e.TargetType, e.Target, e.TraceID)
	return s.wrap("write audit", err)
}

// ListAudit gives a page of an organization's audit log, newest first. total stops at a
// bound; more reports whether a later page has rows.
func (s *Store) ListAudit(ctx context.Context, org string, page, limit int) (entries []*stepwell.AuditEntry, total int, more bool, err error) {
	var b pgx.Batch
	b.Queue(`SELECT count(*) FROM (SELECT FROM audit WHERE org_id = $1 LIMIT $2) AS a`, org, countBound).
		QueryRow(func(row pgx.Row) error { return row.Scan(&total) })
	b.Queue(`SELECT org_id, id::text, created_at, user_id, action, target_type, target, trace_id FROM audit WHERE org_id = $1
		ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, org, limit+1, offset(page, limit)).Query(func(rows pgx.Rows) error {
		entries, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.AuditEntry, error) {
			var e stepwell.AuditEntry
			return &e, row.Scan(&e.OrgID, &e.ID, &e.CreatedAt, &e.UserID, &e.Action, &e.TargetType, &e.Target, &e.TraceID)
		})
		return err
	})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, 0, false, s.wrap("list audit", err)
	}
	if more = len(entries) > limit; more {
		entries = entries[:limit]
	}
	if len(entries) > 0 {
		total = max(total, offset(page, limit)+len(entries))
	}
	return entries, total, more, nil
}
