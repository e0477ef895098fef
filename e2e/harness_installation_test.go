package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// adminKey is preset in every installation.
const adminKey = "e2e-admin-key-0123456789"

// perPage is the number of records of a page of the tool `pull`.
const perPage = 10

// installation is the service under test with all that belongs to it. It is laid out in
// one of two ways: `stepwell dev`, which runs server and worker and has Postgres and
// temporald as its children, with further workers beside it; or server and workers as
// processes of their own on a Postgres and a temporald that this process supervises.
type installation struct {
	t        testing.TB
	dir      string
	upstream *upstream
	base     string // of the API
	client   *client.Client
	stack    *devstack.Stack // of the second layout
	dev      *process        // of the first layout
	server   *process        // of the second layout
	workers  []*process
	env      []string // of the second layout's processes
}

// startDev starts `stepwell dev` and further workers beside it.
func startDev(t testing.TB, workers int, env ...string) *installation {
	t.Helper()
	in := newInstallation(t)
	stacktest.Seed(t, in.dataDir())
	address := freeAddress(t)
	in.dev = in.process("dev", "stepwell", []string{"dev", "--listen", address, "--data-dir", in.dataDir()}, env)
	in.use("http://" + address + "/v1")
	in.dev.start(t)
	for i := range workers {
		in.addWorker(i, in.devEnvironment())
	}
	in.createTools()
	return in
}

// startSplit starts a server without a worker, and workers.
func startSplit(t testing.TB, workers int) *installation {
	t.Helper()
	in := newInstallation(t)
	in.stack = stacktest.Start(t, devstack.Options{})
	env := []string{
		"STEPWELL_DATABASE_URL=" + in.stack.DatabaseURL(),
		"STEPWELL_TEMPORAL_ADDRESS=" + in.stack.TemporalAddress(),
		"STEPWELL_ENCRYPTION_KEYS=e2e:" + strings.Repeat("A", 43) + "=",
		"STEPWELL_BLOB_URL=file://" + filepath.Join(in.dataDir(), "blobs"),
	}
	in.env = env
	address := freeAddress(t)
	in.server = in.process("server", "server", nil, append(env, "STEPWELL_LISTEN="+address))
	in.use("http://" + address + "/v1")
	in.server.start(t)
	for i := range workers {
		in.addWorker(i, env)
	}
	in.createTools()
	return in
}

func newInstallation(t testing.TB) *installation {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := &installation{t: t, dir: dir, upstream: newUpstream(t)}
	if err := os.MkdirAll(in.dataDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	return in
}

func (in *installation) dataDir() string { return filepath.Join(in.dir, "data") }

// process makes a process that ends with the test; its log is shown when the test failed.
func (in *installation) process(name, program string, args, env []string) *process {
	p := &process{name: name, dir: in.dir, args: append([]string{filepath.Join(programs(in.t), program)}, args...)}
	p.env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "STEPWELL_API_KEY=" + adminKey}, env...)
	in.t.Cleanup(func() {
		p.kill()
		if in.t.Failed() {
			if text, err := os.ReadFile(p.logPath()); err == nil {
				in.t.Logf("end of the log of %s:\n%s", p.name, text[max(0, len(text)-6000):])
			}
		}
	})
	return p
}

// devEnvironment is what a worker needs to know of a running dev.
func (in *installation) devEnvironment() []string {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(in.dataDir(), name))
		if err != nil {
			in.t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	var ports map[string]int
	if err := json.Unmarshal([]byte(read("ports.json")), &ports); err != nil {
		in.t.Fatal("ports.json: ", err)
	}
	return []string{
		"STEPWELL_DATABASE_URL=" + read("database-url"),
		"STEPWELL_ENCRYPTION_KEYS=" + read("encryption-keys"),
		"STEPWELL_TEMPORAL_ADDRESS=" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports["temporald"])),
		"STEPWELL_BLOB_URL=file://" + filepath.Join(in.dataDir(), "blobs"),
	}
}

