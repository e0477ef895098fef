package app_test

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
)

// TestOddTexts lets upstreams and expressions say what Postgres cannot store as text, or
// JSON cannot hold: runs end all the same, and data is kept as it is.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/refuse":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte("no\x00 \xff\xfe way"))
		case "/data":
			_, _ = w.Write([]byte(`{"nul\u0000":"a\u0000b","half":"\ud800","big":1e999}`))
		case "/pages":
			if r.URL.Query().Get("cursor") == "" {
				_, _ = w.Write([]byte(`{"data":[1],"next_cursor":"\u0000\u00e9"}`))
				return
			}
			_ = json.NewEncoder(w).Encode(map[string][]any{"data": {2, r.URL.Query().Get("cursor")}})
		}
	})
	for _, x := range []struct{ name, tool, data, problem string }{
		{"refusal", `{"steps":[{"id":"a","config":{"url":"UP/refuse"}}]}`, "", "answered 400"},
		{"refusal-continued", `{"steps":[{"id":"a","failureBehavior":"continue","config":{"url":"UP/refuse"}}],"outputTransform":"(s) => s.a.success"}`, "false", ""},
		{"data", `{"steps":[{"id":"a","config":{"url":"UP/data"}}]}`, `{"nul\u0000":"a\u0000b","half":"\ud800","big":1e999}`, ""},
		{"thrown", `{"steps":[{"id":"a","config":{"type":"transform","transformCode":"(s) => { throw new Error('a\\u0000b \\ud800 c') }"}}]}`, "", "a"},
		{"thrown-by-selector", `{"steps":[{"id":"a","dataSelector":"(s) => { throw new Error('a\\u0000b') }","config":{"url":"UP/data"}}]}`, "", "a"},
		{"thrown-by-output", `{"steps":[{"id":"a","config":{"url":"UP/data"}}],"outputTransform":"(s) => { throw 'a\\u0000b' }"}`, "", "a"},
		{"returned", `{"outputTransform":"(s) => ['a\\u0000b', '\\ud800'].length"}`, "2", ""},
		{"cursor", `{"steps":[{"id":"a","config":{"url":"UP/pages","queryParams":{"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased"}}}],"outputTransform":"(s) => s.a.data.data[2].length"}`, "2", ""},
		{"items", `{"steps":[{"id":"a","dataSelector":"(s) => ['a\\u0000b']","config":{"type":"transform","transformCode":"(s) => s.currentItem.length"}}],"outputTransform":"(s) => s.a[0].data"}`, "3", ""},
		{"address", `{"steps":[{"id":"a","config":{"url":"UP/data?x=<<(s) => 'a\\u0000b'>>"}}]}`, "", "no valid address"},
		{"header", `{"steps":[{"id":"a","config":{"url":"UP/data","headers":{"X":"<<(s) => 'a\\u0000b'>>"}}}]}`, "", "headers.X"},
		{"schema", `{"outputSchema":{"additionalProperties":false},"steps":[{"id":"a","config":{"url":"UP/data"}}]}`, "", "outputSchema"},
		{"filter", `{"responseFilters":[{"target":"KEYS","pattern":"nul","action":"FAIL"}],"steps":[{"id":"a","config":{"url":"UP/data"}}]}`, "", "filter"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			tool := n.tool(t, fmt.Sprintf(`{"id":%q,%s`, x.name, strings.ReplaceAll(x.tool[1:], "UP", up.URL)))
			run := n.run(t, tool, v1.RunRequest{RunID: x.name})
			if x.problem != "" && (run.Status != "failed" || !strings.Contains(run.Error, x.problem)) {
				t.Errorf("a %s with error %q", run.Status, run.Error)
			}
			if x.problem == "" && (run.Status != "success" || string(run.Data) != x.data) {
				t.Errorf("a %s with error %q and data %s", run.Status, run.Error, run.Data)
			}
			for _, answer := range n.answers(t, x.name) {
				if strings.ContainsRune(answer, 0) {
					t.Errorf("an answer holds a zero byte: %q", answer)
				}
			}
		})
	}
}

