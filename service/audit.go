package service

import (
	"context"

	"stepwell"
	"stepwell/api"
	"stepwell/store"
)

// Who changed what, when no key did.
const (
	byCommandLine   = "command line"
	byConfiguration = "configuration"
)

// Audit implements api.Audit.
type Audit struct{ s *Service }

// Audit gives the service's audit log.
func (s *Service) Audit() *Audit { return &Audit{s} }

// AuditRotation notes, for every organization, that its secrets are sealed under the key
// with an id.
func AuditRotation(ctx context.Context, s *store.Store, key string) error {
	return s.AddAudit(ctx, stepwell.AuditEntry{UserID: byCommandLine, Action: "encryption_key.rotate", TargetType: "encryption_key", Target: key})
}

// Add adds a row.
func (a *Audit) Add(ctx context.Context, e stepwell.AuditEntry) error {
	return a.s.Store.AddAudit(ctx, e)
}

// List gives a page of the log.
func (a *Audit) List(ctx context.Context, org string, page, limit int) (api.Listed[*stepwell.AuditEntry], error) {
	entries, total, more, err := a.s.Store.ListAudit(ctx, org, page, limit)
	return api.Listed[*stepwell.AuditEntry]{Items: entries, Total: total, More: more}, err
}
