package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"stepwell"
	"stepwell/api/v1"
)

// bulkFilters are the fields of a bulk request that select runs: the names of the query of
// GET /runs.
var bulkFilters = []string{"toolId", "status", "requestSources", "userId", "systemId", "rerunOf", "parentRunId", "startedAfter", "startedBefore"}

// bulkRequest is the body of a bulk operation.
type bulkRequest struct {
	op     stepwell.BulkOperation
	query  RunQuery
	dryRun bool
}

// parseBulk reads the body of a bulk operation. Unlike elsewhere an unknown field is
// refused: a misspelt filter would select all runs.
func parseBulk(kind stepwell.BulkKind) func(*request) (bulkRequest, error) {
	return func(req *request) (in bulkRequest, err error) {
		o := req.body
		in.op.Kind, in.op.ID, in.dryRun = kind, o.text("id"), o.flag("dryRun")
		all := o.flag("all")
		q := queryReader{values: url.Values{}}
		filtered := all
		for _, m := range o.members {
			switch {
			case slices.Contains(bulkFilters, m.key):
				if text := o.text(m.key); text != "" {
					q.values.Set(m.key, text)
					// All runs that a cancel is about are running.
					filtered = filtered || m.key != "status" || kind != stepwell.BulkCancel
				}
			case !slices.Contains([]string{"id", "dryRun", "all"}, m.key):
				return in, stepwell.Invalid("invalid_field", "'%.100s' is not a filter: use %s", m.key, strings.Join(bulkFilters, ", "))
			}
		}
		if in.op.ID != "" && uuid.Validate(in.op.ID) != nil {
			o.fail("id", "a UUID")
		}
		in.query = q.runFilter()
		switch {
		case req.fields.err != nil:
			return in, req.fields.err
		case q.err != nil: // of a field here, not of a query
			return in, stepwell.Invalid("invalid_field", "%s", stepwell.MessageOf(q.err))
		case kind == stepwell.BulkCancel && in.query.Status != "" && in.query.Status != stepwell.RunRunning:
			return in, stepwell.Invalid("invalid_field", "'status' must be running: only running runs can be cancelled")
		case kind == stepwell.BulkRerun && in.query.Status != "" && in.query.Status != stepwell.RunFailed && in.query.Status != stepwell.RunAborted:
			return in, stepwell.Invalid("invalid_field", "'status' must be failed or aborted: only such runs are rerun in bulk")
		case !filtered:
			return in, stepwell.Invalid("no_filter", "Say which runs: give a filter (%s), or 'all': true for all of them", strings.Join(bulkFilters, ", "))
		}
		return in, nil
	}
}

// beginBulk accepts a bulk operation, or with dryRun only counts.
func (a *API) beginBulk(ctx context.Context, req *request, in bulkRequest) (*response, error) {
	op := in.op
	op.OrgID, op.Caller = req.caller.OrgID, *req.caller
	in.query.OnlyTools = req.caller.Tools
	n, err := a.Bulk.Count(ctx, op.OrgID, op.Kind, in.query)
	switch {
	case err != nil:
		return nil, err
	case in.dryRun:
		return &response{status: http.StatusOK, body: v1.Bulk{Data: v1.BulkOperation{Kind: string(op.Kind), Status: bulkDry, Total: n, Errors: []v1.BulkError{}}}}, nil
	case n > stepwell.MaxBulk:
		return nil, stepwell.Invalid("too_many_runs", "The filter selects %d runs, more than the %d of one operation: narrow it, for example with startedAfter and startedBefore", n, stepwell.MaxBulk)
	}
	if op.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		op.ID = id.String()
	}
	if err := a.Bulk.Begin(ctx, &op, in.query); err != nil {
		return nil, err
	}
	return &response{status: http.StatusAccepted, made: op.ID, body: v1.Bulk{Data: wireBulk(&op)}}, nil
}

// getBulk answers with the progress of an operation. A key for some tools reads those of
// its own user only.
func (a *API) getBulk(ctx context.Context, req *request, _ none) (*response, error) {
	op, err := a.Bulk.Get(ctx, req.caller.OrgID, req.vars["bulkId"])
	if err != nil {
		return nil, err
	}
	if req.caller.Tools != nil && op.Caller.UserID != req.caller.UserID {
		return nil, stepwell.NotFound("Operation")
	}
	return &response{body: v1.Bulk{Data: wireBulk(op)}}, nil
}

// Statuses of bulk operations.
const (
	bulkDry      = "dry_run"
	bulkRunning  = "running"
	bulkFinished = "finished"
)

func wireBulk(op *stepwell.BulkOperation) v1.BulkOperation {
	out := v1.BulkOperation{ID: op.ID, Kind: string(op.Kind), Status: bulkRunning, Total: op.Total, Done: op.Done, Skipped: op.Skipped, Failed: op.Failed,
		UserID: op.Caller.UserID, CreatedAt: wireTime(op.CreatedAt), CompletedAt: wireTime(op.CompletedAt),
		Errors: each(op.Errors, func(e stepwell.BulkError) v1.BulkError { return v1.BulkError{RunID: e.Run, Message: e.Message} })}
	if !op.CompletedAt.IsZero() {
		out.Status = bulkFinished
	}
	return out
}
