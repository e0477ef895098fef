package metrics

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of docs/operations.md anew")

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	if err != nil || rec.Code != 200 {
		t.Fatal(rec.Code, err)
	}
	return string(body)
}

// count counts one of each.
func count(m *Metrics) {
	m.HTTP("GET", "/runs", 200, time.Millisecond)
	m.HTTP("BREW", "", 404, time.Millisecond)
	m.HTTP("GET", "/runs", 0, time.Millisecond)
	m.RunStarted("api")
	m.RunEnded("failed", "webhook", 3*time.Second)
	m.Page("more", 20*time.Millisecond)
	m.Page("", time.Second)
	m.Sent(503, "", time.Second)
	m.Sent(0, "timeout", time.Minute)
	m.Delivered(204, "", time.Second)
	m.Delivered(0, "timeout", time.Minute)
	m.Local(time.Second)
	m.Local(1100 * time.Millisecond)
	m.LeaseLost(RegularLease)
	m.AskedTwice()
	m.EvaluatorRestarted("memory")
	m.Swept(SweptGivenUp)
	m.NoticeDelay(time.Millisecond)
	m.ListenLost()
}

func TestFigures(t *testing.T) {
	t.Parallel()
	m := New()
	count(m)
	m.WatchDatabase(func() Database {
		return Database{Max: 24, InUse: 3, Idle: 2, Acquired: 10, Waited: 4, WaitTime: time.Second}
	})
	m.WatchRuns(func(context.Context) (Open, error) {
		return Open{Running: 7, OldestUnstarted: 90 * time.Second, OldestDelivery: 30 * time.Second}, nil
	})
	gauge, ok := m.TemporalGauge("temporal_worker_task_slots_available", &TemporalTags{TaskQueue: "stepwell", WorkerType: "ActivityWorker", PollerType: "none of its labels"})
	if !ok {
		t.Fatal("the slots are not shown")
	}
	gauge.Update(199)
	if c, ok := m.TemporalCounter("temporal_request_failure", &TemporalTags{Operation: "Poll", StatusCode: "Unavailable"}); ok {
		c.Inc(2)
	}
	if _, ok := m.TemporalCounter("temporal_local_activity_total", &TemporalTags{}); ok {
		t.Error("a figure that nobody chose is shown")
	}
	got := scrape(t, m)
	for _, want := range []string{
		`stepwell_http_requests_total{method="GET",route="/runs",status="200"} 1`,
		`stepwell_http_requests_total{method="other",route="none",status="404"} 1`,
		`stepwell_http_requests_total{method="GET",route="/runs",status="cut"} 1`,
		`stepwell_runs_started_total{source="api"} 1`,
		`stepwell_runs_ended_total{source="webhook",status="failed"} 1`,
		`stepwell_run_duration_seconds_bucket{status="failed",le="5"} 1`,
		`stepwell_page_duration_seconds_count{outcome="more"} 1`,
		`stepwell_page_duration_seconds_count{outcome="error"} 1`,
		`stepwell_upstream_requests_total{result="5xx"} 1`,
		`stepwell_upstream_requests_total{result="timeout"} 1`,
		`stepwell_local_activities_slow_total 1`,
		`stepwell_leases_lost_total{kind="regular"} 1`,
		`stepwell_leases_lost_total{kind="worker"} 0`,
		`stepwell_pages_asked_twice_total 1`,
		`stepwell_evaluator_restarts_total{reason="memory"} 1`,
		`stepwell_sweeper_actions_total{action="given_up"} 1`,
		`stepwell_notification_delay_seconds_count 1`,
		`stepwell_notification_reconnects_total 1`,
		`stepwell_database_connections{state="in_use"} 3`,
		`stepwell_database_wait_seconds_total 1`,
		`stepwell_runs_running 7`,
		`stepwell_oldest_unstarted_run_seconds 90`,
		`stepwell_oldest_pending_delivery_seconds 30`,
		`stepwell_delivery_attempts_total{result="2xx"} 1`,
		`stepwell_delivery_attempts_total{result="timeout"} 1`,
		`temporal_worker_task_slots_available{task_queue="stepwell",worker_type="ActivityWorker"} 199`,
		`temporal_request_failure{operation="Poll",status_code="Unavailable"} 2`,
		`go_goroutines`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(got, "BREW") {
		t.Error("a caller's own method has become a label")
	}
	for _, row := range m.Table() { // no figure is shown under a name that the documents do not have
		if !strings.Contains(got, "# TYPE "+row.Name+" "+row.Kind) && !strings.HasPrefix(row.Name, "temporal_") {
			t.Errorf("%s is in the table and not in a scrape", row.Name)
		}
	}
}

// TestOutage: while Postgres is away the rest of a scrape is there, and quickly.
func TestOutage(t *testing.T) {
	t.Parallel()
	m := New()
	m.WatchRuns(func(ctx context.Context) (Open, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the query has no deadline")
		}
		return Open{}, errors.New("no")
	})
	if got := scrape(t, m); strings.Contains(got, "stepwell_runs_running") || !strings.Contains(got, "stepwell_pages_asked_twice_total") {
		t.Error(got)
	}
}

// TestOff: without metrics nothing is counted, allocated or dereferenced.
func TestOff(t *testing.T) {
	var m *Metrics
	m.WatchDatabase(nil)
	m.WatchRuns(nil)
	if n := testing.AllocsPerRun(100, func() { count(m) }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// TestDocumentedTable compares the table of docs/operations.md with the figures.
// `go test ./internal/metrics -update` writes it anew.
func TestDocumentedTable(t *testing.T) {
	t.Parallel()
	const path = "../../docs/operations.md"
	const begin, end = "<!-- metrics, generated -->\n", "<!-- end of metrics -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("docs/operations.md does not have the marks of the table")
	}
	want := "\n| figure | kind | labels | what it is |\n|---|---|---|---|\n"
	for _, r := range New().Table() {
		want += "| `" + r.Name + "` | " + r.Kind + " | " + r.Labels + " | " + r.Help + " |\n"
	}
	want += "\n"
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("docs/operations.md has another table: run `go test ./internal/metrics -update`\n%s", want)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What one page and its request cost, with metrics and without.
func BenchmarkPage(b *testing.B) {
	for name, m := range map[string]*Metrics{"on": New(), "off": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Page("more", 20*time.Millisecond)
				m.Sent(200, "", 20*time.Millisecond)
				m.Local(time.Millisecond)
			}
		})
	}
}

func BenchmarkHTTP(b *testing.B) {
	for name, m := range map[string]*Metrics{"on": New(), "off": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.HTTP("GET", "/runs/{runId}", 200, time.Millisecond)
			}
		})
	}
}

func BenchmarkSDK(b *testing.B) {
	m, tags := New(), &TemporalTags{Operation: "RespondWorkflowTaskCompleted"}
	b.ReportAllocs()
	for b.Loop() {
		if t, ok := m.TemporalTimer("temporal_request_latency", tags); ok {
			t.Record(time.Millisecond)
		}
	}
}
