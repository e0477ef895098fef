package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// TestS3 keeps bodies on S3. A worker fetches a large page and is killed; another one, which
// shares no directory with it, goes on with what the first stored; a server without either
// gives results and files, and takes the run up again.
func TestS3(t *testing.T) {
	t.Parallel()
	bucket := stacktest.StartS3(t)
	stack := stacktest.Start(t, devstack.Options{})
	cfg := configFor(t, stack)
	cfg.BlobURL, cfg.Retention = bucket.URL(), 30*24*time.Hour
	n := startParts(t, cfg, app.Parts{Server: true})
	n.stack = stack
	worker := func() *workerProcess {
		own := cfg
		own.DataDir = t.TempDir()
		return startWorker(t, own)
	}
	large, picture := noise(3, 9<<20), noise(4, 1<<20)
	waits, goOn := make(chan struct{}, 100), make(chan struct{})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			_, _ = w.Write(large)
		case "/picture":
			w.Header().Set("Content-Type", "image/x-test")
			_, _ = w.Write(picture)
		default:
			waits <- struct{}{}
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
			fmt.Fprint(w, `{}`)
		}
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"s3","steps":[
		{"id":"large","config":{"url":"%[1]s/large?run=a"}},
		{"id":"picture","config":{"url":"%[1]s/picture?run=a"}},
		{"id":"waits","config":{"url":"%[1]s/waits?run=a"}}],
		"outputTransform":"(s) => ({noise: s.large.data.noise, size: s.picture.data.size})"}`, up.URL))
	first := worker()
	if _, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: "a", Options: &v1.RunOptions{Async: true}}); err != nil {
		t.Fatal(err)
	}
	<-waits // the page and the file are stored
	first.kill()
	close(goOn)
	worker()
	run := n.waitFinal(t, "a", time.Minute)
	if run.Status != "success" || run.ResultStorageURI == "" {
		t.Fatalf("%s %q %q", run.Status, run.Error, run.ResultStorageURI)
	}
	if asked := len(up.of("a")); asked != 4 {
		t.Errorf("%d requests, want each page once, and the last one twice", asked)
	}
	check := func(id string) {
		t.Helper()
		results, err := n.api.Results(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`,"size":%d}`, len(picture))
		if data := results.Data.Data; !bytes.HasPrefix(data, large[:len(large)-1]) || !strings.HasSuffix(string(data), want) {
			t.Errorf("%s: %d bytes of data", id, len(data))
		}
		files, err := n.api.Files(t.Context(), id)
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		res, err := http.Get(files[0].DownloadURL) //nolint:noctx // without a key: the link is enough
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, res); got != string(picture) {
			t.Errorf("the file of %s has %d bytes, status %d", id, len(got), res.StatusCode)
		}
	}
	check("a")
	sync := false
	again := n.rerun(t, "a", v1.RerunRequest{RunID: "b", FromStep: "waits", Options: &v1.RerunOptions{Async: &sync}})
	if asked := len(up.of("a")); asked != 5 || again.Status != "success" {
		t.Errorf("after the rerun %d requests, %s", asked, again.Error)
	}
	check("b")
	if left := bodies(t, bucket.Dir); len(left) != 4 { // page, file, and the data of both
		t.Errorf("%d objects: %v", len(left), left)
	}
	if left := bodies(t, cfg.DataDir); len(left) > 0 {
		t.Errorf("files beside S3: %v", left)
	}
	n.expire(t, "a", "b")
	n.Service.Retain(t.Context())
	if left := bodies(t, bucket.Dir); len(left) > 0 {
		t.Errorf("after their retention objects are left: %v", left)
	}
}

// expire makes runs older than they are kept.
func (n *node) expire(t *testing.T, runs ...string) {
	t.Helper()
	if _, err := n.connect(t).Exec(t.Context(), `UPDATE runs SET started_at = started_at - interval '90 days', completed_at = completed_at - interval '90 days' WHERE id = ANY($1)`, runs); err != nil {
		t.Fatal(err)
	}
}

// TestS3Fails has S3 fail in every way under runs: those that need it wait, and go on or fail
// with the reason; the others, and all that the API answers without it, notice nothing.
func TestS3Fails(t *testing.T) {
	t.Parallel()
	bucket := stacktest.StartS3(t)
	n := startNode(t, func(c *config.Config) {
		c.BlobURL, c.BlobWait = bucket.URL(), 3*time.Second
	})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			fmt.Fprint(w, `{"small":true}`)
			return
		}
		_, _ = w.Write(noise(5, 1<<20))
	})
	step := `{"id":"%[2]s","steps":[{"id":"s","config":{"url":"%[1]s/%[2]s","queryParams":{"run":"<<run>>"}}}]}`
	n.tool(t, fmt.Sprintf(step, up.URL, "large"))
	n.tool(t, fmt.Sprintf(step, up.URL, "small"))
	request := func(id string, async bool) v1.RunRequest {
		return v1.RunRequest{RunID: id, Inputs: json.RawMessage(`{"run":"` + id + `"}`), Options: &v1.RunOptions{Async: async}}
	}
	if run := n.run(t, "large", request("before", false)); run.Status != "success" {
		t.Fatal(run.Error)
	}
	for _, test := range []struct {
		name, want string
		fault      func(http.ResponseWriter, *http.Request) bool
	}{
		{"500", "The blob store fails", stacktest.Refuse(500, "InternalError")},
		{"503", "The blob store is overloaded", stacktest.Refuse(503, "SlowDown")},
		{"403", "The blob store refuses access", stacktest.Refuse(403, "AccessDenied")},
		{"full", "The blob store is full", stacktest.Refuse(507, "XMinioStorageFull")},
		{"reset", "The blob store", func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }},
	} {
		bucket.Fail(test.fault)
		if _, err := n.api.Run(t.Context(), "large", request("fails-"+test.name, true)); err != nil {
			t.Fatal(err)
		}
		if run := n.run(t, "small", request("small-"+test.name, false)); run.Status != "success" {
			t.Errorf("%s: beside it: %s %q", test.name, run.Status, run.Error)
		}
		if test.name != "403" { // once is enough: the client waits and tries again
			continue
		}
		_, err := n.api.Results(t.Context(), "before")
		wantError(t, test.name, err, 503, "blob_store_unavailable", test.want)
	}
	for _, name := range []string{"500", "503", "403", "full", "reset"} {
		run := n.waitFinal(t, "fails-"+name, time.Minute)
		if run.Status != "failed" || !strings.Contains(run.Error, "The blob store ") || !strings.Contains(run.Error, "waited for 3s") || len(up.of("fails-"+name)) != 1 {
			t.Errorf("%s: %s %q after %d requests", name, run.Status, run.Error, len(up.of("fails-"+name)))
		}
	}
	// It hangs for a while and is back before the wait ends.
	asked := bucket.Asked()
	bucket.Fail(stacktest.Hang)
	if _, err := n.api.Run(t.Context(), "large", request("waits", true)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if bucket.Asked() == asked {
			return errors.New("S3 was not asked")
		}
		return nil
	})
	if run := n.run(t, "small", request("small-hangs", false)); run.Status != "success" {
		t.Errorf("beside it: %s %q", run.Status, run.Error)
	}
	bucket.Fail(nil)
	bucket.CloseConnections()
	if run := n.waitFinal(t, "waits", time.Minute); run.Status != "success" || len(up.of("waits")) != 1 {
		t.Errorf("%s %q after %d requests", run.Status, run.Error, len(up.of("waits")))
	}
	if _, err := n.api.Results(t.Context(), "before"); err != nil {
		t.Error(err)
	}
}
