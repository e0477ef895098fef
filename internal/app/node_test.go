package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/engine/js"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/internal/secret"
)

func TestMain(m *testing.M) {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	if workerRequested(os.Args) {
		workerMain()
	}
	os.Exit(stacktest.Main(m))
}

const adminKey = "test-admin-key-0123456789"

// node is a server and worker in this process, on a stack of its own: two nodes with
// different databases on one Temporal would take each other's tasks.
type node struct {
	*app.Node
	stack *devstack.Stack
	api   *client.Client
	url   string
	cfg   config.Config
	log   *observer.ObservedLogs
	stop  func() // before the end of the test
}

// startNode starts a node that ends with the test.
func startNode(t *testing.T, change func(*config.Config)) *node {
	t.Helper()
	stack := stacktest.Start(t, devstack.Options{})
	cfg := configFor(t, stack)
	if change != nil {
		change(&cfg)
	}
	n := startParts(t, cfg, app.Parts{Server: true, Worker: true})
	n.stack = stack
	return n
}

// configFor is the configuration of a node on a stack.
func configFor(t *testing.T, stack *devstack.Stack) config.Config {
	return config.Config{
		Listen: "127.0.0.1:0", DataDir: t.TempDir(), DatabaseURL: stack.DatabaseURL(), TemporalAddress: stack.TemporalAddress(),
		EncryptionKeys: "test:" + secret.NewKey(), Egress: "private", SyncWait: time.Minute, MaxBody: 16 << 20, MaxAnswer: 100 << 20,
		DatabaseConns: 24, Activities: "auto", WorkerSlots: 200, StopWait: 5 * time.Second,
	}
}

// startParts starts a server, or a server and worker, that end with the test.
func startParts(t *testing.T, cfg config.Config, parts app.Parts) *node {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	n, err := app.Start(t.Context(), cfg, parts, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { n.Close(context.Background()) })
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			for _, entry := range logs.FilterLevelExact(zap.WarnLevel).All() {
				t.Log(entry.Time.Format("05.000"), entry.Message, entry.ContextMap())
			}
		}
	})
	if _, err := n.Service.EnsureAdmin(t.Context(), adminKey); err != nil {
		t.Fatal(err)
	}
	n.Serve()
	return &node{Node: n, api: client.New(n.BaseURL(), adminKey), url: n.BaseURL(), cfg: cfg, log: logs, stop: stop}
}

// tool saves a tool given as JSON.
func (n *node) tool(t *testing.T, document string) string {
	t.Helper()
	var create v1.ToolCreate
	if err := json.Unmarshal([]byte(document), &create); err != nil {
		t.Fatal(err)
	}
	tool, err := n.api.CreateTool(t.Context(), create)
	if err != nil {
		t.Fatal(err)
	}
	return tool.ID
}

// run runs a tool synchronously.
func (n *node) run(t *testing.T, tool string, r v1.RunRequest) *v1.Run {
	t.Helper()
	run, err := n.api.Run(t.Context(), tool, r)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// upstream is a server that remembers when requests of each run began and how they ended.
type upstream struct {
	*httptest.Server
	mu       sync.Mutex
	requests map[string][]*request // by the path's first element
}

type request struct {
	began   time.Time
	ended   time.Time // zero while it is being answered
	header  http.Header
	uri     string
	aborted bool // the client went away
}

// startUpstream serves handler and records what it is asked.
func startUpstream(t *testing.T, handler http.HandlerFunc) *upstream {
	u := &upstream{requests: map[string][]*request{}}
	u.Server = httptest.NewServer(recorded(u, handler))
	t.Cleanup(u.Close)
	return u
}

// recorded is a handler whose requests an upstream records.
func recorded(u *upstream, handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &request{began: time.Now(), header: r.Header.Clone(), uri: r.URL.RequestURI()}
		key := r.URL.Query().Get("run")
		u.mu.Lock()
		u.requests[key] = append(u.requests[key], rec)
		u.mu.Unlock()
		handler(w, r)
		u.mu.Lock()
		rec.ended, rec.aborted = time.Now(), r.Context().Err() != nil
		u.mu.Unlock()
	})
}

// of gives the requests of a run so far.
func (u *upstream) of(run string) []request {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]request, 0, len(u.requests[run]))
	for _, r := range u.requests[run] {
		out = append(out, *r)
	}
	return out
}

// eventually waits until ok gives nothing to complain of.
func eventually(t *testing.T, within time.Duration, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
		<-tick.C
	}
}

// waitFinal waits for the end of a run.
func (n *node) waitFinal(t *testing.T, run string, within time.Duration) *v1.Run {
	t.Helper()
	var got *v1.Run
	eventually(t, within, func() (err error) {
		if got, err = n.api.GetRun(t.Context(), run); err != nil {
			return err
		}
		if got.Status == "running" {
			return fmt.Errorf("run %s is still running: %+v", run, got.Progress)
		}
		return nil
	})
	return got
}

func readAll(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
