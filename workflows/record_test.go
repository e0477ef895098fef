package workflows_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/demo"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/internal/secret"
	"stepwell/workflows"
)

var record = flag.Bool("record", false, "record the histories in testdata anew, from the code as it is")

// canary is a run-time credential of every recorded run.
const canary = "canary-3c1f"

// shape is a kind of history.
type shape struct {
	name     string
	steps    string                    // of the tool, JSON; %[1]s is the upstream
	webhook  string                    // the run's webhookUrl
	settings func(*workflows.Settings) // nil leaves the defaults
	during   func(r *recorder, run string)
	status   stepwell.RunStatus
	has      map[enumspb.EventType]int // events that it must have, at least
}

const (
	completed = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
	continued = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
	activity  = enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
	marker    = enumspb.EVENT_TYPE_MARKER_RECORDED
	timer     = enumspb.EVENT_TYPE_TIMER_FIRED
	child     = enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED
	requested = enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
)

// few makes a run yield and continue as new soon.
func few(s *workflows.Settings) {
	s.YieldCount, s.ContinueCount, s.ContinueMinAge = 4, 6, time.Millisecond
}

// pull is a paginated step of some pages.
func pull(pages int) string {
	return fmt.Sprintf(`{"id": "list", "config": {"url": "%%[1]s/orders?limit=2&pages=%d", "queryParams": {"cursor": "<<cursor>>"}, "pagination": {"type": "cursorBased"}}}`, pages)
}

// shapes are the histories that open runs of a release may have. A shape stays for as
// long as runs recorded by older code may be open; record new ones beside it.
var shapes = []shape{
	{name: "plain", steps: `[{"id": "one", "config": {"url": "%[1]s/customers?limit=1"}}]`, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{marker: 1, completed: 1}},
	{name: "pages", steps: `[` + pull(12) + `]`, settings: func(s *workflows.Settings) { s.YieldCount = 4 }, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{marker: 8, activity: 2, completed: 1}},
	{name: "regular", steps: `[` + pull(3) + `]`, settings: func(s *workflows.Settings) { s.Activities = workflows.ActivitiesRegular }, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{activity: 4, completed: 1}},
	{name: "retries", steps: `[{"id": "one", "config": {"url": "%[1]s/customers?limit=1&run=retries&fail=1&failTimes=2&failStatus=503&retryAfter=1"}}]`, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{marker: 3, timer: 2, completed: 1}},
	{name: "continued", steps: `[` + pull(15) + `]`, settings: few, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{continued: 1}},
	{name: "cancelled", steps: `[{"id": "quick", "config": {"url": "%[1]s/customers?limit=1"}}, {"id": "slow", "config": {"url": "%[1]s/customers?delay=1m"}}]`,
		during: (*recorder).cancelSlow, status: stepwell.RunAborted, has: map[enumspb.EventType]int{marker: 1, completed: 1}},
	{name: "cancelled-while-waiting", steps: `[{"id": "one", "config": {"url": "%[1]s/customers?run=waiting&fail=1&failStatus=503&retryAfter=50"}}]`,
		during: (*recorder).cancelWaiting, status: stepwell.RunAborted, has: map[enumspb.EventType]int{requested: 1, activity: 1, completed: 1}},
	{name: "cancelled-by-operator", steps: `[{"id": "slow", "config": {"url": "%[1]s/echo?delay=1m", "method": "POST"}}]`,
		during: (*recorder).cancelInTemporal, status: stepwell.RunAborted, has: map[enumspb.EventType]int{requested: 1, activity: 2, completed: 1}},
	{name: "effect", steps: `[{"id": "list", "config": {"url": "%[1]s/customers?limit=1"}},
		{"id": "create", "config": {"url": "%[1]s/orders?fail=1&failStatus=429&retryAfter=1", "method": "POST", "body": "{\"customerId\": <<(s) => JSON.stringify(s.list.data.data[0].id)>>, \"product\": \"x\", \"quantity\": 1, \"totalCents\": 1}"}}]`,
		status: stepwell.RunSuccess, has: map[enumspb.EventType]int{activity: 2, timer: 1, completed: 1}},
	{name: "failed", steps: `[{"id": "one", "config": {"url": "%[1]s/none"}}]`, status: stepwell.RunFailed,
		has: map[enumspb.EventType]int{marker: 1, activity: 1, completed: 1}},
	{name: "failed-and-continued", steps: `[{"id": "one", "failureBehavior": "continue", "config": {"url": "%[1]s/none"}}, {"id": "two", "config": {"url": "%[1]s/customers?limit=1"}}]`,
		status: stepwell.RunSuccess, has: map[enumspb.EventType]int{marker: 2, completed: 1}},
	{name: "pending", steps: `[{"id": "slow", "config": {"url": "%[1]s/customers?limit=1&delay=2500ms"}}, {"id": "next", "config": {"url": "%[1]s/customers?limit=1"}}]`,
		status: stepwell.RunSuccess, has: map[enumspb.EventType]int{marker: 2, activity: 1, completed: 1}},
	{name: "loop", steps: `[{"id": "list", "config": {"url": "%[1]s/orders?limit=3&pages=1"}},
		{"id": "each", "dataSelector": "(s) => s.list.data.data", "config": {"url": "%[1]s/orders/<<(s) => s.currentItem.id>>"}}]`, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{marker: 6, completed: 1}},
	{name: "loop-continued", steps: `[{"id": "list", "config": {"url": "%[1]s/orders?limit=9&pages=1"}},
		{"id": "each", "dataSelector": "(s) => s.list.data.data", "config": {"url": "%[1]s/orders/<<(s) => s.currentItem.id>>"}}]`, settings: few, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{continued: 1}},
	{name: "parallel", steps: `[{"id": "list", "config": {"url": "%[1]s/orders?limit=5&pages=1"}},
		{"id": "each", "concurrency": 3, "dataSelector": "(s) => s.list.data.data", "config": {"url": "%[1]s/orders/<<(s) => s.currentItem.id>>?delay=20ms"}}]`, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{activity: 5, completed: 1}},
	{name: "parallel-continued", steps: `[{"id": "list", "config": {"url": "%[1]s/orders?limit=9&pages=1"}},
		{"id": "each", "concurrency": 2, "dataSelector": "(s) => s.list.data.data", "config": {"url": "%[1]s/orders/<<(s) => s.currentItem.id>>"}}]`, settings: few, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{activity: 3, continued: 1}},
	{name: "nothing-to-do", steps: `[{"id": "each", "dataSelector": "(s) => []", "config": {"url": "%[1]s/none"}}, {"id": "shape", "config": {"type": "transform", "transformCode": "(s) => ({n: s.each.length})"}}]`,
		status: stepwell.RunSuccess, has: map[enumspb.EventType]int{marker: 2, completed: 1}},
	{name: "chained", steps: `[{"id": "one", "config": {"url": "%[1]s/customers?limit=1"}}]`, webhook: "tool:" + chainedTool, status: stepwell.RunSuccess,
		has: map[enumspb.EventType]int{marker: 2, child: 1, completed: 1}},
}

