package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// slack is added to the times that are promised, for a machine that does much else.
var slack = flag.Duration("slack", 4*time.Second, "by how much promised times may be missed on a busy machine; `make load` allows nothing")

// cluster is servers and workers as processes of their own on one Postgres and one
// temporald, as an operator runs them.
type cluster struct {
	*installation
	env     []string // of every process
	backend *backend
	servers []*process
	clients []*client.Client // one for each server
	bases   []string         // addresses of the servers, with /v1
}

// startCluster starts servers and workers; extra is environment of all of them.
func startCluster(t testing.TB, servers, workers int, extra ...string) *cluster {
	t.Helper()
	c := newCluster(t, extra...)
	for range servers {
		c.addServer()
	}
	for i := range workers {
		c.addWorker(i, c.env)
	}
	return c
}

// newCluster starts Postgres and temporald only.
func newCluster(t testing.TB, extra ...string) *cluster {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{installation: &installation{t: t, dir: dir}, backend: newBackend(t)}
	if err := os.MkdirAll(filepath.Join(c.dataDir(), "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.stack = stacktest.Start(t, devstack.Options{PostgresSettings: map[string]string{"synchronous_commit": "on"}})
	c.env = append([]string{
		"STEPWELL_DATABASE_URL=" + c.stack.DatabaseURL(),
		"STEPWELL_TEMPORAL_ADDRESS=" + c.stack.TemporalAddress(),
		"STEPWELL_ENCRYPTION_KEYS=e2e:" + strings.Repeat("A", 43) + "=",
		"STEPWELL_BLOB_URL=file://" + filepath.Join(c.dataDir(), "blobs"),
	}, extra...)
	return c
}

// addServer starts one more server.
func (c *cluster) addServer() {
	c.t.Helper()
	address := freeAddress(c.t)
	p := c.process("server"+strconv.Itoa(len(c.servers)+1), "server", nil, append(c.env[:len(c.env):len(c.env)], "STEPWELL_LISTEN="+address))
	c.servers = append(c.servers, p)
	p.start(c.t)
	base := "http://" + address + "/v1"
	c.bases = append(c.bases, base)
	c.clients = append(c.clients, newLoadClient(base))
	if c.client == nil {
		c.client = c.clients[0]
	}
}

// newLoadClient makes a client that keeps as many connections as it has callers, and
// never repeats a call.
func newLoadClient(base string) *client.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 1000, 1000
	return client.New(base, adminKey, client.WithRetries(0, 0), client.WithHTTPClient(&http.Client{Transport: transport}))
}

// save saves a tool.
func (c *cluster) save(tool v1.ToolCreate) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.client.CreateTool(ctx, tool); err != nil {
		c.t.Fatalf("save the tool %s: %v", tool.ID, err)
	}
}

// request gives a step that sends a GET to the backend with query values.
func (c *cluster) request(id, path string, query map[string]string) v1.Step {
	params := map[string]json.RawMessage{}
	for name, value := range query {
		params[name] = json.RawMessage(strconv.Quote(value))
	}
	return v1.Step{ID: id, Config: v1.StepConfig{URL: c.backend.URL + path, QueryParams: params}}
}

// backend is what the runs of a cluster call. It answers with what it was asked for and
// counts the requests of each run; a gate holds requests back until it opens.
type backend struct {
	*httptest.Server
	mu     sync.Mutex
	counts map[string]map[string]int // by run and what was asked for
	gates  map[string]chan struct{}  // by run; closed when it is open
	moved  chan struct{}             // closed and made anew at every request
}

func newBackend(t testing.TB) *backend {
	b := &backend{counts: map[string]map[string]int{}, gates: map[string]chan struct{}{}, moved: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/value", b.value)
	mux.HandleFunc("/pages", b.pages)
	mux.HandleFunc("/busy", b.busy)
	b.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		b.openAll()
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

// value answers {"n": <n>} after the delay that the request names.
func (b *backend) value(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	b.note(r, q.Get("n"))
	if d, err := time.ParseDuration(q.Get("delay")); err == nil {
		wait(r.Context(), d)
	}
	b.pass(r, q.Get("n"))
	writeBackend(w, fmt.Sprintf(`{"n":%s}`, q.Get("n")))
}

// pages answers a page of two items of a list of `of` pages, the first after the delay
// that `slow` names.
func (b *backend) pages(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	page, of := number(q.Get("cursor")), number(q.Get("of"))
	page = max(page, 1)
	b.note(r, strconv.Itoa(page))
	if d, err := time.ParseDuration(q.Get("slow")); err == nil && page == 1 {
		wait(r.Context(), d)
	}
	b.pass(r, strconv.Itoa(page))
	next := ""
	if page < of {
		next = fmt.Sprintf(`,"next_cursor":%q`, strconv.Itoa(page+1))
	}
	writeBackend(w, fmt.Sprintf(`{"items":[%d,%d]%s}`, 2*page-1, 2*page, next))
}

// busy answers 503 with a Retry-After until the run's gate is open.
func (b *backend) busy(w http.ResponseWriter, r *http.Request) {
	b.note(r, "busy")
	select {
	case <-b.gate(r.URL.Query().Get("run")):
		writeBackend(w, `{"n":1}`)
	default:
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func writeBackend(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(text)) // the sender may have been killed
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// note counts a request.
func (b *backend) note(r *http.Request, what string) {
	run := r.URL.Query().Get("run")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counts[run] == nil {
		b.counts[run] = map[string]int{}
	}
	b.counts[run][what]++
	close(b.moved)
	b.moved = make(chan struct{})
}

// pass holds a request back when it asks for what the request's `gate` names.
func (b *backend) pass(r *http.Request, what string) {
	q := r.URL.Query()
	if q.Get("gate") != what {
		return
	}
	select {
	case <-b.gate(q.Get("run")):
	case <-r.Context().Done():
	}
}

func (b *backend) gate(run string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gates[run] == nil {
		b.gates[run] = make(chan struct{})
	}
	return b.gates[run]
}

// open opens the gate of a run, once.
func (b *backend) open(run string) { close(b.gate(run)) }

// openAll opens what is still closed, for the end of a test.
func (b *backend) openAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, gate := range b.gates {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

// requests gives how often a run asked for what.
func (b *backend) requests(run string) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.counts[run])
}

// asked waits until a run has asked for something, more often than before.
func (b *backend) asked(t testing.TB, run, what string, times int) {
	t.Helper()
	deadline := time.After(readyTimeout)
	for {
		b.mu.Lock()
		n, moved := b.counts[run][what], b.moved
		b.mu.Unlock()
		if n >= times {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("run %s did not ask for %s %d times within %s", run, what, times, readyTimeout)
		}
	}
}
