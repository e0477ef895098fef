package api

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"stepwell"
	"stepwell/api/v1"
	"stepwell/client"
)

// TestClientSpeaksTheSame takes a tool through its life with the Go client.
func TestClientSpeaksTheSame(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.finish = func(n NewRun, r *stepwell.Run) {
		r.Data, r.DataSize = n.Inputs, int64(len(n.Inputs))
		r.StepResults = []stepwell.StepResult{{StepID: "a", Success: true, Data: json.RawMessage(`[1]`), Pages: 1, Items: 1}}
	}
	srv := httptest.NewServer(newTestAPI(m, nil))
	t.Cleanup(srv.Close)
	ctx, c := t.Context(), client.New(srv.URL+"/v1", "admin-key")

	if err := c.Health(ctx); err != nil {
		t.Fatal(err)
	}
	modify := false
	step := v1.Step{ID: "a", Modify: &modify, Config: v1.StepConfig{URL: "http://a/<<id>>", Headers: map[string]json.RawMessage{"X": json.RawMessage(`"1"`)}}}
	tool, err := c.CreateTool(ctx, v1.ToolCreate{ID: "mine", Name: "Mine", Steps: []v1.Step{step}})
	if err != nil || !tool.CreatedAt.Equal(memoryTime.Truncate(1e6)) || *tool.Steps[0].Modify || tool.Steps[0].Config.URL != step.Config.URL {
		t.Fatalf("%+v %v", tool, err)
	}
	if tool, err = c.UpdateTool(ctx, "mine", v1.ToolUpdate{Name: v1.Null[string](), Archived: v1.Some(false), Folder: v1.Some("f")}); err != nil || tool.Name != "" || tool.Folder != "f" || len(tool.Steps) != 1 {
		t.Fatalf("%+v %v", tool, err)
	}
	run, err := c.Run(ctx, "mine", v1.RunRequest{RunID: "r1", Inputs: json.RawMessage(`{"n":12345678901234567890,"t":"<a>"}`)})
	if err != nil || run.Status != "success" || string(run.Data) != `{"n":12345678901234567890,"t":"<a>"}` || *run.StepResults[0].Items != 1 || *run.Metadata.DurationMS != 1000 {
		t.Fatalf("%+v %v", run, err)
	}
	if _, err = c.Run(ctx, "mine", v1.RunRequest{RunID: "r1"}); client.Status(err) != 409 {
		t.Fatal(err)
	}
	if run, err = c.Cancel(ctx, "run-3"); err != nil || run.Status != "aborted" {
		t.Fatalf("%+v %v", run, err)
	}
	results, err := c.Results(ctx, "run-1")
	if err != nil || len(results.Data.StepResults) != 2 || string(results.Data.Data) != `{"n":9007199254740993}` {
		t.Fatalf("%+v %v", results, err)
	}
	runs, err := c.ListRuns(ctx, client.Page{Limit: 2}, client.RunFilter{ToolID: "orders", Status: "success"})
	if err != nil || runs.Limit != 2 || len(runs.Data) != 3 {
		t.Fatalf("%+v %v", runs, err)
	}
	if err := c.DeleteTool(ctx, "mine"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetTool(ctx, "mine"); client.Status(err) != 404 {
		t.Fatal(err)
	}
}
