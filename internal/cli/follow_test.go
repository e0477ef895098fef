package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "stepwell/api/v1"
)

// api serves handlers for one test and gives what runs a command line against them.
func api(t *testing.T, handlers map[string]http.HandlerFunc) func(args ...string) (code int, out, errs string) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for pattern, handler := range handlers {
		mux.HandleFunc(pattern, handler)
	}
	env := map[string]string{"STEPWELL_API_KEY": "secret-key", "STEPWELL_URL": server.URL}
	return func(args ...string) (int, string, string) {
		var o, e strings.Builder
		code := Run(t.Context(), args, Commands{}, Streams{In: strings.NewReader(`{"token":"t"}`), Out: &o, Err: &e, Getenv: func(n string) string { return env[n] }})
		return code, o.String(), e.String()
	}
}

func event(w http.ResponseWriter, name, id string, data any) {
	text, _ := json.Marshal(data) // values that encode
	fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, id, text)
}

// TestFollow shows a run by its events, over a stream that breaks off, and prints them for
// programs.
func TestFollow(t *testing.T) {
	t.Parallel()
	var streams atomic.Int32
	end := state("failed", nil)
	end.Error = "Step 1 (orders): no"
	use := api(t, map[string]http.HandlerFunc{"GET /v1/runs/r1/events": func(w http.ResponseWriter, r *http.Request) {
		streams.Add(1)
		switch r.Header.Get("Last-Event-ID") {
		case "":
			event(w, "status", "running", state("running", &v1.Progress{Step: "orders"}))
			event(w, "progress", "p1", v1.Progress{Step: "orders", Page: 2, Items: 200, Bytes: 36_000})
		case "p1":
			event(w, "progress", "p2", v1.Progress{Step: "pay", WaitingFor: &v1.Waiting{Reason: "queue"}})
			event(w, "status", "failed", end)
		case "failed":
			w.WriteHeader(http.StatusNoContent)
		}
	}})
	code, out, errs := use("runs", "watch", "r1")
	if code != 1 || !strings.Contains(out, "orders") || !strings.Contains(out, "waiting: queue") || !strings.HasSuffix(out, "  r1  failed after 3.4 s\n") ||
		errs != "stepwell: run r1 failed: Step 1 (orders): no\n" || streams.Load() != 2 {
		t.Errorf("runs watch: %d %q %q after %d streams", code, out, errs, streams.Load())
	}
	code, out, errs = use("runs", "events", "r1")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 4 || !strings.HasPrefix(lines[1], `{"id":"p1","event":"progress","data":{"step":"orders","page":2,`) ||
		!strings.HasPrefix(lines[3], `{"id":"failed","event":"status","data":{"runId":"r1"`) {
		t.Errorf("runs events: %d %q %q", code, out, errs)
	}
	if code, out, errs = use("runs", "events", "r1", "--after", "p1"); code != 0 || strings.Count(out, "\n") != 2 {
		t.Errorf("runs events --after p1: %d %q %q", code, out, errs)
	}
	if code, out, errs = use("runs", "events", "--after", "failed", "r1"); code != 0 || out != "" {
		t.Errorf("runs events after the end: %d %q %q", code, out, errs)
	}
}

func TestRerunCommand(t *testing.T) {
	t.Parallel()
	var body string
	use := api(t, map[string]http.HandlerFunc{"POST /v1/runs/r1/rerun": func(w http.ResponseWriter, r *http.Request) {
		var in v1.RerunRequest
		_ = json.NewDecoder(r.Body).Decode(&in) // the test sees what is missing
		in.RunID = ""
		text, _ := json.Marshal(in)
		body = string(text)
		done := state("success", nil)
		done.Data = json.RawMessage(`[1]`)
		if *in.Options.Async {
			done = state("running", nil)
		}
		_ = json.NewEncoder(w).Encode(done)
	}})
	code, out, errs := use("runs", "rerun", "r1")
	if want := `{"options":{"async":false,"requestSource":"cli"}}`; code != 0 || out != "[\n  1\n]\n" || body != want {
		t.Errorf("runs rerun: %d %q %q sent %s", code, out, errs, body)
	}
	code, out, errs = use("runs", "rerun", "r1", "--async", "--from-step", "a", "--tool-version", "1.2.0", "--max-pages", "9", "--input", "n:=1", "--credentials", "-")
	want := `{"fromStep":"a","inputs":{"n":1},"credentials":{"token":"t"},"options":{"async":true,"requestSource":"cli","maxPages":9},"toolVersion":"1.2.0"}`
	if code != 0 || out != "r1\n" || body != want {
		t.Errorf("runs rerun: %d %q %q sent %s", code, out, errs, body)
	}
	if code, _, errs = use("runs", "rerun", "r1", "--inputs", "-", "--credentials", "-"); code != 2 {
		t.Errorf("two documents from one input: %d %q", code, errs)
	}
}

