package api

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"stepwell"
)

// memoryBulk counts as many runs as a query's userId is long and keeps nothing.
type memoryBulk struct{ *memory }

func (m memoryBulk) Count(_ context.Context, _ string, _ stepwell.BulkKind, q RunQuery) (int, error) {
	if q.UserID == "many" {
		return 12_345, m.fail
	}
	return len(q.UserID), m.fail
}

func (m memoryBulk) Begin(_ context.Context, op *stepwell.BulkOperation, q RunQuery) error {
	op.CreatedAt, op.Total = memoryTime, len(q.UserID)
	if q.OnlyTools != nil {
		op.Total = len(q.OnlyTools)
	}
	return m.fail
}

func (m memoryBulk) Get(_ context.Context, org, id string) (*stepwell.BulkOperation, error) {
	if m.fail != nil || org != "acme" || id != testBulk {
		return nil, stepwell.NotFound("Operation")
	}
	return &stepwell.BulkOperation{OrgID: org, ID: id, Kind: stepwell.BulkRerun, Caller: stepwell.Caller{UserID: "rob"}, Total: 3, Done: 1, Failed: 1, Skipped: 1,
		Errors: []stepwell.BulkError{{Run: "r1", Message: "Tool not found"}}, CreatedAt: memoryTime, CompletedAt: memoryTime}, nil
}

const testBulk = "0198a5a8-0000-7000-8000-0000000000ff"

// TestStaticRunPaths: a run may be called cancel, rerun or bulk.
func TestStaticRunPaths(t *testing.T) {
	t.Parallel()
	m := newMemory()
	for _, id := range []string{"cancel", "rerun", "bulk"} {
		m.runs["acme/"+id] = m.ended(id, "orders", stepwell.RunSuccess, `{}`)
	}
	m.results["acme/bulk"] = m.results["acme/run-1"]
	h := newTestAPI(m, nil)
	for _, path := range []string{"/runs/cancel", "/runs/rerun", "/runs/bulk", "/runs/cancel/results", "/runs/bulk/results", "/runs/bulk/files"} {
		if res, body := adminAsks(t, h, "GET", path, ""); res.StatusCode != http.StatusOK || strings.Contains(body, `"kind"`) {
			t.Errorf("GET %s: %d %s", path, res.StatusCode, body)
		}
	}
	if res, body := adminAsks(t, h, "POST", "/runs/bulk/cancel", ""); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "has ended") {
		t.Errorf("a cancel of the run bulk: %d %s", res.StatusCode, body)
	}
	if res, body := adminAsks(t, h, "DELETE", "/runs/cancel", ""); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d %s", res.StatusCode, body)
	}
}
