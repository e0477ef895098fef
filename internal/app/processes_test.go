package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// process is a server or worker as the compose file describes it, started by hand.
type process struct {
	name    string
	base    string // of a server's API
	aside   string // address of metrics
	client  *client.Client
	mu      sync.Mutex
	stderr  strings.Builder
	asideAt chan string
}

// startProcess starts a program with the environment of a service of the compose file
// and waits until it says ready. It ends with the test.
func startProcess(t *testing.T, name, program string, env []string) *process {
	t.Helper()
	p := &process{name: name, asideAt: make(chan string, 1)}
	cmd := exec.Command(program)
	cmd.Env, cmd.Dir = env, t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	ready, started := make(chan string, 1), make(chan error, 1)
	var reading sync.WaitGroup
	reading.Go(func() { // the process dies with the thread that started it
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		var errors sync.WaitGroup
		errors.Go(func() { p.readLog(logs) })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "ready"); ok {
				ready <- strings.TrimSpace(text)
			}
		}
		errors.Wait()
		_ = cmd.Wait()
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, p.log())
		}
	})
	select {
	case p.base = <-ready:
	case <-time.After(60 * time.Second):
		t.Fatalf("%s is not ready:\n%s", name, p.log())
	}
	p.aside = <-p.asideAt
	p.client = client.New(p.base, adminKey, client.WithRetries(0, 0))
	return p
}