// TestFileCommands lists and saves files under harmless names, whole or not at all, and
// shows the key to nobody but the service.
func TestFileCommands(t *testing.T) {
	t.Parallel()
	use := api(t, map[string]http.HandlerFunc{
		"GET /v1/runs/r1/files": func(w http.ResponseWriter, r *http.Request) {
			link := "http://" + r.Host + "/v1/files/"
			_ = json.NewEncoder(w).Encode(v1.Files{FileArtifacts: []v1.FileArtifact{
				{FileKey: "a.0", Filename: "../x/y.txt", ContentType: "text/plain", Size: 2, DownloadURL: link + "whole"},
				{FileKey: "b.0", Filename: "../x/y.txt", ContentType: "text/plain", Size: 2, DownloadURL: link + "whole"},
				{FileKey: "c.0", Filename: "cut", Size: 3, DownloadURL: link + "whole"},
				{FileKey: "d.0", Filename: "late", Size: 3, DownloadURL: link + "late"},
			}})
		},
		"GET /v1/files/whole": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				t.Error("a link was followed with the key")
			}
			fmt.Fprint(w, "hi")
		},
		"GET /v1/files/late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"message":"File not found: the link is wrong","code":"not_found"}}`)
		},
		"GET /v1/runs/r1/results": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"success":true}`) },
	})
	if code, out, errs := use("files", "list", "r1"); code != 0 || !strings.Contains(out, "a.0   ../x/y.txt   text/plain   2 B") {
		t.Errorf("files list: %d %q %q", code, out, errs)
	}
	dir := t.TempDir()
	code, out, errs := use("files", "download", "r1", "a.0", "b.0", "--dir", dir)
	if code != 0 || !strings.Contains(out, filepath.Join(dir, "_x_y.txt")) || !strings.Contains(out, filepath.Join(dir, "b.0-_x_y.txt")) {
		t.Errorf("files download: %d %q %q", code, out, errs)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "_x_y.txt")); string(text) != "hi" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if code, out, _ := use("files", "download", "r1", "a.0", "--output", "-"); code != 0 || out != "hi" {
		t.Errorf("files download --output -: %d %q", code, out)
	}
	for args, want := range map[string]string{
		"files download r1 a.0 --dir " + dir:    "exists already",
		"files download r1 c.0 --dir " + dir:    "it ended after 2 of 3 bytes",
		"files download r1 d.0 --dir " + dir:    "File not found",
		"files download r1 none --dir " + dir:   "the run has no file none",
		"files download r1 --output x":          "--output needs one KEY",
		"files download":                        "RUN is missing",
		"runs results r1 --output " + dir + "/": "exists already",
	} {
		if code, _, errs := use(strings.Fields(args)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("stepwell %s: %d %q, want %q", args, code, errs, want)
		}
	}
	saved := filepath.Join(dir, "results.json")
	if code, out, errs := use("runs", "results", "r1", "--output", saved); code != 0 || out != "" {
		t.Errorf("runs results --output: %d %q %q", code, out, errs)
	}
	if text, err := os.ReadFile(saved); string(text) != "{\"success\":true}" {
		t.Errorf("the results are %q, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".stepwell-*")); len(left) > 0 {
		t.Errorf("half files are left: %v", left)
	}
}