// TestLargeBodies passes bodies that stand in blobs through every place where a run keeps
// data: pages, selected items, results.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	noise := make([]byte, 1<<20) // does not compress below the size of a row
	_, _ = rand.Read(noise)
	text := hex.EncodeToString(noise)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `[%q,%q]`, text, text[:10])
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"large","steps":[{"id":"a","config":{"url":"%s/a"}},
		{"id":"b","dataSelector":"(s) => s.a.data","config":{"method":"POST","url":"%s/b","body":"<<currentItem>>"}},
		{"id":"c","config":{"type":"transform","transformCode":"(s) => s.b.map((x) => x.currentItem + x.data[1])"}}]}`, up.URL, up.URL))
	want, _ := json.Marshal([]string{text + text[:10], text[:10] + text[:10]})
	run := n.run(t, tool, v1.RunRequest{RunID: "large"})
	if run.Status != "success" || string(run.Data) != string(want) {
		t.Fatalf("a %s with error %q and %d bytes of data", run.Status, run.Error, len(run.Data))
	}
	for _, row := range run.StepResults {
		if row.Data != nil {
			t.Errorf("the synchronous answer carries %d bytes of step %s", len(row.Data), row.StepID)
		}
	}
	got, err := n.api.GetRun(t.Context(), "large")
	if err != nil || got.Data != nil || got.ResultStorageURI == "" {
		t.Errorf("GET gives %d bytes of data, %q, %v", len(got.Data), got.ResultStorageURI, err)
	}
	res, err := n.api.Results(t.Context(), "large")
	if err != nil || res.Data == nil || string(res.Data.Data) != string(want) || len(res.Data.StepResults) != 3 {
		t.Fatalf("the results are not whole: %v", err)
	}
	if a := res.Data.StepResults[0].Data; string(a) != fmt.Sprintf(`[%q,%q]`, text, text[:10]) {
		t.Errorf("the first step's data has %d bytes", len(a))
	}
}

// TestRedirects follows redirects: what goes along, and what does not.
func TestRedirects(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	away := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"away":%q}`, r.Method) })
	up := startUpstream(t, nil)
	up.Config.Handler = recorded(up, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		to := q.Get("to")
		switch {
		case q.Get("loop") != "":
			to = up.URL + r.URL.RequestURI() + "x"
		case to == "":
			fmt.Fprintf(w, `{"here":%q}`, r.Method)
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(map[string]int{"": 302, "303": 303, "307": 307}[q.Get("status")])
	})
	for _, x := range []struct {
		name, method, query, data, problem string
		header                             []string // that goes along
	}{
		{"near", "GET", "to=" + up.URL + "/y%3Frun%3Dnear", `{"here":"GET"}`, "", []string{"Authorization", "X-Key", "X-Tenant"}},
		{"far", "GET", "to=" + away.URL + "/y%3Frun%3Dfar", `{"away":"GET"}`, "", []string{"X-Tenant"}},
		{"see other", "POST", "status=303&to=" + up.URL + "/y%3Frun%3Dsee", `{"here":"GET"}`, "", nil},
		{"kept", "POST", "status=307&to=" + up.URL + "/y%3Frun%3Dkept", `{"here":"POST"}`, "", []string{"Idempotency-Key", "X-Key"}},
		{"loop", "GET", "loop=1", "", "redirect", nil},
		{"elsewhere", "GET", "to=file:///etc/passwd", "", "redirect", nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			id := strings.Fields(x.name)[0]
			tool := n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"a","config":{"method":%q,"url":"%s/x?run=%s&%s",
				"headers":{"Authorization":"Bearer <<(s) => s.credentials.k>>","X-Key":"<<(s) => s.credentials.k>>","X-Tenant":"t1"}}}]}`, id, x.method, up.URL, id, x.query))
			run := n.run(t, tool, v1.RunRequest{Credentials: []byte(`{"k":"secret-value"}`)})
			if x.problem != "" {
				if run.Status != "failed" || !strings.Contains(run.Error, x.problem) || len(up.of(id)) > 6 {
					t.Errorf("a %s with error %q after %d requests", run.Status, run.Error, len(up.of(id)))
				}
				return
			}
			if run.Status != "success" || string(run.Data) != x.data {
				t.Errorf("a %s with error %q and data %s", run.Status, run.Error, run.Data)
			}
			requests := append(up.of(id), away.of(id)...)
			if len(requests) != 2 {
				t.Fatalf("%d requests", len(requests))
			}
			last := requests[1].header
			for _, name := range x.header {
				if last.Get(name) == "" || last.Get(name) != requests[0].header.Get(name) {
					t.Errorf("%s is %q after the redirect", name, last.Get(name))
				}
			}
			if id == "far" && (last.Get("Authorization") != "" || last.Get("X-Key") != "") || last.Get("Referer") != "" {
				t.Errorf("too much goes along: %v", last)
			}
		})
	}
}
