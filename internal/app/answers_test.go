package app_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/config"
)

// TestHostileAnswers gives runs answers that are too large, too slow or not what they say
// they are: each run fails and says why, in bounded memory.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	const maxAnswer = 4 << 20
	n := startNode(t, func(cfg *config.Config) { cfg.MaxAnswer = maxAnswer })
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 1000 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	drip := func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write([]byte("[")); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		case "/drip":
			drip(w, r)
		case "/silent":
			<-r.Context().Done()
		case "/lying":
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"a":1}`)
			panic(http.ErrAbortHandler)
		case "/deep":
			fmt.Fprint(w, strings.Repeat("[", 5000)+strings.Repeat("]", 5000))
		case "/largest":
			fmt.Fprintf(w, `"%s"`, strings.Repeat("x", maxAnswer-2))
		}
	})
	for _, x := range []struct {
		path, method, problem string
		timeout               int64
		requests              int
	}{
		{path: "/bomb", problem: "4 MiB", requests: 1},
		{path: "/endless", problem: "4 MiB", requests: 1},
		{path: "/drip", problem: "gave up after two timeouts", timeout: 300, requests: 2},
		{path: "/silent", problem: "gave up after two timeouts", timeout: 300, requests: 2},
		{path: "/silent", method: "POST", problem: "outcome is unknown", timeout: 300, requests: 1},
		{path: "/drip", method: "POST", problem: "outcome is unknown", timeout: 300, requests: 1},
		{path: "/lying", method: "POST", problem: "outcome is unknown", requests: 1},
		{path: "/deep", problem: "1000 levels", requests: 1},
		{path: "/largest", requests: 1},
	} {
		id := x.path[1:] + x.method
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			tool := n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"a","config":{"method":%q,"url":"%s%s?run=%s"}}]}`,
				id, map[bool]string{true: "GET", false: x.method}[x.method == ""], up.URL, x.path, id))
			run := n.run(t, tool, v1.RunRequest{Options: &v1.RunOptions{Timeout: x.timeout}})
			switch {
			case x.problem == "" && (run.Status != "success" || len(run.Data) != maxAnswer):
				t.Errorf("a %s with error %q and %d bytes", run.Status, run.Error, len(run.Data))
			case x.problem != "" && (run.Status != "failed" || !strings.Contains(run.Error, x.problem)):
				t.Errorf("a %s with error %q", run.Status, run.Error)
			}
			if got := len(up.of(id)); got != x.requests {
				t.Errorf("%d requests, want %d", got, x.requests)
			}
			t.Logf("%.300s", run.Error)
		})
	}
}
