package fault_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/fault"
)

var counted = flag.Int("counted", 20, "runs that TestCounter counts, of which every tenth dies; 200 in the long form")

// TestCounter runs a tool that counts its runs, in a transform and again in its
// outputTransform, one run after another; during every tenth the process dies, each time
// at another point. Each run counts once.
func TestCounter(t *testing.T) {
	t.Parallel()
	points := []fault.Name{fault.PageSaved, fault.FinishSaved, fault.FinishUnsaved, fault.PageUnsaved, fault.ActivityEnded, fault.RunStarted}
	l := newLane(t)
	deaths := 0
	next := func() *process {
		plan := ""
		if deaths < *counted/10 {
			plan = at(points[deaths%len(points)], "kill", 10)
		}
		p := l.start(t, plan)
		if p == nil {
			t.Fatal("the process died before it served")
		}
		return p
	}
	p := next()
	api := client.New(p.base, apiKey, client.WithRetries(0, 0))
	step := v1.Step{ID: "count", Config: v1.StepConfig{Type: "transform", TransformCode: "(s) => { s.persistedState.n = (s.persistedState.n || 0) + 1; return s.persistedState.n }"}}
	if _, err := api.CreateTool(t.Context(), v1.ToolCreate{ID: "counter", Steps: []v1.Step{step},
		OutputTransform: "(s) => { s.persistedState.m = (s.persistedState.m || 0) + 1; return [s.count.data, s.persistedState.m] }"}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= *counted; n++ {
		id := fmt.Sprintf("run-%d", n)
		var run *v1.Run
		err := eventually(t.Context(), 90*time.Second, func(ctx context.Context) (bool, error) {
			if p.ended() {
				deaths++
				p = next()
				api = client.New(p.base, apiKey, client.WithRetries(0, 0))
			}
			var err error
			if run, err = api.GetRun(ctx, id); client.Status(err) == http.StatusNotFound {
				run, err = api.Run(ctx, "counter", v1.RunRequest{RunID: id})
			}
			return err == nil && run.Status != "running", err
		})
		if err != nil {
			t.Fatalf("run %d: %v\n%s", n, err, p.log)
		}
		if want := fmt.Sprintf("[%d,%d]", n, n); run.Status != "success" || string(run.Data) != want || len(run.Metadata.Warnings) > 0 {
			t.Errorf("run %d: %s %s %s %q, want %s", n, run.Status, run.Data, run.Error, run.Metadata.Warnings, want)
		}
	}
	state, _, err := api.ToolState(t.Context(), "counter")
	var got struct{ N, M int }
	if err == nil {
		err = json.Unmarshal(state.State, &got)
	}
	if err != nil || got.N != *counted || got.M != *counted {
		t.Errorf("the state counts %+v, %v; want %d", got, err, *counted)
	}
	if p.ended() {
		deaths++
	}
	t.Logf("%d runs, %d deaths", *counted, deaths)
	if deaths < *counted/10-1 || deaths == 0 {
		t.Errorf("the process died %d times, want %d", deaths, *counted/10)
	}
}
