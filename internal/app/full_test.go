package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// fill writes a file until its file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 64<<10); ; {
		if _, err := f.Write(piece); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// post sends a run by hand: the client would repeat what is refused.
func (n *node) post(t *testing.T, tool string, r v1.RunRequest) (status int, retryAfter, body string) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/tools/"+tool+"/run", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Retry-After"), readAll(t, res)
}

// TestFullDatabase fills the disk of Postgres, ours and Temporal's. Requests are accepted or
// refused with 503, runs wait; with room again all that was accepted goes on to its end.
// Postgres refuses to make its tables larger; without room for its log it ends, and cannot
// start until there is some.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	t.Run("tables", func(t *testing.T) {
		t.Parallel()
		fullDatabase(t, false)
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		fullDatabase(t, true)
	})
}

// connect opens a connection to Postgres, of which a full one may not take another.
func (n *node) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), n.cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exhaustLog writes to the log of Postgres until it ends for want of room, which ends its
// connections; what it says of that may find no room either.
func exhaustLog(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for range 1000 { // megabytes
		_, err := conn.Exec(t.Context(), `SELECT pg_logical_emit_message(true, 'ballast', repeat('x', 1000000))`)
		if conn.IsClosed() {
			t.Logf("Postgres ended: %v", err)
			return
		}
	}
	t.Fatal("Postgres did not end at a gigabyte of log")
}

func fullDatabase(t *testing.T, log bool) {
	dir, _ := mountSmall(t, "500m")
	stack := stacktest.Start(t, devstack.Options{DataDir: filepath.Join(dir, "data")})
	n := startParts(t, configFor(t, stack), app.Parts{Server: true, Worker: true})
	n.stack = stack
	goOn := make(chan struct{})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-goOn:
			_, _ = w.Write(noise(6, 150_000)) // a row
		case <-r.Context().Done():
		}
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"t","steps":[{"id":"s","config":{"url":"%s/","queryParams":{"run":"<<run>>"}}}]}`, up.URL))
	var accepted []string
	start := func(id string) (status int) {
		t.Helper()
		inputs := fmt.Sprintf(`{"run":%q,"ballast":%s}`, id, noise(7, 100_000))
		status, retryAfter, body := n.post(t, tool, v1.RunRequest{RunID: id, Inputs: json.RawMessage(inputs), Options: &v1.RunOptions{Async: true}})
		switch {
		case status == http.StatusAccepted:
			accepted = append(accepted, id)
		case status != http.StatusServiceUnavailable || retryAfter == "":
			t.Errorf("run %s was refused with %d, Retry-After %q: %s", id, status, retryAfter, body)
		}
		return status
	}
	for i := range 10 {
		start(fmt.Sprintf("before-%d", i))
	}
	eventually(t, 30*time.Second, func() error {
		for _, id := range accepted {
			if len(up.of(id)) == 0 {
				return fmt.Errorf("%s is not working", id)
			}
		}
		return nil
	})
	conn := n.connect(t)
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	if log {
		exhaustLog(t, conn)
		fill(t, filler)
	}
	close(goOn)
	refused, slowest := 0, time.Duration(0)
	deadline := time.Now().Add(90 * time.Second)
	for i := 0; refused < 10 && time.Now().Before(deadline); i++ {
		began := time.Now()
		if start(fmt.Sprintf("full-%d", i)) == http.StatusServiceUnavailable {
			refused++
			slowest = max(slowest, time.Since(began))
		}
		fill(t, filler) // what Postgres gave back meanwhile
	}
	if refused < 10 {
		t.Fatalf("of %d runs only %d were refused: the disk is not full", len(accepted)+refused, refused)
	}
	once := client.New(n.url, adminKey, client.WithRetries(0, 0))
	for _, id := range accepted {
		if run, err := once.GetRun(t.Context(), id); err == nil && run.Status == "failed" {
			t.Errorf("%s failed for want of room: %s", id, run.Error)
		}
	}
	said, err := os.ReadFile(filepath.Join(dir, "data", "postgres.log"))
	if err != nil {
		t.Fatal(err)
	}
	full := bytes.Count(said, []byte("No space left on device"))
	if full == 0 {
		t.Error("Postgres did not say that its disk is full")
	}
	t.Logf("%d runs were accepted, %d refused; Postgres said %d times that there is no space; the slowest refusal took %s", len(accepted), refused, full, slowest)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for _, id := range accepted {
		var run *v1.Run
		eventually(t, 2*time.Minute, func() (err error) { // also while Postgres recovers
			run, err = n.api.GetRun(t.Context(), id)
			if err == nil && run.Status == "running" {
				err = fmt.Errorf("%s is still running: %+v", id, run.Progress)
			}
			return err
		})
		if run.Status != "success" {
			t.Errorf("%s: %s %q", id, run.Status, run.Error)
		}
	}
	if status := start("after"); status != http.StatusAccepted {
		t.Errorf("a run after it: %d", status)
	} else if run := n.waitFinal(t, "after", time.Minute); run.Status != "success" {
		t.Errorf("a run after it: %s %q", run.Status, run.Error)
	}
}
