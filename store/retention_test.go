package store

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

const month = 30 * 24 * time.Hour

// age makes runs older than they are.
func (ts *testStore) age(by time.Duration, runs ...string) {
	ts.t.Helper()
	ts.exec(`UPDATE runs SET started_at = started_at - $1::interval, completed_at = completed_at - $1::interval WHERE id = ANY($2)`, by, runs)
}

// largeBody is a body that does not fit a row.
func largeBody() json.RawMessage {
	random := make([]byte, maxRowBody)
	rand.Read(random) // never fails
	return json.RawMessage(`"` + base64.StdEncoding.EncodeToString(random) + `"`)
}

// ended makes a run of a plain page, one that is a blob, a file and data that is a blob.
func (ts *testStore) ended(id string, change ...func(*stepwell.Run)) *stepwell.Run {
	ts.t.Helper()
	r := ts.run(id, "", change...)
	ts.save(ts.key(id, 0, 0, 1), stepwell.Page{})
	ts.save(ts.key(id, 0, 0, 2), stepwell.Page{Body: largeBody(), Done: true, Files: []stepwell.File{{Key: "k", Name: "n", ContentType: "text/plain", Content: []byte(id)}}})
	ts.finish(stepwell.Finish{Run: id, Status: stepwell.RunSuccess, Result: &stepwell.Result{Body: largeBody()}})
	return r
}

func (ts *testStore) deleteExpired() int {
	ts.t.Helper()
	return must[int](ts.t)(ts.DeleteExpired(ts.t.Context(), month))
}

// removeBlobs removes the blobs of deleted runs.
func (ts *testStore) removeBlobs() {
	ts.t.Helper()
	for last := ""; ; {
		var err error
		if last, _, err = ts.RemoveDeletedBlobs(ts.t.Context(), last); err != nil {
			ts.t.Fatal(err)
		}
		if last == "" {
			return
		}
	}
}

// TestDeleteExpired deletes old runs with everything, and nothing that is referred to.
func TestDeleteExpired(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.ended("old")
	first := ts.ended("first")
	ts.ended("parent")
	ts.ended("child", func(r *stepwell.Run) { r.ParentRunID = "parent" })
	ts.ended("young")
	ts.run("open", "")
	again := *first
	again.ID, again.RerunOf = "again", "first"
	ts.noError(ts.InsertRerun(t.Context(), &again, nil, Reuse{Steps: []ReusedStep{{From: 0, To: 0}}}))
	ts.finish(stepwell.Finish{Run: "again", Status: stepwell.RunFailed, Error: "e"})
	if n := ts.blobFiles(); n != 5*3 { // the rerun shares those of the run that it took up
		t.Fatalf("%d blobs", n)
	}
	ts.age(31*24*time.Hour, "old", "first", "parent", "open")

	if n := ts.deleteExpired(); n != 1 || ts.deleteExpired() != 0 {
		t.Fatalf("%d runs were deleted, want the old one to which none refers", n)
	}
	_, err := ts.Run(t.Context(), ts.org, "old")
	wantKind(t, "the deleted run", err, stepwell.KindNotFound)
	ts.removeBlobs()
	if n := ts.blobFiles(); n != 4*3 {
		t.Errorf("%d blobs are left", n)
	}
	// The rerun's pages are whole, of shared blobs.
	pages := 0
	ts.noError(ts.PageBodies(t.Context(), ts.org, "again", 0, func(p *stepwell.Page) error {
		pages++
		return nil
	}))
	if _, content, err := ts.OpenFile(t.Context(), ts.org, "again", "k"); err != nil || pages != 2 {
		t.Errorf("the rerun has %d pages, its file: %v", pages, err)
	} else {
		content.Close()
	}

	ts.age(31*24*time.Hour, "again", "child")
	if n := ts.deleteExpired(); n != 2 {
		t.Errorf("%d runs were deleted, want the rerun and the child", n)
	}
	ts.removeBlobs()
	if n := ts.blobFiles(); n != 3*3 {
		t.Errorf("%d blobs are left: those of a rerun belong to the run that it took up", n)
	}
	if n := ts.deleteExpired(); n != 2 || ts.deleteExpired() != 0 {
		t.Errorf("%d runs were deleted, want what these came from", n)
	}
	ts.removeBlobs()
	if n := ts.blobFiles(); n != 3 {
		t.Errorf("%d blobs are left, want those of the young run", n)
	}
	for _, table := range []string{"pages", "selections", "files", "claims", "waits", "deleted_blobs"} {
		column := map[bool]string{true: "run_id <> 'young'", false: "true"}[table != "deleted_blobs"]
		if n := ts.count("SELECT count(*) FROM " + table + " WHERE " + column); n > 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	if n := ts.count(`SELECT count(*) FROM runs`); n != 2 {
		t.Errorf("%d runs are left, want the young and the open one", n)
	}
}

// TestDeleteExpiredInBatches bounds what one transaction deletes.
func TestDeleteExpiredInBatches(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	tool := ts.tool("t")
	ts.exec(`INSERT INTO runs (org_id, id, tool_id, tool_version, status, inputs, options, request_source, mode, trace_id, user_id, started_at, completed_at)
		SELECT $1, 'r' || n, 't', $2, 'success', '{}', '{}', 'api', 'prod', 't', 'u', now() - interval '50 days' + n * interval '1 s', now() - interval '40 days' FROM generate_series(1, 250) AS n`,
		ts.org, tool.VersionKey)
	ts.exec(`INSERT INTO pages (org_id, run_id, step, item, page, done) SELECT $1, 'r1', 0, 0, n, n = 6000 FROM generate_series(1, 6000) AS n`, ts.org)
	var batches []int
	for n := 1; n > 0; {
		n = ts.deleteExpired()
		batches = append(batches, n)
	}
	if got := fmt.Sprint(batches); got != "[1 100 100 49 0]" {
		t.Errorf("batches of %s, want the run of many pages alone, then 100 at a time", got)
	}
}

// TestDeletedBlobInUse keeps a blob that a new run of the deleted one's id has written again.
func TestDeletedBlobInUse(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.ended("same")
	ts.age(31*24*time.Hour, "same")
	if n := ts.deleteExpired(); n != 1 {
		t.Fatal(n)
	}
	ts.run("same", "")
	ts.save(ts.key("same", 0, 0, 1), stepwell.Page{Done: true, Files: []stepwell.File{{Key: "k", Content: []byte("same")}}})
	ts.removeBlobs()
	if n := ts.blobFiles(); n != 1 {
		t.Errorf("%d blobs, want the file of the new run", n)
	}
}

// TestBlobsAreKnown: each column that names blobs is asked before one is removed, and its
// blobs go with their run.
func TestBlobsAreKnown(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	rows, err := ts.pool.Query(t.Context(), `SELECT table_name FROM information_schema.columns
		WHERE table_schema = 'public' AND column_name IN ('blob', 'data_blob')`)
	ts.noError(err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ts.noError(err)
	if len(tables) < 5 {
		t.Errorf("only %v have blobs", tables)
	}
	source, err := os.ReadFile("retention.go")
	ts.noError(err)
	for _, table := range tables {
		if !strings.Contains(referred("o", "r", "k"), " FROM "+table+" ") {
			t.Errorf("referred does not ask %s", table)
		}
		if !strings.Contains(string(source), "DELETE FROM "+table+" WHERE org_id = $1") {
			t.Errorf("retention does not delete from %s", table)
		}
	}
}