func (p *process) readLog(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		p.mu.Lock()
		p.stderr.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		var entry struct{ For, Address string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.For == "metrics" {
			p.asideAt <- entry.Address
		}
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// figures are the lines of a scrape.
func (p *process) figures(t *testing.T) string {
	t.Helper()
	res, err := http.Get("http://" + p.aside + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, res)
}

// spans collects the traces of all processes, as an OpenTelemetry collector does.
type spans struct {
	*httptest.Server
	mu  sync.Mutex
	all []*trace.Span
}

func startCollector(t *testing.T) *spans {
	s := &spans{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, resource := range request.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				s.all = append(s.all, scope.Spans...)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// of lists the names of the spans of a trace.
func (s *spans) of(traceID string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, span := range s.all {
		if fmt.Sprintf("%x", span.TraceId) == traceID {
			names[span.Name] = true
		}
	}
	return names
}

// environment gives a service's variables, with the addresses of this machine in the
// place of those of the compose file's network.
func environment(t *testing.T, service string, stack *devstack.Stack, blobs, collector string) []string {
	t.Helper()
	replaced := map[string]string{
		"STEPWELL_DATABASE_URL": stack.DatabaseURL(), "STEPWELL_TEMPORAL_ADDRESS": stack.TemporalAddress(),
		"STEPWELL_BLOB_URL": "file://" + blobs, "STEPWELL_METRICS_LISTEN": "127.0.0.1:0", "STEPWELL_LISTEN": "127.0.0.1:0",
		"STEPWELL_ENCRYPTION_KEYS": "main:" + strings.Repeat("A", 43) + "=",
		"STEPWELL_EGRESS":          "private", // the upstream is on loopback
	}
	env := []string{"STEPWELL_API_KEY=" + adminKey, "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector, "OTEL_BSP_SCHEDULE_DELAY=100", "STEPWELL_LOG_LEVEL=debug"}
	for name, value := range composed(t).Services[service].Environment {
		if other, ok := replaced[name]; ok {
			value = &other
		}
		env = append(env, name+"="+*value)
	}
	return env
}

// TestProcesses runs two servers and two workers, built and configured as the compose
// file has it, and checks what ARCHITECTURE.md promises across processes.
func TestProcesses(t *testing.T) {
	t.Parallel()
	bin := buildAsDockerfile(t)
	for _, name := range []string{"server", "worker", "stepwell"} {
		checkStatic(t, filepath.Join(bin, name))
	}
	stack := stacktest.Start(t, devstack.Options{})
	blobs := t.TempDir()
	traces := startCollector(t)
	start := func(name, service string) *process {
		return startProcess(t, name, filepath.Join(bin, service), environment(t, service, stack, blobs, traces.URL))
	}
	a, b := start("server a", "server"), start("server b", "server")
	workers := []*process{start("worker 1", "worker"), start("worker 2", "worker")}
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		fmt.Fprintf(w, `{"data":[%[1]d,%[1]d],"next":"%[1]d"}`, time.Now().UnixNano()) // no two pages alike
	})
	t.Run("sync", func(t *testing.T) { syncAcross(t, a, workers, up, traces) })
	t.Run("cancel", func(t *testing.T) { cancelAcross(t, a, b, up) })
	t.Run("tool", func(t *testing.T) { toolAcross(t, a, b) })
	t.Run("key", func(t *testing.T) { keyAcross(t, a, b) })
	t.Run("ready", func(t *testing.T) { readyEverywhere(t, a, workers[0]) })
}

func create(t *testing.T, p *process, document string) {
	t.Helper()
	var tool v1.ToolCreate
	if err := json.Unmarshal([]byte(document), &tool); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.CreateTool(t.Context(), tool); err != nil {
		t.Fatal(err)
	}
}

// syncAcross: a synchronous run is started on a server and done by a worker. The answer
// comes within a second, both workers get their part, and one trace leads through it all.
func syncAcross(t *testing.T, a *process, workers []*process, up *upstream, traces *spans) {
	create(t, a, fmt.Sprintf(`{"id":"plain","steps":[{"id":"a","config":{"url":"%s/plain?run=plain"}}]}`, up.URL))
	run := func() (took time.Duration, res *http.Response) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, a.base+"/tools/plain/run", nil)
		req.Header.Set("Authorization", "Bearer "+adminKey)
		began := time.Now()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if text := readAll(t, res); !strings.Contains(text, `"status":"success"`) {
			t.Fatal(text)
		}
		return time.Since(began), res
	}
	run() // the first one starts evaluators, connections, polls
	var quickest time.Duration
	idle := func() bool {
		for _, w := range workers {
			if !strings.Contains(w.figures(t), `stepwell_upstream_requests_total{result="2xx"}`) {
				return true
			}
		}
		return false
	}
	for n := 0; n < 200 && (n < 5 || idle()); n++ {
		took, _ := run()
		if quickest == 0 || took < quickest {
			quickest = took
		}
	}
	if quickest > stacktest.Promised(time.Second) {
		t.Errorf("the quickest of the synchronous runs took %s", quickest)
	}
	t.Logf("the quickest synchronous run took %s", quickest)
	if idle() {
		t.Error("one of the workers did nothing")
	}
	_, res := run()
	id := res.Header.Get("X-Trace-Id")
	asked := up.of("plain")
	if got := asked[len(asked)-1].header.Get("traceparent"); !strings.Contains(got, id) || id == "" {
		t.Errorf("the upstream got the traceparent %q, the trace is %s", got, id)
	}
	want := []string{"POST /tools/{toolId}/run", "StartWorkflow:RunTool", "RunWorkflow:RunTool", "HTTP GET"}
	eventually(t, 10*time.Second, func() error {
		got := traces.of(id)
		for _, name := range want {
			if !got[name] {
				return fmt.Errorf("trace %s has no span %s: %v", id, name, got)
			}
		}
		return nil
	})
	for _, text := range []string{`stepwell_runs_started_total{source="api"}`, `stepwell_http_requests_total{method="POST",route="/tools/{toolId}/run",status="200"}`,
		"stepwell_oldest_unstarted_run_seconds ", `stepwell_database_connections{state="max"} 24`, "stepwell_notification_delay_seconds_count"} {
		if !strings.Contains(a.figures(t), text) {
			t.Errorf("a server does not show %s", text)
		}
	}
	eventually(t, 10*time.Second, func() error { // a slot is free a moment after its run has ended
		figures := workers[0].figures(t)
		for _, text := range []string{`stepwell_runs_ended_total{source="api",status="success"}`, `temporal_worker_task_slots_available{task_queue="stepwell",worker_type="ActivityWorker"} 200`, `temporal_worker_task_slots_available{task_queue="stepwell-deliveries",worker_type="ActivityWorker"} 1000`,
			`stepwell_page_duration_seconds_count{outcome="finished"}`, `stepwell_leases_lost_total{kind="local"}`, "stepwell_pages_asked_twice_total 0"} {
			if !strings.Contains(figures, text) {
				return fmt.Errorf("a worker does not show %s", text)
			}
		}
		return nil
	})
	eventually(t, 10*time.Second, func() error {
		if text := workers[0].log() + workers[1].log(); !strings.Contains(text, `"msg":"run ended"`) || !strings.Contains(text, `"trace":"`+id+`"`) {
			return fmt.Errorf("the workers' logs do not tell the run's end with its trace")
		}
		return nil
	})
}

// cancelAcross: a run is cancelled through the other server; after the answer no
// request of it begins.
func cancelAcross(t *testing.T, a, b *process, up *upstream) {
	create(t, a, fmt.Sprintf(`{"id":"long","steps":[{"id":"a","config":{"url":"%s/slow?run=long","queryParams":{"c":"<<cursor>>"},
		"pagination":{"type":"cursorBased","pageSize":"2","cursorPath":"next"}}}]}`, up.URL))
	run, err := a.client.Run(t.Context(), "long", v1.RunRequest{Options: &v1.RunOptions{Async: true}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, func() error {
		if len(up.of("long")) < 3 {
			return fmt.Errorf("the run is at page %d", len(up.of("long")))
		}
		return nil
	})
	got, err := b.client.Cancel(t.Context(), run.RunID)
	answered := time.Now()
	if err != nil || got.Status != "aborted" {
		t.Fatalf("%+v, %v", got, err)
	}
	eventually(t, 5*time.Second, func() error { // until the worker has let go of it
		if time.Since(answered) < time.Second {
			return fmt.Errorf("too soon to tell")
		}
		return nil
	})
	for _, r := range up.of("long") {
		if r.began.After(answered) {
			t.Errorf("a request began %s after the answer to the cancel", r.began.Sub(answered))
		}
	}
	if got, err := a.client.GetRun(t.Context(), run.RunID); err != nil || got.Status != "aborted" {
		t.Errorf("on the other server: %+v, %v", got, err)
	}
}

// within is how soon the other server sees a change: one notification.
const within = time.Second

func toolAcross(t *testing.T, a, b *process) {
	create(t, a, `{"id":"seen","name":"one","outputTransform":"() => 1"}`)
	for _, p := range []*process{a, b} { // so that both have it in their cache
		if tool, err := p.client.GetTool(t.Context(), "seen"); err != nil || tool.Name != "one" {
			t.Fatalf("%+v, %v", tool, err)
		}
	}
	changed := "two"
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, a.base+"/tools/seen", strings.NewReader(`{"name":"two"}`))
	req.Header.Set("Authorization", "Bearer "+adminKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	readAll(t, res)
	for _, p := range []*process{a, b} {
		eventually(t, stacktest.Promised(within), func() error {
			if tool, err := p.client.GetTool(t.Context(), "seen"); err != nil || tool.Name != changed {
				return fmt.Errorf("%s: %+v, %v", p.name, tool, err)
			}
			return nil
		})
	}
}

func keyAcross(t *testing.T, a, b *process) {
	key, err := a.client.CreateAPIKey(t.Context(), v1.APIKeyCreate{Name: "short", Role: "member"})
	if err != nil {
		t.Fatal(err)
	}
	use := func(p *process) error {
		_, err := client.New(p.base, key.Key, client.WithRetries(0, 0)).Me(t.Context())
		return err
	}
	for _, p := range []*process{a, b} {
		if err := use(p); err != nil {
			t.Fatal(p.name, err)
		}
	}
	if err := a.client.DeleteAPIKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if use(a) == nil {
		t.Error("the key still works where it was revoked")
	}
	eventually(t, stacktest.Promised(within), func() error {
		if use(b) == nil {
			return fmt.Errorf("the key still works on the other server")
		}
		return nil
	})
}

func readyEverywhere(t *testing.T, server, worker *process) {
	for _, url := range []string{server.base + "/health/ready", "http://" + server.aside + "/health/ready", "http://" + worker.aside + "/health/ready"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Checks map[string]string }
		if text := readAll(t, res); json.Unmarshal([]byte(text), &got) != nil || res.StatusCode != 200 || len(got.Checks) != 3 {
			t.Errorf("%s: %d %s", url, res.StatusCode, text)
		}
		for name, state := range got.Checks {
			if state != "ok" {
				t.Errorf("%s: %s is %s", url, name, state)
			}
		}
		cancel()
	}
}
