// Package stacktest gives tests a real Postgres and a real Temporal: one stack
// for a test process, a database of its own for each test; and an S3 server. It owns the quick
// start (a cached data directory, temporald built once for a machine), and
// nothing of what is tested. Only tests and benchmarks may import it.
package stacktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"stepwell/internal/devstack"
)

// Namespace is the Temporal namespace that temporald registers.
const Namespace = "stepwell"

// startTimeout bounds the start of a stack. The first one on a machine makes
// the cached directory, while other test processes wait.
const startTimeout = 2 * time.Minute

// shared is the stack of this test process.
var shared struct {
	sync.Mutex
	stack *devstack.Stack
	dir   string
	err   error
}

// Main runs a package's tests and then stops the stack that Shared may have
// started: `func TestMain(m *testing.M) { os.Exit(stacktest.Main(m)) }`. The
// result is the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.stack != nil {
		if err := shared.stack.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "stacktest: close the stack:", err)
			code = max(code, 1)
		}
		if err := os.RemoveAll(shared.dir); err != nil {
			fmt.Fprintln(os.Stderr, "stacktest: remove the stack's directory:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared gives the stack of this test process, which the first call starts. Its
// package needs a TestMain that calls Main. Tests that kill or configure use
// Start.
func Shared(t testing.TB) *devstack.Stack {
	t.Helper()
	binary := Binary(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.stack == nil && shared.err == nil {
		removeStale(filepath.Join(os.TempDir(), "stepwell-test-*"), func(dir string) string { return filepath.Join(dir, "lock") })
		shared.dir, shared.err = os.MkdirTemp("", "stepwell-test-")
		if shared.err == nil {
			shared.stack, shared.err = start(devstack.Options{DataDir: shared.dir, Temporald: binary})
		}
	}
	if shared.err != nil {
		t.Fatal("start the shared stack: ", shared.err)
	}
	return shared.stack
}

// Start gives a test a stack of its own, which ends with the test. What o says
// wins; its DataDir is a temporary one by default.
func Start(t testing.TB, o devstack.Options) *devstack.Stack {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	if o.Temporald == "" && o.TemporalAddress == "" {
		o.Temporald = Binary(t)
	}
	stack, err := start(o)
	if err != nil {
		t.Fatal("start a stack: ", err)
	}
	t.Cleanup(func() {
		if err := stack.Close(context.Background()); err != nil {
			t.Error("close the stack: ", err)
		}
	})
	return stack
}

// start starts a stack whose Postgres does not wait for the disk. That loses
// nothing when processes are killed, only when the machine is: what is committed
// is with the system. (With synchronous_commit off it would be in the memory of
// Postgres for some 0.2 s more, which a kill loses.)
func start(o devstack.Options) (*devstack.Stack, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	settings := map[string]string{"fsync": "off", "full_page_writes": "off"}
	for key, value := range o.PostgresSettings {
		settings[key] = value
	}
	o.PostgresSettings = settings
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, err
	}
	if err := seed(ctx, o); err != nil {
		return nil, err
	}
	return devstack.Start(ctx, o)
}

// Seed fills an empty data directory with databases that are made already, for a
// program under test that starts its own stack there: that saves it two or three
// seconds.
func Seed(t testing.TB, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := seed(ctx, devstack.Options{DataDir: dir, Temporald: Binary(t)}); err != nil {
		t.Fatal("seed a data directory: ", err)
	}
}

// Database makes an empty database for a test and gives its postgres:// URL.
// The database goes with the test.
func Database(t testing.TB, stack *devstack.Stack) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	admin(t, stack, "CREATE DATABASE "+name)
	t.Cleanup(func() { admin(t, stack, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(stack.DatabaseURL())
	if err != nil {
		t.Fatal("the URL of the stack's database is malformed")
	}
	u.Path = "/" + name
	return u.String()
}

// admin runs one statement in the application's database.
func admin(t testing.TB, stack *devstack.Stack, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, stack.DatabaseURL())
	if err == nil {
		_, err = conn.Exec(ctx, sql)
		_ = conn.Close(ctx)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Probe asks the Temporal at address for something that only its databases
// know: an error says that it does not work now.
func Probe(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = workflowservice.NewWorkflowServiceClient(conn).DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: Namespace})
	return err
}
