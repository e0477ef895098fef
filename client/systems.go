package client

import (
	"context"
	"net/url"

	"stepwell/api/v1"
)

// ListSystems gives a page of systems, newest first, one for each environment of an id.
func (c *Client) ListSystems(ctx context.Context, p Page) (*v1.List[v1.System], error) {
	return get[v1.List[v1.System]](ctx, c, "/systems", p.values())
}

// CreateSystem saves a new system.
func (c *Client) CreateSystem(ctx context.Context, create v1.SystemCreate) (*v1.System, error) {
	return change[v1.System](ctx, c, call{method: "POST", path: "/systems", body: create})
}

// GetSystem reads a system of an environment, prod or dev; empty means prod if there is
// one, else dev. Its credentials are not shown.
func (c *Client) GetSystem(ctx context.Context, id, environment string) (*v1.System, error) {
	return get[v1.System](ctx, c, "/systems/"+escape(id), inEnvironment(environment))
}

// UpdateSystem changes the fields of a system that are set in u. The system is picked as
// by GetSystem.
func (c *Client) UpdateSystem(ctx context.Context, id, environment string, u v1.SystemUpdate) (*v1.System, error) {
	return change[v1.System](ctx, c, call{method: "PATCH", path: "/systems/" + escape(id), query: inEnvironment(environment), body: u, repeatable: true})
}

// DeleteSystem deletes a system, picked as by GetSystem.
func (c *Client) DeleteSystem(ctx context.Context, id, environment string) error {
	// Without an environment a second one would take the other environment's.
	_, err := c.do(ctx, call{method: "DELETE", path: "/systems/" + escape(id), query: inEnvironment(environment), repeatable: environment != ""}, nil)
	return err
}

func inEnvironment(environment string) url.Values {
	if environment == "" {
		return nil
	}
	return url.Values{"environment": {environment}}
}
