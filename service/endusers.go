package service

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"time"

	"stepwell"
	"stepwell/api"
	"stepwell/internal/secret"
)

// EndUsers implements api.EndUsers.
type EndUsers struct{ s *Service }

// EndUsers gives the service's end users.
func (s *Service) EndUsers() *EndUsers { return &EndUsers{s} }

// Create saves a new end user with a key that may run the tools (nil: all), and gives the
// key's text, which is shown once.
func (e *EndUsers) Create(ctx context.Context, u *stepwell.EndUser, tools []string) (*stepwell.EndUser, string, error) {
	text := secret.NewAPIKey(keyPrefix)
	saved, err := e.s.Store.CreateEndUser(ctx, u, secret.HashAPIKey(text), tools)
	return saved, text, err
}

// Get gives an end user with its connections.
func (e *EndUsers) Get(ctx context.Context, org, id string) (*stepwell.EndUser, []stepwell.Connection, error) {
	u, err := e.s.Store.EndUser(ctx, org, id)
	if err != nil {
		return nil, nil, err
	}
	connections, err := e.s.Store.Connections(ctx, org, id)
	return u, connections, err
}

// List gives a page of end users.
func (e *EndUsers) List(ctx context.Context, org string, page, limit int) (api.Listed[*stepwell.EndUser], error) {
	users, total, err := e.s.Store.ListEndUsers(ctx, org, page, limit)
	return api.Listed[*stepwell.EndUser]{Items: users, Total: total, More: page*limit < total}, err
}

// Update changes an end user.
func (e *EndUsers) Update(ctx context.Context, org, id string, change func(*stepwell.EndUser) error) (*stepwell.EndUser, error) {
	return e.s.Store.UpdateEndUser(ctx, org, id, change)
}

// Delete deletes an end user; its key is refused from then on.
func (e *EndUsers) Delete(ctx context.Context, org, id string) error {
	err := e.s.Store.DeleteEndUser(ctx, org, id)
	if err == nil {
		e.s.Keys().changed(ctx, org)
	}
	return err
}

// Connect replaces what an end user connected to a system, which must exist.
func (e *EndUsers) Connect(ctx context.Context, org, id, system string, values map[string]string) error {
	if _, err := e.s.Store.EndUser(ctx, org, id); err != nil {
		return err
	}
	if _, err := e.s.Store.System(ctx, org, system, ""); err != nil {
		return err
	}
	return e.s.Store.PutEndUserCredentials(ctx, org, id, system, values)
}

// Disconnect removes what an end user connected to a system, if anything.
func (e *EndUsers) Disconnect(ctx context.Context, org, id, system string) error {
	if _, err := e.s.Store.EndUser(ctx, org, id); err != nil {
		return err
	}
	return e.s.Store.DeleteEndUserCredentials(ctx, org, id, system)
}

// Access says what stands against a run of a tool for an end user.
func (e *EndUsers) Access(ctx context.Context, org, id string, t *stepwell.Tool, mode string) (stepwell.SystemAccess, error) {
	return e.s.Store.SystemAccess(ctx, org, id, t.Systems(), mode)
}

// PortalLink makes the token of a new portal link, which ends the one before.
func (e *EndUsers) PortalLink(ctx context.Context, org, id string) (token string, expires time.Time, err error) {
	token, expires = rand.Text(), time.Now().Add(e.s.PortalLinkLife)
	return token, expires, e.s.Store.PutPortalLink(ctx, org, id, portalHash(token), expires)
}

// portalHash is the form in which tokens of links and sessions are stored: they have 130
// random bits, too many for a slow hash to matter.
func portalHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
