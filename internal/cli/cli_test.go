package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "stepwell/api/v1"
)

// service answers the API's calls for one test: it keeps tools, and its runs go
// through the states that the test gives.
type service struct {
	mu      sync.Mutex
	tools   map[string]*v1.Tool
	updates int
	change  string   // the last update of a tool, as it was sent
	states  []v1.Run // what GET /runs/<id> answers, one after the other; the last one again and again
	asked   int
	request v1.RunRequest // the last one
	query   url.Values    // of the last list of runs
}

// start serves it until the test ends and gives its address.
func (s *service) start(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(r *http.Request) any{
		"GET /v1/tools":              s.listTools,
		"POST /v1/tools":             s.createTool,
		"GET /v1/tools/{tool}":       func(*http.Request) any { return nil },
		"PUT /v1/tools/{tool}":       s.updateTool,
		"DELETE /v1/tools/{tool}":    s.deleteTool,
		"POST /v1/tools/{tool}/run":  s.runTool,
		"GET /v1/runs":               s.listRuns,
		"GET /v1/runs/{run}":         s.getRun,
		"GET /v1/runs/{run}/results": func(*http.Request) any { return results },
		"POST /v1/runs/cancel":       s.bulk,
		"POST /v1/runs/rerun":        s.bulk,
		"GET /v1/runs/bulk/b": func(*http.Request) any {
			return v1.Bulk{Data: v1.BulkOperation{ID: "b", Status: "finished", Total: 3, Done: 2, Failed: 1}}
		},
		"POST /v1/runs/{run}/cancel": func(*http.Request) any { return v1.Run{RunID: "r1", Status: "aborted"} },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if got := r.Header.Get("Authorization"); got != "Bearer secret-key" {
				t.Errorf("%s %s came with %q", r.Method, r.URL, got)
			}
			id := r.PathValue("tool")
			if id != "" && s.tools[id] == nil {
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"error":{"message":"Tool not found","code":"not_found"}}`)
				return
			}
			said := answer(r)
			if said == nil {
				said = s.tools[id]
			}
			encoder := json.NewEncoder(w)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(said); err != nil {
				t.Error(err)
			}
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

var results = v1.Results{Success: true, Data: &v1.RunResults{RunID: "r1", Success: true, StepResults: []v1.StepResult{
	{StepID: "customers", Success: true}, {StepID: "orders", Success: true, Pages: 200}, {StepID: "totals", Success: true},
}}}

func (s *service) listTools(*http.Request) any {
	list := &v1.List[v1.Tool]{Page: 1, Total: 120, HasMore: true}
	for _, t := range s.tools {
		list.Data = append(list.Data, *t)
	}
	return list
}

// createTool and updateTool keep the document as a tool: the fields have the same names.
func (s *service) createTool(r *http.Request) any {
	t := &v1.Tool{Version: "1.0.0"}
	_ = json.NewDecoder(r.Body).Decode(t)
	if s.tools == nil {
		s.tools = map[string]*v1.Tool{}
	}
	s.tools[t.ID] = t
	return t
}

func (s *service) updateTool(r *http.Request) any {
	s.updates++
	text, _ := io.ReadAll(r.Body)
	s.change = strings.TrimSpace(string(text))
	_ = json.Unmarshal(text, s.tools[r.PathValue("tool")])
	return nil
}

func (s *service) deleteTool(r *http.Request) any {
	delete(s.tools, r.PathValue("tool"))
	return v1.Deleted{Success: true}
}

func (s *service) runTool(r *http.Request) any {
	_ = json.NewDecoder(r.Body).Decode(&s.request)
	return s.states[0]
}

func (s *service) getRun(*http.Request) any {
	run := s.states[min(s.asked, len(s.states)-1)]
	s.asked++
	return run
}

func (s *service) listRuns(r *http.Request) any {
	s.query = r.URL.Query()
	return &v1.List[v1.Run]{Data: s.states, Page: 1, Total: len(s.states)}
}

// state is a run at one moment.
func state(status string, p *v1.Progress) v1.Run {
	return v1.Run{RunID: "r1", ToolID: DemoToolID, Status: status, Progress: p, Metadata: v1.RunMetadata{
		StartedAt: v1.Time{Time: began}, CompletedAt: v1.Time{Time: at(3400)},
	}}
}

// use runs a command line and gives what it wrote.
func use(t *testing.T, s *service, cmds Commands, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e strings.Builder
	env := map[string]string{"STEPWELL_API_KEY": "secret-key"}
	if s != nil {
		env["STEPWELL_URL"] = s.start(t)
	}
	code = Run(t.Context(), args, cmds, Streams{In: strings.NewReader(in), Out: &o, Err: &e, Getenv: func(n string) string { return env[n] }})
	return code, o.String(), e.String()
}

func TestDevFlags(t *testing.T) {
	t.Parallel()
	defaults := DevOptions{Listen: "127.0.0.1:8080", DataDir: "data"}
	for args, want := range map[string]DevOptions{
		"":                                       defaults,
		"--listen :9000 --data-dir=/d":           {Listen: ":9000", DataDir: "/d"},
		"--demo":                                 {Listen: "127.0.0.1:8080", DataDir: "data", Demo: DemoOnce},
		"--demo --data-dir x":                    {Listen: "127.0.0.1:8080", DataDir: "x", Demo: DemoOnce},
		"-demo=always":                           {Listen: "127.0.0.1:8080", DataDir: "data", Demo: DemoAlways},
		"--demo=false -listen=127.0.0.1:0":       {Listen: "127.0.0.1:0", DataDir: "data"},
		"--demo=always --listen=a:1 --demo=once": {Listen: "a:1", DataDir: "data", Demo: DemoOnce},
	} {
		var got DevOptions
		code, _, errs := use(t, nil, Commands{Defaults: defaults, Dev: func(_ context.Context, o DevOptions) error { got = o; return nil }}, "",
			append([]string{"dev"}, strings.Fields(args)...)...)
		if code != 0 || got != want {
			t.Errorf("dev %s: code %d (%s), options %+v, want %+v", args, code, errs, got, want)
		}
	}
}

func TestExitCodesAndMessages(t *testing.T) {
	t.Parallel()
	if code, _, errs := use(t, nil, Commands{}, "", "admin", "create-organization", " "); code != 2 || errs != "stepwell: NAME is empty\n" {
		t.Errorf("an organization without a name: code %d, %s", code, errs)
	}
	failing := Commands{
		Dev:                func(context.Context, DevOptions) error { return errors.New("already running") },
		CreateOrganization: func(_ context.Context, name, dir string) (string, error) { return "key-of-" + name + "-in-" + dir, nil },
		Version:            "1.2.3",
	}
	for _, c := range []struct {
		args     string
		code     int
		out, err string
	}{
		{"", 0, "Usage: stepwell COMMAND", ""},
		{"help", 0, "tools create", ""},
		{"--help", 0, "STEPWELL_API_KEY", ""},
		{"version", 0, "1.2.3\n", ""},
		{"dev", 1, "", "stepwell: already running\n"},
		{"dev --help", 0, "--demo=always", ""},
		{"dev --demo=maybe", 2, "", "use --demo or --demo=always"},
		{"dev --nonsense", 2, "", "flag provided but not defined: -nonsense; see stepwell dev --help"},
		{"dev extra", 2, "", `unexpected argument "extra"`},
		{"admin create-organization Acme --data-dir d", 0, "key-of-Acme-in-d\n", ""},
		{"admin create-organization", 2, "", "NAME is missing"},
		{"admin", 2, "", "admin needs one of: create-organization"},
		{"tools", 2, "", "tools needs one of: list, get, create, update, archive, unarchive, delete"},
		{"tools frob", 2, "", "tools needs one of"},
		{"frob", 2, "", `unknown command "frob"`},
		{"tools get", 2, "", "TOOL is missing"},
		{"tools get nothing", 1, "", "stepwell: Tool not found (HTTP 404)\n"},
		{"runs results a b", 2, "", `unexpected argument "b"`},
		{"run t --input novalue", 2, "", "write k=v"},
		{"run t --input n:=x", 2, "", "the value of n is no JSON"},
	} {
		code, out, errs := use(t, &service{}, failing, "", strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.err) || (c.err == "") != (errs == "") {
			t.Errorf("stepwell %s: code %d, out %q, err %q; want %d, %q, %q", c.args, code, out, errs, c.code, c.out, c.err)
		}
	}
}

func TestAnInterruptedCommandSaysSo(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs strings.Builder
	code := Run(ctx, []string{"dev"}, Commands{Dev: func(ctx context.Context, _ DevOptions) error { return ctx.Err() }},
		Streams{Out: &strings.Builder{}, Err: &errs, Getenv: os.Getenv})
	if code != 130 || errs.String() != "stepwell: interrupted\n" {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

func TestWithoutAKeyNothingIsCalled(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	code := Run(t.Context(), []string{"tools", "list"}, Commands{}, Streams{Out: &strings.Builder{}, Err: &errs, Getenv: func(string) string { return "" }})
	if code != 1 || !strings.Contains(errs.String(), "STEPWELL_API_KEY") {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

func TestToolCommands(t *testing.T) {
	t.Parallel()
	s := &service{}
	file := filepath.Join(t.TempDir(), "tool.json")
	if err := os.WriteFile(file, []byte(`{"id":"a","steps":[{"id":"s","config":{"url":"http://x/<<q>>"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := use(t, s, Commands{}, "", "tools", "create", file)
	if code != 0 || !strings.Contains(out, `"url": "http://x/<<q>>"`) {
		t.Errorf("tools create: %d %s %s", code, out, errs)
	}
	if code, _, errs := use(t, s, Commands{}, `{"id":"b","outputTransform":"1"}`, "tools", "create", "-"); code != 0 || s.tools["b"] == nil {
		t.Errorf("tools create -: %d %s", code, errs)
	}
	for document, want := range map[string]string{
		"{\"id\":\n\n":                     "stepwell: -:3: no JSON: unexpected end of JSON input\n",
		"{\"id\":\n x":                     "stepwell: -:2: no JSON: ",
		`{"steps":"none"}`:                 "stepwell: -: 'steps' cannot be a JSON string\n",
		`{"steps":[{"config":{"url":1}}]}`: "stepwell: -: 'steps.config.url' cannot be a JSON number\n",
		`[]`:                               "stepwell: -: it must be an object, not a JSON array\n",
	} {
		if code, _, errs := use(t, s, Commands{}, document, "tools", "create", "-"); code != 1 || !strings.HasPrefix(errs, want) {
			t.Errorf("tools create of %q: %d %q, want %q", document, code, errs, want)
		}
	}
	if code, _, errs := use(t, s, Commands{}, `{"steps":[]}`, "tools", "update", "a", "-"); code != 0 || len(s.tools["a"].Steps) != 0 {
		t.Errorf("tools update: %d %s", code, errs)
	}
	if code, out, errs := use(t, s, Commands{}, `{"archived":true,"instruction":null,"createdAt":"x"}`, "tools", "update", "a", "-"); code != 0 || s.change != `{"instruction":null,"archived":true}` {
		t.Errorf("tools update sent %s: %d %s %s", s.change, code, out, errs)
	}
	if code, _, errs := use(t, s, Commands{}, `{"steps":"none"}`, "tools", "update", "a", "-"); code != 1 || errs != "stepwell: -: 'steps' cannot be a JSON string\n" {
		t.Errorf("tools update of a wrong type: %d %s", code, errs)
	}
	code, out, errs = use(t, s, Commands{}, "", "tools", "list")
	if code != 0 || !strings.Contains(out, "a    1.0.0") || errs != "120 in all; --page 2 shows more\n" {
		t.Errorf("tools list: %d %q %q", code, out, errs)
	}
	if code, out, _ := use(t, s, Commands{}, "", "tools", "list", "--json"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("tools list --json: %d %q", code, out)
	}
	if code, _, _ := use(t, s, Commands{}, "", "tools", "archive", "a"); code != 0 || !s.tools["a"].Archived {
		t.Errorf("tools archive: %d", code)
	}
	if code, _, _ := use(t, s, Commands{}, "", "tools", "delete", "a"); code != 0 || s.tools["a"] != nil {
		t.Errorf("tools delete: %d", code)
	}
}

func TestRunCommand(t *testing.T) {
	t.Parallel()
	done := state("success", nil)
	done.Data = json.RawMessage(`{"n":90071992547409931,"html":"<b>"}`)
	s := &service{tools: map[string]*v1.Tool{"t": {ID: "t"}}, states: []v1.Run{done}}
	code, out, errs := use(t, s, Commands{}, `{"a":"from the file","big":90071992547409931}`,
		"run", "t", "--input", "a=1=2", "--inputs", "-", "--input", "n:=[1]", "--mode", "dev")
	if want := "{\n  \"n\": 90071992547409931,\n  \"html\": \"<b>\"\n}\n"; code != 0 || out != want {
		t.Fatalf("run: %d %s %s", code, out, errs)
	}
	if got, want := string(s.request.Inputs), `{"a":"1=2","big":90071992547409931,"n":[1]}`; got != want {
		t.Errorf("inputs %s, want %s", got, want)
	}
	if o := s.request.Options; o.Async || o.Mode != "dev" || o.RequestSource != "cli" || len(s.request.RunID) != 36 {
		t.Errorf("options %+v, run id %q", o, s.request.RunID)
	}
	if code, out, _ := use(t, s, Commands{}, "", "run", "t", "--full", "--run-id", "mine"); code != 0 || !strings.Contains(out, `"status": "success"`) || s.request.RunID != "mine" {
		t.Errorf("run --full: %d %s, run id %q", code, out, s.request.RunID)
	}

	s.states = []v1.Run{state("running", nil)}
	if code, out, _ := use(t, s, Commands{}, "", "run", "t", "--async"); code != 0 || out != "r1\n" || !s.request.Options.Async {
		t.Errorf("run --async: %d %q", code, out)
	}

	failed := state("failed", nil)
	failed.Error = "Step 1 (a): no"
	s.states = []v1.Run{failed}
	if code, out, errs := use(t, s, Commands{}, "", "run", "t"); code != 1 || out != "" || errs != "stepwell: run r1 failed: Step 1 (a): no\n" {
		t.Errorf("a failed run: %d %q %q", code, out, errs)
	}
	if code, out, errs := use(t, s, Commands{}, "", "run", "t", "--full"); code != 1 || !strings.Contains(out, `"failed"`) || errs == "" {
		t.Errorf("a failed run --full: %d %q %q", code, out, errs)
	}
}

func TestAnInterruptedRunSaysHowToFindIt(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice a hang-up
		close(arrived)
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	env := map[string]string{"STEPWELL_API_KEY": "k", "STEPWELL_URL": server.URL}
	var errs strings.Builder
	code := Run(ctx, []string{"run", "t", "--run-id", "mine"}, Commands{}, Streams{Out: &strings.Builder{}, Err: &errs, Getenv: func(n string) string { return env[n] }})
	if code != 130 || !strings.Contains(errs.String(), "stepwell runs watch mine") {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

func TestRunsCommands(t *testing.T) {
	t.Parallel()
	took := int64(3400)
	done := state("success", nil)
	done.Metadata.DurationMS = &took
	s := &service{states: []v1.Run{state("running", nil), done}}
	code, out, _ := use(t, s, Commands{}, "", "runs", "list", "--tool", "x", "--status=running")
	if code != 0 || !strings.Contains(out, "demo-orders   success") || !strings.Contains(out, "3.4 s") || s.query.Get("toolId") != "x" || s.query.Get("status") != "running" {
		t.Errorf("runs list: %d %q %v", code, out, s.query)
	}
	if code, out, _ := use(t, s, Commands{}, "", "runs", "cancel", "r1"); code != 0 || !strings.Contains(out, `"aborted"`) {
		t.Errorf("runs cancel: %d %q", code, out)
	}
	if code, out, _ := use(t, s, Commands{}, "", "runs", "results", "r1"); code != 0 || !strings.Contains(out, `"stepResults"`) {
		t.Errorf("runs results: %d %q", code, out)
	}
}