// chainedTool is the next one of the shapes that chain; what it does is no part of them.
const chainedTool = "chained-tool"

// recorder runs tools on a real stack.
type recorder struct {
	t        *testing.T
	node     *app.Node
	temporal client.Client
	upstream *demo.Server
	org      string
}

// TestRecord records every shape that has no history yet, with -record. Delete a file to
// record it again, from a released commit: what is replayed must be what is running.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("histories are recorded with -record")
	}
	r := newRecorder(t)
	for _, s := range shapes {
		path := filepath.Join("testdata", s.name+".json")
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, r.record(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShapesRunNow runs some of the shapes with the code as it is and replays what came of
// them: a history must replay with the code that made it.
func TestShapesRunNow(t *testing.T) {
	r := newRecorder(t)
	for _, s := range shapes {
		switch s.name {
		case "pages", "effect", "parallel-continued", "failed", "cancelled-by-operator", "chained":
			r.record(s)
		}
	}
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	stack := stacktest.Start(t, devstack.Options{})
	cfg := config.Config{Listen: "127.0.0.1:0", DataDir: t.TempDir(), DatabaseURL: stack.DatabaseURL(), TemporalAddress: stack.TemporalAddress(),
		EncryptionKeys: "test:" + secret.NewKey(), Egress: "private", SyncWait: time.Minute, MaxBody: 16 << 20, MaxAnswer: 100 << 20,
		DatabaseConns: 24, Activities: "auto", WorkerSlots: 200, StopWait: 5 * time.Second}
	node, err := app.Start(t.Context(), cfg, app.Parts{Worker: true}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := demo.NewServer(demo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	temporal, err := client.Dial(client.Options{HostPort: stack.TemporalAddress(), Namespace: workflows.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		temporal.Close()
		node.Close(context.Background())
		if err := upstream.Close(); err != nil {
			t.Error(err)
		}
	})
	org, err := node.Service.Store.CreateOrganization(t.Context(), "recorded")
	if err != nil {
		t.Fatal(err)
	}
	return &recorder{t: t, node: node, temporal: temporal, upstream: upstream, org: org}
}

// record runs a tool of a shape, checks how it ended and gives the history of its first
// execution.
func (r *recorder) record(s shape) []byte {
	r.t.Helper()
	def := &stepwell.Tool{ID: s.name}
	text := s.steps
	if regexp.MustCompile(`%\[1\]s`).MatchString(text) {
		text = fmt.Sprintf(text, r.upstream.URL())
	}
	if err := json.Unmarshal([]byte(text), &def.Steps); err != nil {
		r.t.Fatalf("%s: %v", s.name, err)
	}
	db := r.node.Service.Store
	def, err := db.CreateTool(r.t.Context(), r.org, def)
	if err != nil {
		r.t.Fatal(err)
	}
	if s.webhook != "" {
		if _, err := db.CreateTool(r.t.Context(), r.org, &stepwell.Tool{ID: chainedTool, OutputTransform: "(s) => 1"}); err != nil {
			r.t.Fatal(err)
		}
	}
	run := &stepwell.Run{OrgID: r.org, ID: s.name, Options: stepwell.RunOptions{WebhookURL: s.webhook}, ToolID: def.ID, ToolVersion: def.VersionKey, Inputs: json.RawMessage(`{}`),
		RequestSource: "api", Mode: "prod", TraceID: "trace", UserID: "user"}
	if err := db.InsertRun(r.t.Context(), run, json.RawMessage(`{"token": "`+canary+`"}`)); err != nil {
		r.t.Fatal(err)
	}
	settings := workflows.DefaultSettings()
	if s.settings != nil {
		s.settings(&settings)
	}
	flows := workflows.NewClient(r.temporal, settings)
	if err := flows.StartRun(r.t.Context(), run, def); err != nil {
		r.t.Fatal(err)
	}
	first := r.temporal.GetWorkflow(r.t.Context(), workflows.RunID(r.org, run.ID), "").GetRunID()
	if s.during != nil {
		s.during(r, run.ID)
	}
	r.wait(s.name, func() bool {
		state, err := flows.RunState(r.t.Context(), r.org, run.ID)
		return err == nil && state.Known && !state.Open
	})
	ended, err := db.Run(r.t.Context(), r.org, run.ID)
	if err != nil || ended.Status != s.status {
		r.t.Fatalf("%s: the run is %v (%v), want %s", s.name, ended, err, s.status)
	}
	history := r.history(run.ID, first)
	if err := replay(workflows.RunTool, history); err != nil {
		r.t.Errorf("%s: does not replay: %v", s.name, err)
	}
	return scrubbed(r.t, history)
}

// wait waits for a condition.
func (r *recorder) wait(what string, done func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: waited for a minute", what)
		}
	}
}

// history reads the whole history of one execution.
func (r *recorder) history(run, execution string) *historypb.History {
	r.t.Helper()
	return r.historyOf(workflows.RunID(r.org, run), execution)
}

// historyOf is history for any workflow.
func (r *recorder) historyOf(id, execution string) *historypb.History {
	r.t.Helper()
	events := r.temporal.GetWorkflowHistory(r.t.Context(), id, execution, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var history historypb.History
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			r.t.Fatal(err)
		}
		history.Events = append(history.Events, event)
	}
	return &history
}

// inFlight waits until the upstream has the slow request.
func (r *recorder) inFlight() {
	r.wait("the slow request", func() bool {
		for _, p := range r.upstream.Stats().Pages {
			if p.InFlight > 0 {
				return true
			}
		}
		return false
	})
}

// cancelWaiting cancels a run that waits before its next attempt.
func (r *recorder) cancelWaiting(run string) {
	r.wait("the timer", func() bool {
		events := r.history(run, "").GetEvents()
		return len(events) > 0 && events[len(events)-1].GetEventType() == enumspb.EVENT_TYPE_TIMER_STARTED
	})
	r.cancel(run)
}

// cancelSlow cancels a run in the middle of a request.
func (r *recorder) cancelSlow(run string) {
	r.inFlight()
	r.cancel(run)
}

// cancel cancels a run as a user does.
func (r *recorder) cancel(run string) {
	r.t.Helper()
	if _, err := r.node.Service.Cancel(r.t.Context(), r.org, run); err != nil {
		r.t.Fatal(err)
	}
}

// cancelInTemporal cancels a workflow behind the service's back.
func (r *recorder) cancelInTemporal(run string) {
	r.inFlight()
	if err := r.temporal.CancelWorkflow(r.t.Context(), workflows.RunID(r.org, run), ""); err != nil {
		r.t.Fatal(err)
	}
}

// Names of machines and processes have no place in a repository.
var (
	identities = regexp.MustCompile(`"(identity|workerVersion|buildId|binaryChecksum)":\s*"[^"]*"`)
	queues     = regexp.MustCompile(`"name":\s*"[^"]*:[0-9a-f-]{36}"`)
)

// scrubbed is a history as JSON without names of this machine.
func scrubbed(t *testing.T, history *historypb.History) []byte {
	t.Helper()
	text, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(history)
	if err != nil {
		t.Fatal(err)
	}
	text = identities.ReplaceAll(text, []byte(`"$1":"recorded"`))
	text = queues.ReplaceAll(text, []byte(`"name":"recorded:queue"`))
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	text, err = json.MarshalIndent(value, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}
