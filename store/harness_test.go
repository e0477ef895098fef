package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/blob"
	"stepwell/internal/devstack"
	"stepwell/internal/secret"
)

// template is the database with the whole schema that every test gets a copy of.
const template = "store_template"

// postgres is the server of this test process.
var postgres struct {
	sync.Once
	stack *devstack.Stack
	dir   string
	err   error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if postgres.stack != nil {
		if err := postgres.stack.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "close postgres:", err)
			code = max(code, 1)
		}
	}
	if postgres.dir != "" {
		_ = os.RemoveAll(postgres.dir) // a temporary directory
	}
	os.Exit(code)
}

// startPostgres starts a server that does not wait for the disk, and makes the template.
func startPostgres() error {
	var err error
	if postgres.dir, err = os.MkdirTemp("", "stepwell-store-"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	postgres.stack, err = devstack.Start(ctx, devstack.Options{
		DataDir:          postgres.dir,
		TemporalAddress:  "127.0.0.1:1", // not needed
		PostgresSettings: map[string]string{"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"},
	})
	if err != nil {
		return err
	}
	if err := admin(ctx, "CREATE DATABASE "+template); err != nil {
		return err
	}
	s, err := Open(ctx, Config{URL: databaseURL(template), Log: zap.NewNop()})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Migrate(ctx)
}

// admin runs a statement in the server's first database.
func admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, postgres.stack.DatabaseURL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func databaseURL(name string) string {
	u, err := url.Parse(postgres.stack.DatabaseURL())
	if err != nil {
		panic("the stack's database has a malformed address")
	}
	u.Path = "/" + name
	return u.String()
}

// newDatabase makes a database for a test, empty or with the schema, and gives its URL.
func newDatabase(t testing.TB, from string) string {
	t.Helper()
	postgres.Do(func() { postgres.err = startPostgres() })
	if postgres.err != nil {
		t.Fatal("start postgres: ", postgres.err)
	}
	name := "test_" + strings.ToLower(rand.Text())
	if err := admin(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from+" STRATEGY FILE_COPY"); err != nil {
		t.Fatal(err)
	}
	return databaseURL(name)
}

// testStore is a store on a database of its own, with one organization.
type testStore struct {
	*Store
	t        testing.TB
	url      string
	blobsDir string
	org      string
}

func newStore(t testing.TB) *testStore {
	t.Helper()
	ts := &testStore{t: t, url: newDatabase(t, template), blobsDir: t.TempDir()}
	ts.Store = openStore(t, ts.url, ts.blobsDir)
	var err error
	if ts.org, err = ts.CreateOrganization(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	return ts
}

func openStore(t testing.TB, address, blobsDir string) *Store {
	t.Helper()
	ring, err := secret.ParseRing("test:" + secret.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Open(t.Context(), "file://"+blobsDir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{URL: address, MaxConns: 60, Blobs: blobs, Sealer: ring, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if err := blobs.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// must gives the value of a call that may not fail.
func must[V any](t testing.TB) func(V, error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// noError fails the test at once.
func (ts *testStore) noError(err error) {
	ts.t.Helper()
	if err != nil {
		ts.t.Fatal(err)
	}
}

// tool saves a tool of some steps.
func (ts *testStore) tool(id string, steps ...stepwell.Step) *stepwell.Tool {
	ts.t.Helper()
	if steps == nil {
		steps = []stepwell.Step{{ID: "fetch", Config: stepwell.StepConfig{URL: "http://upstream/orders"}}}
	}
	return must[*stepwell.Tool](ts.t)(ts.CreateTool(ts.t.Context(), ts.org, &stepwell.Tool{ID: id, Steps: steps}))
}

// run records a run of a new tool; change, when given, alters it first.
func (ts *testStore) run(id string, credentials string, change ...func(*stepwell.Run)) *stepwell.Run {
	ts.t.Helper()
	t := ts.tool("")
	r := &stepwell.Run{OrgID: ts.org, ID: id, ToolID: t.ID, ToolVersion: t.VersionKey, Status: stepwell.RunRunning,
		Inputs: json.RawMessage(`{}`), RequestSource: "api", Mode: stepwell.ModeProd, TraceID: "trace", UserID: "user"}
	for _, f := range change {
		f(r)
	}
	var raw json.RawMessage
	if credentials != "" {
		raw = json.RawMessage(credentials)
	}
	ts.noError(ts.InsertRun(ts.t.Context(), r, raw))
	return r
}

func (ts *testStore) key(run string, step, item, page int) stepwell.PageKey {
	return stepwell.PageKey{Org: ts.org, Run: run, Step: step, Item: item, Page: page}
}

// save stores a page with a body and reports whether it was stored.
func (ts *testStore) save(k stepwell.PageKey, p stepwell.Page) bool {
	ts.t.Helper()
	if p.Body == nil && p.Error == "" {
		p.Body = json.RawMessage(`[1]`)
	}
	return must[bool](ts.t)(ts.SavePage(ts.t.Context(), k, &p, false))
}

// finish ends a run and reports whether this call did.
func (ts *testStore) finish(f stepwell.Finish) bool {
	ts.t.Helper()
	f.Org = ts.org
	ended, err := ts.FinishRun(ts.t.Context(), f)
	ts.noError(err)
	return ended.Finished
}

// blobFiles counts the blobs that are kept.
func (ts *testStore) blobFiles() int {
	ts.t.Helper()
	n := 0
	ts.noError(filepath.WalkDir(ts.blobsDir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			n++
		}
		return err
	}))
	return n
}

// count asks for a number.
func (ts *testStore) count(sql string, args ...any) int {
	ts.t.Helper()
	var n int
	ts.noError(ts.pool.QueryRow(ts.t.Context(), sql, args...).Scan(&n))
	return n
}

// exec runs a statement.
func (ts *testStore) exec(sql string, args ...any) {
	ts.t.Helper()
	_, err := ts.pool.Exec(ts.t.Context(), sql, args...)
	ts.noError(err)
}

// wantKind checks the kind of an error.
func wantKind(t testing.TB, what string, err error, want stepwell.Kind) {
	t.Helper()
	if err == nil || stepwell.KindOf(err) != want {
		t.Errorf("%s: got error %v of kind %d, want kind %d", what, err, stepwell.KindOf(err), want)
	}
}
