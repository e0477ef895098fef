package service

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/api"
	"stepwell/internal/secret"
	"stepwell/store"
)

// keyPrefix begins every generated API key.
const keyPrefix = "sw"

// firstOrganization is the name of the organization that the first start makes.
const firstOrganization = "default"

// Keys implements api.Keys.
type Keys struct{ s *Service }

// Keys gives the service's API keys.
func (s *Service) Keys() *Keys { return &Keys{s} }

// knownCaller is a cached caller; expires is zero for a key without an end.
type knownCaller struct {
	caller  *stepwell.Caller
	expires time.Time
}

// usedKeys are keys that were used since it was last written down.
type usedKeys struct {
	mu sync.Mutex
	at map[[2]string]time.Time
}

func (u *usedKeys) note(org, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at[[2]string{org, id}] = time.Now()
}

func (u *usedKeys) take() map[[2]string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.at
	u.at = map[[2]string]time.Time{}
	return used
}

// Authenticate finds the caller of a key.
func (k *Keys) Authenticate(ctx context.Context, hash [32]byte) (*stepwell.Caller, error) {
	known, ok := k.s.callers.get(hash)
	if !ok || !known.expires.IsZero() && time.Now().After(known.expires) {
		before := k.s.callers.before()
		caller, expires, err := k.s.Store.CallerByKey(ctx, hash[:])
		if err != nil {
			return nil, err
		}
		known = knownCaller{caller, expires}
		k.s.callers.putSince(before, hash, known)
	}
	k.s.used.note(known.caller.OrgID, known.caller.KeyID)
	return known.caller, nil
}

// List gives a page of keys.
func (k *Keys) List(ctx context.Context, org string, page, limit int) (api.Listed[*stepwell.APIKey], error) {
	keys, total, err := k.s.Store.ListKeys(ctx, org, page, limit)
	return api.Listed[*stepwell.APIKey]{Items: keys, Total: total, More: page*limit < total}, err
}

// Create makes a key and gives its text, which is shown once.
func (k *Keys) Create(ctx context.Context, org string, key *stepwell.APIKey) (*stepwell.APIKey, string, error) {
	text := secret.NewAPIKey(keyPrefix)
	key.OrgID = org
	saved, _, err := k.s.Store.InsertKey(ctx, key, secret.HashAPIKey(text))
	return saved, text, err
}

// Update changes a key.
func (k *Keys) Update(ctx context.Context, org, id string, change func(*stepwell.APIKey) error) (*stepwell.APIKey, error) {
	saved, err := k.s.Store.UpdateKey(ctx, org, id, change)
	if err == nil {
		k.changed(ctx, org)
	}
	return saved, err
}

// Delete revokes a key.
func (k *Keys) Delete(ctx context.Context, org, id string) error {
	_, err := k.s.Store.UpdateKey(ctx, org, id, nil)
	if err == nil {
		k.changed(ctx, org)
	}
	return err
}

// changed makes every process forget whom it knows.
func (k *Keys) changed(ctx context.Context, org string) {
	k.s.callers.clear()
	if err := k.s.notifier.SendNow(ctx, store.Notice{Topic: store.TopicKeys, Words: []string{org}}); err != nil {
		k.s.Log.Warn("other processes see changed keys only after some seconds", zap.Error(err))
	}
}

// EnsureAdmin makes the first organization with an admin key when there is none, and
// makes preset an admin key when it is given. It gives the text of a key that it
// generated, else nothing.
func (s *Service) EnsureAdmin(ctx context.Context, preset string) (generated string, err error) {
	org, err := s.Store.FirstOrganization(ctx)
	if err != nil {
		return "", err
	}
	text := preset
	if org == "" {
		if org, err = createOrganization(ctx, s.Store, firstOrganization, byConfiguration); err != nil {
			return "", err
		}
		if text == "" {
			text = secret.NewAPIKey(keyPrefix)
			generated = text
		}
	}
	if text == "" {
		return "", nil
	}
	return generated, createAdmin(ctx, s.Store, org, text, byConfiguration)
}

// CreateOrganization makes an organization and gives its first admin key.
func CreateOrganization(ctx context.Context, s *store.Store, name string) (key string, err error) {
	org, err := createOrganization(ctx, s, name, byCommandLine)
	if err != nil {
		return "", err
	}
	key = secret.NewAPIKey(keyPrefix)
	return key, createAdmin(ctx, s, org, key, byCommandLine)
}

// createOrganization makes an organization and notes who did.
func createOrganization(ctx context.Context, s *store.Store, name, by string) (id string, err error) {
	if id, err = s.CreateOrganization(ctx, name); err != nil {
		return "", err
	}
	return id, s.AddAudit(ctx, stepwell.AuditEntry{OrgID: id, UserID: by, Action: "organization.create", TargetType: "organization", Target: id})
}

// createAdmin makes a text an admin key, if it is no key yet, and notes who did.
func createAdmin(ctx context.Context, s *store.Store, org, text, by string) error {
	k, inserted, err := s.InsertKey(ctx, &stepwell.APIKey{OrgID: org, Name: "admin", Role: stepwell.RoleAdmin}, secret.HashAPIKey(text))
	if err != nil || !inserted {
		return err
	}
	return s.AddAudit(ctx, stepwell.AuditEntry{OrgID: org, UserID: by, Action: "key.create", TargetType: "key", Target: k.ID})
}
