package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app"
)

// TestBulk cancels and reruns many runs; the server ends in the middle of the rerun and
// another goes on, and each run has one rerun.
func TestBulk(t *testing.T) {
	t.Parallel()
	const many = 120
	n := startNode(t, nil)
	var open atomic.Bool
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if !open.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, `{"ok":true}`)
	})
	ctx := t.Context()
	tool := n.tool(t, fmt.Sprintf(`{"id":"many","steps":[{"id":"get","config":{"url":"%s/?run=<<run>>"}}]}`, up.URL))
	other := n.tool(t, fmt.Sprintf(`{"id":"other","steps":[{"id":"get","config":{"url":"%s/?run=other"}}]}`, up.URL))
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			run := fmt.Sprint("m", i)
			n.run(t, tool, v1.RunRequest{RunID: run, Inputs: fmt.Appendf(nil, `{"run":%q}`, run), Options: &v1.RunOptions{Async: true}})
		})
	}
	n.run(t, other, v1.RunRequest{RunID: "other", Options: &v1.RunOptions{Async: true}})
	wg.Wait()

	if op, err := n.api.CancelMany(ctx, v1.BulkRequest{ToolID: tool, DryRun: true}); err != nil || op.Total != many || op.Status != "dry_run" {
		t.Fatalf("a dry run: %+v, %v", op, err)
	}
	cancelled, err := n.api.CancelMany(ctx, v1.BulkRequest{ToolID: tool})
	if err != nil || cancelled.Total != many {
		t.Fatalf("cancel: %+v, %v", cancelled, err)
	}
	// A run that ends before its turn cannot be in the way of the others.
	if cancelled, err = n.api.WaitBulk(ctx, cancelled.ID); err != nil || cancelled.Done != many || cancelled.Status != "finished" {
		t.Fatalf("cancelled: %+v, %v", cancelled, err)
	}
	if run, err := n.api.GetRun(ctx, "other"); err != nil || run.Status != "running" {
		t.Errorf("the run of another tool is %+v, %v", run, err)
	}
	for i := range many {
		if run, err := n.api.GetRun(ctx, fmt.Sprint("m", i)); err != nil || run.Status != "aborted" {
			t.Fatalf("m%d is %+v, %v", i, run, err)
		}
	}

	open.Store(true)
	const id = "0198a5a8-0000-4000-8000-000000000001"
	if _, err := n.api.RerunMany(ctx, v1.BulkRequest{ID: id, ToolID: tool, Status: "aborted"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.api.RerunMany(ctx, v1.BulkRequest{ID: id, ToolID: tool}); client.Status(err) != http.StatusConflict {
		t.Errorf("a second operation with the id: %v", err)
	}
	n.stop() // wherever it is
	n2 := startParts(t, n.cfg, app.Parts{Server: true, Worker: true})
	rerun, err := n2.api.WaitBulk(ctx, id)
	if err != nil || rerun.Total != many || rerun.Done != many {
		t.Fatalf("rerun: %+v, %v", rerun, err)
	}
	for i := range many {
		list, err := n2.api.ListRuns(ctx, client.Page{}, client.RunFilter{RerunOf: fmt.Sprint("m", i)})
		if err != nil || len(list.Data) != 1 {
			t.Fatalf("m%d has %d reruns (%v)", i, len(list.Data), err)
		}
		if run := n2.waitFinal(t, list.Data[0].RunID, time.Minute); run.Status != "success" {
			t.Errorf("%s is %s: %s", run.RunID, run.Status, run.Error)
		}
	}

	// What cannot be rerun says why.
	if _, err := n2.api.UpdateTool(ctx, tool, v1.ToolUpdate{Archived: v1.Some(true)}); err != nil {
		t.Fatal(err)
	}
	refused, err := n2.api.RerunMany(ctx, v1.BulkRequest{All: true})
	if err == nil {
		refused, err = n2.api.WaitBulk(ctx, refused.ID)
	}
	if err != nil || refused.Failed != many || len(refused.Errors) != 100 || !strings.Contains(refused.Errors[0].Message, "archived") {
		t.Errorf("reruns of an archived tool: %+v, %v", refused, err)
	}
}
