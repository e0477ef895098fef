package workflows_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"stepwell"
	"stepwell/workflows"
)

// deliveries are the histories of callbacks: the whole schedule, and one attempt of a
// redelivery.
const deliveries = "testdata/deliveries/*.json"

func replayDelivery(history *historypb.History) error {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(workflows.Deliver, workflow.RegisterOptions{Name: workflows.DeliverName})
	return r.ReplayWorkflowHistory(nil, history)
}

// TestReplayDeliveries is TestReplay for the workflows of callbacks.
func TestReplayDeliveries(t *testing.T) {
	t.Parallel()
	all := readHistories(t, deliveries)
	if len(all) < 2 {
		t.Fatal("the histories of callbacks are missing: go test ./workflows -run Record -record")
	}
	for name, history := range all {
		if err := replayDelivery(history); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		count := map[enumspb.EventType]int{}
		for _, event := range history.GetEvents() {
			count[event.GetEventType()]++
		}
		// The first wait was less than a millisecond, and no timer.
		if want := map[string][2]int{"schedule": {8, 6}, "redelivery": {1, 0}}[name]; count[activity] != want[0] || count[timer] != want[1] {
			t.Errorf("%s has %d attempts and %d timers, want %v", name, count[activity], count[timer], want)
		}
	}
}

// TestRecordDeliveries records the histories of callbacks that are missing, with -record:
// of a receiver that refuses, by a schedule that is soon over.
func TestRecordDeliveries(t *testing.T) {
	if !*record {
		t.Skip("histories are recorded with -record")
	}
	r := newRecorder(t)
	db := r.node.Service.Store
	def, err := db.CreateTool(t.Context(), r.org, &stepwell.Tool{ID: "called", OutputTransform: "(s) => 1"})
	if err != nil {
		t.Fatal(err)
	}
	run := &stepwell.Run{OrgID: r.org, ID: "called", ToolID: def.ID, ToolVersion: def.VersionKey, Inputs: json.RawMessage(`{}`),
		Options: stepwell.RunOptions{WebhookURL: "http://127.0.0.1:1/?token=" + canary}, RequestSource: "api", Mode: "prod", TraceID: "trace", UserID: "user"}
	if err := db.InsertRun(t.Context(), run, nil); err != nil {
		t.Fatal(err)
	}
	ended, err := db.FinishRun(t.Context(), stepwell.Finish{Org: r.org, Run: run.ID, Status: stepwell.RunFailed, Error: "why"})
	if err != nil || len(ended.Deliveries) != 1 {
		t.Fatal(ended, err)
	}
	settings := workflows.DefaultSettings()
	settings.DeliveryScale = 0.00001
	flows := workflows.NewClient(r.temporal, settings)
	for i, name := range []string{"schedule", "redelivery"} {
		id := ended.Deliveries[0]
		if err := flows.StartDelivery(t.Context(), r.org, id, i+1); err != nil {
			t.Fatal(err)
		}
		id = workflows.DeliverID(r.org, id, i+1)
		if err := r.temporal.GetWorkflow(t.Context(), id, "").Get(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		history := r.historyOf(id, "")
		if err := replayDelivery(history); err != nil {
			t.Errorf("%s: does not replay: %v", name, err)
		}
		path := filepath.Join(filepath.Dir(deliveries), name+".json")
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, scrubbed(t, history), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
