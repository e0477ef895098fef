package client

import (
	"context"

	"stepwell/api/v1"
)

func endUserPath(id string) string { return "/end-users/" + escape(id) }

// CreateEndUser makes an end user; the text of its key is in the answer, and nowhere else
// ever. It is not repeated after a broken connection: the repeat might make a second one.
func (c *Client) CreateEndUser(ctx context.Context, u v1.EndUserCreate) (*v1.EndUser, error) {
	return endUser(change[v1.EndUserAnswer](ctx, c, call{method: "POST", path: "/end-users", body: u}))
}

// endUser takes the end user out of an answer.
func endUser(answer *v1.EndUserAnswer, err error) (*v1.EndUser, error) {
	if err != nil {
		return nil, err
	}
	return &answer.Data, nil
}

// GetEndUser gives an end user with the systems that it connected or may be asked to.
func (c *Client) GetEndUser(ctx context.Context, id string) (*v1.EndUser, error) {
	return endUser(get[v1.EndUserAnswer](ctx, c, endUserPath(id), nil))
}

// ListEndUsers gives a page of end users, newest first.
func (c *Client) ListEndUsers(ctx context.Context, p Page) (*v1.List[v1.EndUser], error) {
	return get[v1.List[v1.EndUser]](ctx, c, "/end-users", p.values())
}

// UpdateEndUser changes the fields of an end user that are set in u.
func (c *Client) UpdateEndUser(ctx context.Context, id string, u v1.EndUserUpdate) (*v1.EndUser, error) {
	return endUser(change[v1.EndUserAnswer](ctx, c, call{method: "PATCH", path: endUserPath(id), body: u, repeatable: true}))
}

// DeleteEndUser deletes an end user with its key, credentials and portal link.
func (c *Client) DeleteEndUser(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: "DELETE", path: endUserPath(id), repeatable: true}, nil)
	return err
}

// ConnectEndUser replaces the credentials of an end user for a system.
func (c *Client) ConnectEndUser(ctx context.Context, id, system string, credentials map[string]string) error {
	_, err := c.do(ctx, call{method: "PUT", path: endUserPath(id) + "/credentials/" + escape(system),
		body: v1.EndUserCredentials{Credentials: credentials}, repeatable: true}, nil)
	return err
}

// DisconnectEndUser removes the credentials of an end user for a system, if there are any.
func (c *Client) DisconnectEndUser(ctx context.Context, id, system string) error {
	_, err := c.do(ctx, call{method: "DELETE", path: endUserPath(id) + "/credentials/" + escape(system), repeatable: true}, nil)
	return err
}

// PortalLink makes a link to the portal for an end user, which ends the one before. Whoever
// has it can connect the end user's systems.
func (c *Client) PortalLink(ctx context.Context, id string) (*v1.PortalLinkData, error) {
	answer, err := change[v1.PortalLink](ctx, c, call{method: "POST", path: endUserPath(id) + "/portal-token"})
	if err != nil {
		return nil, err
	}
	return &answer.Data, nil
}

// ListAudit gives a page of the audit log, newest first.
func (c *Client) ListAudit(ctx context.Context, p Page) (*v1.List[v1.AuditEntry], error) {
	return get[v1.List[v1.AuditEntry]](ctx, c, "/audit", p.values())
}
