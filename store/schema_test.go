package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"stepwell"
)

var update = flag.Bool("update", false, "write schema.sql from the migrations")

// TestSchemaFile compares schema.sql, which people read, with what the migrations make.
// `go test ./store -run SchemaFile -update` writes it.
func TestSchemaFile(t *testing.T) {
	t.Parallel()
	dump, err := exec.LookPath("pg_dump")
	if err != nil {
		t.Skip("pg_dump is not installed")
	}
	database := newDatabase(t, template)
	cmd := exec.CommandContext(t.Context(), dump, "--schema-only", "--no-owner", "--no-privileges", "--no-comments", "--dbname", database)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if strings.Contains(stderr.String(), "server version mismatch") {
		t.Skip("pg_dump is older than the server")
	}
	if err != nil {
		t.Fatalf("pg_dump: %v: %s", err, stderr.String())
	}
	want := "-- The current schema, as all migrations together make it. Written by\n" +
		"-- `go test ./store -run SchemaFile -update`; do not edit.\n\n" + normalized(string(output))
	if *update {
		if err := os.WriteFile("schema.sql", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("schema.sql")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("schema.sql is not what the migrations make: run `go test ./store -run SchemaFile -update`")
	}
}

// noise is what differs between versions of pg_dump and says nothing about the schema.
var noise = regexp.MustCompile(`(?m)^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n`)

func normalized(dump string) string {
	dump = noise.ReplaceAllString(dump, "")
	dump = strings.ReplaceAll(dump, "public.", "")
	dump = regexp.MustCompile(`\n{3,}`).ReplaceAllString(dump, "\n\n")
	return strings.TrimSpace(dump) + "\n"
}

// TestConcurrentMigrations starts many processes on an empty database at once.
func TestConcurrentMigrations(t *testing.T) {
	t.Parallel()
	address := newDatabase(t, "template0")
	s := openStore(t, address, t.TempDir())
	parallel(8, func(int) {
		if err := s.Migrate(t.Context()); err != nil {
			t.Error(err)
		}
	})
	var applied, files int
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM schema_migrations`).Scan(&applied); err != nil {
		t.Fatal(err)
	}
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".sql") {
			files++
		}
	}
	if applied != files {
		t.Errorf("%d of %d migrations are noted as applied", applied, files)
	}
	if _, err := s.CreateOrganization(t.Context(), "one"); err != nil {
		t.Error(err)
	}
}

// TestErrorsHaveAKind asks a database that is away and one that refuses.
func TestErrorsHaveAKind(t *testing.T) {
	t.Parallel()
	away, err := Open(t.Context(), Config{URL: "postgres://user:hush@127.0.0.1:1/none", Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	_, err = away.Run(t.Context(), "o", "r")
	wantKind(t, "a database that is away", err, stepwell.KindUnavailable)
	if strings.Contains(err.Error(), "hush") {
		t.Error("the password is in the error")
	}
	if _, err := Open(t.Context(), Config{URL: "postgres://user:hush@[bad/", Log: zap.NewNop()}); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a malformed address gives %v", err)
	}
	ts := newStore(t)
	if err := ts.InsertRun(t.Context(), &stepwell.Run{OrgID: ts.org, ID: "r", Inputs: []byte("{}"), Mode: "other"}, nil); err == nil || stepwell.KindOf(err) != stepwell.KindInternal {
		t.Errorf("a refused statement gives %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ts.Ping(ended); stepwell.KindOf(err) == stepwell.KindUnavailable {
		t.Errorf("a caller that hung up gives %v", err)
	}
}

// TestNotices sends from one process and hears in two.
func TestNotices(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx, stop := context.WithCancel(t.Context())
	heard := [2]chan Notice{make(chan Notice, 1000), make(chan Notice, 1000)}
	var lost atomic.Int32
	var done []chan struct{}
	notifiers := [2]*Notifier{}
	for i := range heard {
		notifiers[i] = NewNotifier(ts.Store, ts.url, func(n Notice) { heard[i] <- n }, func() { lost.Add(1) }, zap.NewNop())
		ended := make(chan struct{})
		done = append(done, ended)
		go func() {
			defer close(ended)
			notifiers[i].Run(ctx)
		}()
	}
	defer func() {
		stop()
		for _, ended := range done {
			<-ended
		}
	}()
	// A notice that is sent before the other listens is lost: send until it is heard.
	hear := func(i int, topic string) Notice {
		t.Helper()
		deadline := time.After(20 * time.Second)
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case n := <-heard[i]:
				if n.Topic == topic {
					return n
				}
			case <-again.C:
				notifiers[0].Send(Notice{Topic: topic, Words: []string{"org", "run"}})
			case <-deadline:
				t.Fatalf("listener %d never heard of %s", i, topic)
			}
		}
	}
	for i := range heard {
		if n := hear(i, "first"); len(n.Words) != 2 || n.Words[1] != "run" {
			t.Errorf("heard %+v", n)
		}
	}
	told := lost.Load()
	if told < 2 {
		t.Errorf("%d of two listeners told that what was sent before they listened is missed", told)
	}
	// Many at once arrive whole, although one notification cannot carry them.
	long := strings.Repeat("x", 200)
	for range 100 {
		notifiers[0].Send(Notice{Topic: "many", Words: []string{long}})
	}
	for range 100 {
		select {
		case n := <-heard[1]:
			if n.Topic == "many" && (len(n.Words) != 1 || n.Words[0] != long) {
				t.Fatalf("heard %+v", n)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("notices were lost")
		}
	}
	// A broken connection is made again, and somebody is told.
	ts.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`)
	for i := range heard {
		hear(i, "after")
	}
	if lost.Load() == told {
		t.Error("nobody was told that notices may be lost")
	}
}
