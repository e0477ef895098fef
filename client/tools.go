package client

import (
	"context"
	"net/url"
	"strconv"

	"stepwell/api/v1"
)

// Health reports nil when the service can serve requests. It needs no key.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.do(ctx, call{method: "GET", path: "/health", repeatable: true}, nil)
	return err
}

// Me says who the client's key is.
func (c *Client) Me(ctx context.Context) (*v1.Me, error) {
	return get[v1.Me](ctx, c, "/me", nil)
}

// get reads one thing.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (*T, error) {
	return change[T](ctx, c, call{method: "GET", path: path, query: query, repeatable: true})
}

// change makes a call that answers with one thing.
func change[T any](ctx context.Context, c *Client, in call) (*T, error) {
	out := new(T)
	if _, err := c.do(ctx, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Page asks for one page of a list. Zero values mean the service's defaults.
type Page struct {
	Page  int // from 1
	Limit int
}

func (p Page) values() url.Values {
	v := url.Values{}
	if p.Page > 0 {
		v.Set("page", strconv.Itoa(p.Page))
	}
	if p.Limit > 0 {
		v.Set("limit", strconv.Itoa(p.Limit))
	}
	return v
}

// CreateTool saves a new tool. It is not repeated after a broken connection: the
// repeat might make a second tool.
func (c *Client) CreateTool(ctx context.Context, t v1.ToolCreate) (*v1.Tool, error) {
	return change[v1.Tool](ctx, c, call{method: "POST", path: "/tools", body: t})
}

// GetTool gives the latest version of a tool.
func (c *Client) GetTool(ctx context.Context, id string) (*v1.Tool, error) {
	return get[v1.Tool](ctx, c, toolPath(id), nil)
}

func toolPath(id string) string { return "/tools/" + escape(id) }

// ListTools gives a page of tools, newest first.
func (c *Client) ListTools(ctx context.Context, p Page, includeArchived bool) (*v1.List[v1.Tool], error) {
	q := p.values()
	if includeArchived {
		q.Set("includeArchived", "true")
	}
	return get[v1.List[v1.Tool]](ctx, c, "/tools", q)
}

// UpdateTool changes the fields of a tool that are set in u.
func (c *Client) UpdateTool(ctx context.Context, id string, u v1.ToolUpdate) (*v1.Tool, error) {
	return change[v1.Tool](ctx, c, call{method: "PUT", path: toolPath(id), body: u, repeatable: true})
}

// DeleteTool removes a tool. When a repeat after a broken connection finds that it is
// gone, the error has status 404.
func (c *Client) DeleteTool(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: "DELETE", path: toolPath(id), repeatable: true}, nil)
	return err
}

// ToolVersions gives all versions of a tool, newest first.
func (c *Client) ToolVersions(ctx context.Context, id string) ([]v1.Tool, error) {
	all, err := get[v1.Whole[v1.Tool]](ctx, c, toolPath(id)+"/versions", nil)
	if err != nil {
		return nil, err
	}
	return all.Data, nil
}

// ToolVersion gives one version of a tool.
func (c *Client) ToolVersion(ctx context.Context, id, version string) (*v1.Tool, error) {
	return get[v1.Tool](ctx, c, toolPath(id)+"/versions/"+escape(version), nil)
}

// RestoreTool makes a new version of a tool with the content of an earlier one.
func (c *Client) RestoreTool(ctx context.Context, id, version string) (*v1.Tool, error) {
	return change[v1.Tool](ctx, c, call{method: "POST", path: toolPath(id) + "/versions/" + escape(version) + "/restore"})
}

// CreateAPIKey makes a key; its text is in the answer, and nowhere else ever.
func (c *Client) CreateAPIKey(ctx context.Context, k v1.APIKeyCreate) (*v1.APIKey, error) {
	return change[v1.APIKey](ctx, c, call{method: "POST", path: "/api-keys", body: k})
}

// ListAPIKeys gives a page of keys, newest first.
func (c *Client) ListAPIKeys(ctx context.Context, p Page) (*v1.List[v1.APIKey], error) {
	return get[v1.List[v1.APIKey]](ctx, c, "/api-keys", p.values())
}

// UpdateAPIKey changes the fields of a key that are set in u.
func (c *Client) UpdateAPIKey(ctx context.Context, id string, u v1.APIKeyUpdate) (*v1.APIKey, error) {
	return change[v1.APIKey](ctx, c, call{method: "PATCH", path: "/api-keys/" + escape(id), body: u, repeatable: true})
}

// DeleteAPIKey revokes a key.
func (c *Client) DeleteAPIKey(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: "DELETE", path: "/api-keys/" + escape(id), repeatable: true}, nil)
	return err
}