func (in *installation) addWorker(i int, env []string) {
	w := in.process("worker"+strconv.Itoa(i+1), "worker", nil, env)
	in.workers = append(in.workers, w)
	w.start(in.t)
}

func (in *installation) use(base string) {
	in.base = base
	in.client = client.New(base, adminKey, client.WithRetries(0, 0))
}

// createTools saves the tools `pull`, one step that pulls orders by cursor, and `push`
// and `push-idempotent`, one step that makes orders, one request for each of `items`.
func (in *installation) createTools() {
	in.t.Helper()
	query := func(names ...string) map[string]json.RawMessage {
		values := map[string]json.RawMessage{}
		for _, name := range names {
			values[name] = json.RawMessage(strconv.Quote("<<" + name + ">>"))
		}
		return values
	}
	pull := v1.Step{ID: "orders", Config: v1.StepConfig{
		URL:         in.upstream.front.URL + "/orders",
		QueryParams: query("run", "pages", "delay", "limit", "cursor"),
		Pagination:  &v1.Pagination{Type: "cursorBased", PageSize: json.RawMessage(strconv.Itoa(perPage)), CursorPath: "next_cursor"},
	}}
	push := v1.Step{ID: "made", DataSelector: "(s) => Array.from({length: s.items}, (_, i) => i + 1)", FailureBehavior: "continue", Config: v1.StepConfig{
		URL: in.upstream.front.URL + "/orders", Method: "POST", QueryParams: query("run", "delay"),
		Body: `{"customerId": "cus_0001", "product": "oak stool", "quantity": <<currentItem>>, "totalCents": 100}`,
	}}
	idempotent := push
	idempotent.Idempotent = true
	for id, step := range map[string]v1.Step{"pull": pull, "push": push, "push-idempotent": idempotent} {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		_, err := in.client.CreateTool(ctx, v1.ToolCreate{ID: id, Steps: []v1.Step{step}})
		cancel()
		if err != nil {
			in.t.Fatalf("save the tool %s: %v", id, err)
		}
	}
}

// pull is a run of the tool `pull`.
type pull struct {
	id    string
	pages int
	delay time.Duration // of each page
}

var lastPull atomic.Int64

// request is the request that starts the run.
func (p pull) request() v1.RunRequest {
	inputs := fmt.Appendf(nil, `{"run":%q,"pages":%d,"delay":%q}`, p.id, p.pages, p.delay)
	return v1.RunRequest{RunID: p.id, Inputs: inputs, Options: &v1.RunOptions{Async: true}}
}

// start starts a run of the tool `pull`.
func (in *installation) start(pages int, delay time.Duration) pull {
	in.t.Helper()
	p := pull{id: fmt.Sprintf("pull-%d", lastPull.Add(1)), pages: pages, delay: delay}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := in.client.Run(ctx, "pull", p.request()); err != nil {
		in.t.Fatal("start a run: ", err)
	}
	return p
}

// pollEvery is how often the harness looks again where nothing tells it.
const pollEvery = 50 * time.Millisecond

// ended waits for the end of a run, however often the service goes away meanwhile.
func (in *installation) ended(p pull, limit time.Duration) *v1.Run {
	in.t.Helper()
	var run *v1.Run
	var err error
	if !eventually(limit, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		run, err = in.client.GetRun(ctx, p.id)
		return err == nil && run.Status != "running"
	}) {
		progress := ""
		if err == nil && run.Progress != nil {
			progress = fmt.Sprintf("at page %d", run.Progress.Page)
		}
		in.t.Fatalf("run %s of %d pages did not end within %s (%s, %v)", p.id, p.pages, limit, progress, err)
	}
	return run
}

// eventually looks until a condition holds; false when it does not within the limit.
func eventually(limit time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pollEvery)
	}
	return true
}

// random is the source of one test's random moments. Its seed is in the test's log.
func random(t testing.TB) *rand.Rand {
	t.Logf("seed %d (repeat with -seed)", *seed)
	sum := uint64(0)
	for _, b := range []byte(t.Name()) {
		sum = sum*31 + uint64(b)
	}
	return rand.New(rand.NewPCG(uint64(*seed), sum))
}
