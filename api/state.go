package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"stepwell"
	"stepwell/api/v1"
)

func (a *API) getState(ctx context.Context, req *request, _ none) (*response, error) {
	state, err := a.States.Get(ctx, req.caller.OrgID, req.tool)
	if err != nil {
		return nil, err
	}
	return &response{header: stateHeader(req.tool, state.Seq), body: v1.State{ToolID: req.tool.ID, State: state.Values}}, nil
}

// statePut is the input of PUT /tools/<toolId>/state.
type statePut struct {
	state   json.RawMessage
	ifMatch string
}

func parseState(req *request) (statePut, error) {
	in := statePut{state: req.body.rawObject("state"), ifMatch: req.header.Get("If-Match")}
	if in.state == nil {
		req.body.fail("state", "an object, the whole state")
	}
	return in, req.fields.err
}

func (a *API) putState(ctx context.Context, req *request, in statePut) (*response, error) {
	since, err := matched(req.tool, in.ifMatch)
	if err != nil {
		return nil, err
	}
	put, err := a.States.Put(ctx, req.caller.OrgID, req.tool, since, in.state)
	if err != nil {
		return nil, err
	}
	if put.Warnings == nil {
		put.Warnings = []string{}
	}
	return &response{header: stateHeader(req.tool, put.Seq), body: v1.StateWritten{ToolID: req.tool.ID, Warnings: put.Warnings}}, nil
}

func (a *API) resetState(ctx context.Context, req *request, _ none) (*response, error) {
	deleted, err := a.States.Reset(ctx, req.caller.OrgID, req.tool)
	if err != nil {
		return nil, err
	}
	return &response{body: v1.StateReset{ToolID: req.tool.ID, DeletedKeys: deleted}}, nil
}

// stateHeader holds the ETag of a state: its number, and when the tool was made, for the
// numbers begin again with a tool that takes the id of a deleted one.
func stateHeader(t *stepwell.Tool, seq int64) http.Header {
	return http.Header{"Etag": {`"` + strconv.FormatInt(seq, 10) + "-" + madeAt(t) + `"`}}
}

func madeAt(t *stepwell.Tool) string { return strconv.FormatInt(t.CreatedAt.UnixMicro(), 36) }

// matched gives the number in an If-Match header; nil without one. Of an earlier tool's
// state every key is another one.
func matched(t *stepwell.Tool, header string) (*int64, error) {
	header = strings.TrimSpace(header)
	if header == "" || header == "*" {
		return nil, nil
	}
	// Proxies that compress an answer make its ETag a weak one.
	quoted := strings.TrimPrefix(header, "W/")
	number, made, ok := strings.Cut(strings.Trim(quoted, `"`), "-")
	seq, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || seq < 0 || len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return nil, stepwell.Invalid("invalid_header", "'If-Match' must be the ETag of an earlier answer of this path")
	}
	if made != madeAt(t) {
		seq = 0
	}
	return &seq, nil
}
