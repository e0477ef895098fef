package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"stepwell"
	"stepwell/internal/blob"
	"stepwell/internal/devstack/stacktest"
)

// TestRetentionBesideReruns deletes old runs while others are made, rerun and read: no rerun
// loses what it took over, no batch is large, and in the end nothing is left over. Some of
// the deletes in the blob store fail, and are repeated.
func TestRetentionBesideReruns(t *testing.T) {
	t.Parallel()
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		ts := newStore(t)
		retentionBesideReruns(t, ts, ts.blobsDir)
	})
	t.Run("S3", func(t *testing.T) {
		t.Parallel()
		ts := newStore(t)
		server := stacktest.StartS3(t)
		blobs, err := blob.Open(t.Context(), server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { blobs.Close() })
		ts.blobs = blobs
		refuse := stacktest.Refuse(503, "SlowDown")
		server.Fail(func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPost && r.URL.Query().Has("delete") && rand.IntN(2) == 0 && refuse(w, r)
		})
		retentionBesideReruns(t, ts, server.Dir)
	})
}

// oldRun makes an ended run of 31 days, of pages of both kinds and a file.
func (ts *testStore) oldRun(r *stepwell.Run) error {
	ctx := ts.t.Context()
	if err := ts.InsertRun(ctx, r, nil); err != nil {
		return err
	}
	pages := []stepwell.Page{{Body: []byte(`[1]`)}, {Body: largeBody(), Done: true, Files: []stepwell.File{{Key: "k", Name: "n", ContentType: "text/plain", Content: []byte(r.ID)}}}}
	for i := range pages {
		if _, err := ts.SavePage(ctx, ts.key(r.ID, 0, 0, i+1), &pages[i], false); err != nil {
			return err
		}
	}
	return ts.end(r.ID, true)
}

// end ends a run, as one of 31 days ago if it is to be old.
func (ts *testStore) end(id string, old bool) error {
	ctx := ts.t.Context()
	if _, err := ts.FinishRun(ctx, stepwell.Finish{Org: ts.org, Run: id, Status: stepwell.RunFailed, Error: "e"}); err != nil || !old {
		return err
	}
	_, err := ts.pool.Exec(ctx, `UPDATE runs SET started_at = started_at - $1::interval, completed_at = completed_at - $1::interval WHERE id = $2`, 31*24*time.Hour, id)
	return err
}

// whole reads all of a run.
func (ts *testStore) whole(id string) error {
	ctx := ts.t.Context()
	pages := 0
	if err := ts.PageBodies(ctx, ts.org, id, 0, func(*stepwell.Page) error { pages++; return nil }); err != nil {
		return err
	}
	_, content, err := ts.OpenFile(ctx, ts.org, id, "k")
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := io.Copy(io.Discard, content); err != nil || pages != 2 {
		return fmt.Errorf("%d pages, the file: %w", pages, err)
	}
	return nil
}

func retentionBesideReruns(t *testing.T, ts *testStore, dir string) {
	tool := ts.tool("t")
	makers, stop := sync.WaitGroup{}, make(chan struct{})
	var retention sync.WaitGroup
	pass := func() {
		n, err := ts.DeleteExpired(t.Context(), month)
		if err != nil || n > expiredRuns {
			t.Errorf("a batch of %d runs: %v", n, err)
		}
		for last := ""; ; {
			var err error
			if last, _, err = ts.RemoveDeletedBlobs(t.Context(), last); err != nil && !stepwell.IsBlobStoreAway(err) {
				t.Error(err)
			}
			if last == "" {
				return
			}
		}
	}
	for range 2 { // two processes
		retention.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					pass()
				}
			}
		})
	}
	var mu sync.Mutex
	var kept []string // reruns that are young
	late := 0
	for maker := range 4 {
		makers.Go(func() {
			for i := range 15 {
				first := &stepwell.Run{OrgID: ts.org, ID: fmt.Sprintf("%d-%d", maker, i), ToolID: "t", ToolVersion: tool.VersionKey,
					Inputs: []byte(`{}`), RequestSource: "api", Mode: stepwell.ModeProd, TraceID: "trace", UserID: "user"}
				if err := ts.oldRun(first); err != nil {
					t.Error(err)
					return
				}
				for of, again := first.ID, 0; again < 2; again++ { // of the run, then of its rerun
					rerun := *first
					rerun.ID, rerun.RerunOf = fmt.Sprintf("%s-%d", first.ID, again), of
					err := ts.InsertRerun(t.Context(), &rerun, nil, Reuse{Steps: []ReusedStep{{From: 0, To: 0}}})
					if stepwell.KindOf(err) == stepwell.KindNotFound {
						mu.Lock()
						late++
						mu.Unlock()
						break // retention was there first
					}
					if err == nil {
						err = ts.whole(rerun.ID)
					}
					if err == nil {
						err = ts.end(rerun.ID, again == 0)
					}
					if err != nil {
						t.Errorf("%s: %v", rerun.ID, err)
						return
					}
					if again == 1 {
						mu.Lock()
						kept = append(kept, rerun.ID)
						mu.Unlock()
					}
					of = rerun.ID
				}
			}
		})
	}
	makers.Wait()
	close(stop)
	retention.Wait()
	for ts.deleteExpired() > 0 {
	}
	for _, id := range kept {
		if err := ts.whole(id); err != nil {
			t.Errorf("%s lost something: %v", id, err)
		}
	}
	if n := ts.count(`SELECT count(*) FROM runs`); n != 3*len(kept) {
		t.Errorf("%d runs are left, want the %d young reruns and the two before each", n, len(kept))
	}
	if len(kept) == 0 {
		t.Error("no rerun was in time")
	}
	t.Logf("%d reruns in time, %d too late", len(kept), late)

	ts.exec(`UPDATE runs SET started_at = started_at - interval '90 days', completed_at = completed_at - interval '90 days'`)
	for deadline := time.Now().Add(time.Minute); ; {
		pass()
		if ts.count(`SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM deleted_blobs)`) == 0 || time.Now().After(deadline) {
			break
		}
	}
	left := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left++
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || left > 0 || ts.count(`SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM pages) + (SELECT count(*) FROM files)`) > 0 {
		t.Errorf("%d blobs and some rows are left over: %v", left, err)
	}
}
