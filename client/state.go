package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"stepwell/api/v1"
)

// ToolState gives the persistent state of a tool, and its ETag for PutToolState.
func (c *Client) ToolState(ctx context.Context, id string) (state *v1.State, etag string, err error) {
	res, err := c.send(ctx, call{method: "GET", path: toolPath(id) + "/state", repeatable: true})
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	state = new(v1.State)
	if err := json.NewDecoder(res.Body).Decode(state); err != nil {
		return nil, "", fmt.Errorf("read the state of tool %s: %w", id, err)
	}
	return state, res.Header.Get("ETag"), nil
}

// PutToolState replaces the whole state of a tool, an object. With the ETag that was read
// before, the answer's warnings name the keys that others changed since; it may be empty.
func (c *Client) PutToolState(ctx context.Context, id string, state json.RawMessage, etag string) (*v1.StateWritten, error) {
	in := call{method: "PUT", path: toolPath(id) + "/state", body: v1.StatePut{State: state}, repeatable: true}
	if etag != "" {
		in.header = http.Header{"If-Match": {etag}}
	}
	return change[v1.StateWritten](ctx, c, in)
}

// ResetToolState removes all keys of a tool's state.
func (c *Client) ResetToolState(ctx context.Context, id string) (*v1.StateReset, error) {
	return change[v1.StateReset](ctx, c, call{method: "DELETE", path: toolPath(id) + "/state", repeatable: true})
}
