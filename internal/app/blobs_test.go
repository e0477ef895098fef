package app_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/config"
)

// noise gives JSON of about so many bytes that no compression makes smaller by much.
func noise(seed byte, size int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	random := rand.NewChaCha8([32]byte{seed})
	out := make([]byte, size)
	_, _ = random.Read(out) // never fails
	for i, c := range out {
		out[i] = letters[c%64]
	}
	return append(append([]byte(`{"noise":"`), out...), `"}`...)
}

// bodies lists the blobs of a directory.
func bodies(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// wantError checks how the API refuses.
func wantError(t *testing.T, what string, err error, status int, code, message string) {
	t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || e.Status != status || e.Code != code || !strings.Contains(e.Message, message) {
		t.Errorf("%s: %v, want %d %s with %q", what, err, status, code, message)
	}
}

// TestLostBody takes stored bodies away, under a run that needs one and from a run that
// has ended: both say so, at once, and nothing is repeated.
func TestLostBody(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	dir := filepath.Join(n.cfg.DataDir, "blobs")
	large := noise(1, 9<<20) // more than a worker keeps of a value
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			_, _ = w.Write(large)
			return
		}
		for _, path := range bodies(t, dir) {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
		fmt.Fprint(w, `{}`)
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"needs","steps":[
		{"id":"large","config":{"url":"%[1]s/large?run=a"}},
		{"id":"removes","config":{"url":"%[1]s/removes?run=a"}},
		{"id":"reads","config":{"type":"transform","transformCode":"(s) => s.large.data.noise.length"}}]}`, up.URL))
	began := time.Now()
	run := n.run(t, tool, v1.RunRequest{RunID: "a"})
	if run.Status != "failed" || !strings.Contains(run.Error, "missing from the blob store") {
		t.Errorf("%s %q", run.Status, run.Error)
	}
	if took := time.Since(began); took > 30*time.Second || len(up.of("a")) != 2 {
		t.Errorf("after %s and %d requests", took, len(up.of("a")))
	}
	_, err := n.api.Results(t.Context(), "a")
	wantError(t, "results of the failed run", err, 500, "body_missing", "restore it from a backup")

	// A rerun that begins before the lost body makes it anew.
	n.tool(t, fmt.Sprintf(`{"id":"plain","steps":[{"id":"large","config":{"url":"%[1]s/large?run=b"}}]}`, up.URL))
	if run := n.run(t, "plain", v1.RunRequest{RunID: "b"}); run.Status != "success" {
		t.Fatal(run.Error)
	}
	for _, path := range bodies(t, dir) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	_, err = n.api.Results(t.Context(), "b")
	wantError(t, "results of the success", err, 500, "body_missing", "restore it from a backup")
	if run := n.rerun(t, "b", v1.RerunRequest{RunID: "c", FromStep: "large"}); run.Status != "success" {
		t.Errorf("the rerun: %s %q", run.Status, run.Error)
	}
	if _, err := n.api.Results(t.Context(), "c"); err != nil {
		t.Error(err)
	}
}

// mountSmall mounts a file system of so many bytes, whose size resize changes.
func mountSmall(t *testing.T, size string) (dir string, resize func(size string)) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Skipf("A FULL DISK IS NOT TESTED HERE: a small tmpfs cannot be mounted (%v); run as root where mounting is allowed", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(size string) {
		t.Helper()
		if out, err := exec.Command("mount", "-o", "remount,size="+size, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestFullBlobDirectory fills the directory of bodies. Runs that need it wait and then fail
// with the reason, or go on when there is room again; the others notice nothing.
func TestFullBlobDirectory(t *testing.T) {
	t.Parallel()
	dir, resize := mountSmall(t, "1m")
	n := startNode(t, func(c *config.Config) {
		c.BlobURL = "file://" + dir
		c.BlobWait = 3 * time.Second
	})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/small" {
			fmt.Fprint(w, `{"small":true}`)
			return
		}
		_, _ = w.Write(noise(2, 2<<20))
	})
	step := `{"id":"%[2]s","steps":[{"id":"s","config":{"url":"%[1]s/%[2]s","queryParams":{"run":"<<run>>"}}}]}`
	n.tool(t, fmt.Sprintf(step, up.URL, "large"))
	n.tool(t, fmt.Sprintf(step, up.URL, "small"))
	n.tool(t, `{"id":"output","outputTransform":"() => { const all = []; for (let i = 0, x = 1; i < 4e5; i++) { x = (x * 16807) % 2147483647; all.push(x.toString(36)) } return all.join('') }"}`)
	n.tool(t, `{"id":"file","steps":[{"id":"f","config":{"type":"transform","transformCode":"() => ({__files__: [{filename: 'a', content: 'x'.repeat(2e6)}]})"}}]}`)
	start := func(tool, run string) {
		t.Helper()
		async := v1.RunRequest{RunID: run, Inputs: []byte(`{"run":"` + run + `"}`), Options: &v1.RunOptions{Async: true}}
		if _, err := n.api.Run(t.Context(), tool, async); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"large", "output", "file"} {
		start(tool, "full-"+tool)
	}
	for i := range 5 { // meanwhile
		if run := n.run(t, "small", v1.RunRequest{Inputs: []byte(`{"run":"small"}`)}); run.Status != "success" {
			t.Errorf("small run %d: %s %q", i, run.Status, run.Error)
		}
	}
	for _, tool := range []string{"large", "output", "file"} {
		run := n.waitFinal(t, "full-"+tool, time.Minute)
		if run.Status != "failed" || !strings.Contains(run.Error, "The blob store is full") || !strings.Contains(run.Error, "waited for 3s") {
			t.Errorf("%s: %s %q", tool, run.Status, run.Error)
		}
	}
	if len(up.of("full-large")) != 1 {
		t.Errorf("the page was asked for %d times", len(up.of("full-large")))
	}
	if left := bodies(t, dir); len(left) > 0 {
		t.Errorf("half of a body is left: %v", left)
	}

	// There is room before the wait ends: nothing fails, and nothing is asked for twice.
	start("large", "waits")
	eventually(t, 20*time.Second, func() error {
		if len(up.of("waits")) == 0 {
			return errors.New("not asked for yet")
		}
		return nil
	})
	resize("64m")
	if run := n.waitFinal(t, "waits", time.Minute); run.Status != "success" || len(up.of("waits")) != 1 {
		t.Errorf("%s %q after %d requests", run.Status, run.Error, len(up.of("waits")))
	}
	again, err := n.api.Rerun(t.Context(), "full-large", v1.RerunRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if again = n.waitFinal(t, again.RunID, time.Minute); again.Status != "success" {
		t.Errorf("the rerun: %s %q", again.Status, again.Error)
	}
}
