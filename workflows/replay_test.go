package workflows_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"stepwell/workflows"
)

// histories reads the recorded histories of testdata by name. See TestRecord.
func histories(t *testing.T) map[string]*historypb.History {
	t.Helper()
	return readHistories(t, "testdata/*.json")
}

// readHistories reads recorded histories by name.
func readHistories(t *testing.T, pattern string) map[string]*historypb.History {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*historypb.History{}
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		history, err := client.HistoryFromJSON(file, client.HistoryJSONOptions{})
		_ = file.Close() // only read
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = history
	}
	return all
}

// replay runs a workflow over a history; an error says that it would do something else.
func replay(code any, history *historypb.History) error {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(code, workflow.RegisterOptions{Name: workflows.RunToolName})
	return r.ReplayWorkflowHistory(nil, history)
}

// TestReplay runs the current code over histories that earlier code recorded: an open run
// must survive a new release. When it fails, the change needs workflow.GetVersion.
func TestReplay(t *testing.T) {
	t.Parallel()
	all := histories(t)
	for _, shape := range shapes {
		if all[shape.name] == nil {
			t.Errorf("%s has no recorded history: go test ./workflows -run Record -record", shape.name)
		}
	}
	for name, history := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := replay(workflows.RunTool, history); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReplayNoticesChanges replays a workflow that waits first, which every history
// contradicts.
func TestReplayNoticesChanges(t *testing.T) {
	t.Parallel()
	changed := func(ctx workflow.Context, in workflows.RunInput) error {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return workflows.RunTool(ctx, in)
	}
	for name, history := range histories(t) {
		if err := replay(changed, history); err == nil {
			t.Errorf("%s replays with a workflow that waits first", name)
		}
	}
}

// TestHistoriesShowTheirShape makes sure that what is replayed is what its name says.
func TestHistoriesShowTheirShape(t *testing.T) {
	t.Parallel()
	all := histories(t)
	for _, shape := range shapes {
		count := map[enumspb.EventType]int{}
		for _, event := range all[shape.name].GetEvents() {
			count[event.GetEventType()]++
		}
		for event, least := range shape.has {
			if count[event] < least {
				t.Errorf("%s has %d events %s, want %d or more", shape.name, count[event], event, least)
			}
		}
	}
}

// TestHistoriesHoldNoSecrets looks for what must never pass through Temporal, in the
// histories of runs that had it.
func TestHistoriesHoldNoSecrets(t *testing.T) {
	t.Parallel()
	all := histories(t)
	maps.Copy(all, readHistories(t, deliveries))
	for name, history := range all {
		text := history.String()
		for _, forbidden := range []string{canary, "customerId", "next_cursor", "ord_"} {
			if strings.Contains(text, forbidden) {
				t.Errorf("%s holds %q: bodies, cursors and secrets have no place in a history", name, forbidden)
			}
		}
	}
}
