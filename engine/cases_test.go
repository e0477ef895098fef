package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"stepwell"
	"stepwell/engine"
)

// A case is a file of parts, each begun by a line `-- name --`: `tool.json`; `run.json` (inputs, runtime, systems, state,
// maxPages: all optional); `answer N` for each request that the upstream gets
// (status, headers, empty line, body); `request N` what that request must be;
// `want.json` what the run must come to. With -update the last two are written anew:
// read the difference before you keep it.
var update = flag.Bool("update", false, "write requests and results of the cases anew")

func TestCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runCase(t, file)
		})
	}
}

type runInput struct {
	Inputs   json.RawMessage
	Runtime  map[string]json.RawMessage
	Systems  []engine.SystemCredentials
	State    json.RawMessage
	MaxPages int
}

type result struct {
	Data     json.RawMessage   `json:"data,omitempty"`
	Error    string            `json:"error,omitempty"`
	Steps    []json.RawMessage `json:"steps,omitempty"` // envelopes
	Pages    int               `json:"pages,omitempty"`
	Items    int64             `json:"items,omitempty"`
	EndedBy  string            `json:"endedBy,omitempty"`
	State    json.RawMessage   `json:"state,omitempty"`
	Files    json.RawMessage   `json:"files,omitempty"`
	Problems []string          `json:"problems,omitempty"`
	JSCalls  int               `json:"jsCalls,omitempty"` // Evaluate calls of the run
}

func runCase(t *testing.T, file string) {
	parts, order := readParts(t, file)
	var tool stepwell.Tool
	unmarshal(t, parts["tool.json"], &tool)
	var in runInput
	if parts["run.json"] != nil {
		unmarshal(t, parts["run.json"], &in)
	}
	up := &upstream{parts: parts}
	r := &runner{t: t, tool: &tool, in: in, send: up.send}
	got := r.run()
	if n := up.answers(); n != len(up.requests) && got.Error == "" {
		t.Errorf("%d of %d answers were asked for", len(up.requests), n)
	}
	wantJSON := indent(t, got)
	if *update {
		rewrite(t, file, parts, order, up.requests, wantJSON)
		return
	}
	for i, req := range up.requests {
		if want := string(parts[fmt.Sprintf("request %d", i+1)]); want != req {
			t.Errorf("request %d:\n%s\nwant:\n%s", i+1, req, want)
		}
	}
	if want := string(parts["want.json"]); want != wantJSON {
		t.Errorf("result:\n%s\nwant:\n%s", wantJSON, want)
	}
}

// readParts reads a case; the text before the first part is named "".
func readParts(t *testing.T, file string) (parts map[string][]byte, order []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts, order = map[string][]byte{"": nil}, []string{""}
	name := ""
	for line := range strings.Lines(string(text)) {
		head, ok := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		if head, end := strings.CutSuffix(head, " --"); ok && end {
			name = head
			order = append(order, name)
			parts[name] = []byte{}
			continue
		}
		parts[name] = append(parts[name], line...)
	}
	return parts, order
}

func rewrite(t *testing.T, file string, parts map[string][]byte, order, requests []string, want string) {
	order = slices.DeleteFunc(order, func(name string) bool { return strings.HasPrefix(name, "request ") || name == "want.json" })
	for i, req := range requests {
		order = append(order, fmt.Sprintf("request %d", i+1))
		parts[order[len(order)-1]] = []byte(req)
	}
	order = append(order, "want.json")
	parts["want.json"] = []byte(want)
	var out []byte
	for _, name := range order {
		if name != "" {
			out = append(out, "-- "+name+" --\n"...)
		}
		out = append(out, parts[name]...)
	}
	if err := os.WriteFile(file, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

func unmarshal(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func indent(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// upstream answers from the parts of a case.
type upstream struct {
	parts    map[string][]byte
	requests []string
}

func (u *upstream) answers() int {
	n := 0
	for u.parts[fmt.Sprintf("answer %d", n+1)] != nil {
		n++
	}
	return n
}

func (u *upstream) send(req *engine.Request) (*engine.Answer, error) {
	u.requests = append(u.requests, showRequest(req))
	part := string(u.parts[fmt.Sprintf("answer %d", len(u.requests))])
	if part == "" {
		return nil, fmt.Errorf("no answer %d to %s", len(u.requests), req.URL)
	}
	head, body, _ := strings.Cut(part, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	status, err := strconv.Atoi(lines[0])
	if err != nil {
		return nil, err
	}
	a := &engine.Answer{Status: status, Header: http.Header{}, URL: req.URL, Body: []byte(strings.TrimSuffix(body, "\n"))}
	for _, line := range lines[1:] {
		k, v, _ := strings.Cut(line, ": ")
		a.Header.Add(k, v)
	}
	return a, nil
}

func showRequest(req *engine.Request) string {
	lines := []string{req.Method + " " + req.URL}
	var headers []string
	for k, vs := range req.Header {
		for _, v := range vs {
			mark := ""
			if slices.Contains(req.CredentialHeaders, k) {
				mark = " (credential)"
			}
			headers = append(headers, k+": "+v+mark)
		}
	}
	sort.Strings(headers)
	lines = append(lines, headers...)
	if req.Body != nil {
		lines = append(lines, "", strings.ReplaceAll(string(req.Body), "\r\n", "\n"))
	}
	return strings.TrimSuffix(strings.Join(lines, "\n"), "\n") + "\n"
}

// runner drives a tool as a run does, without durability.
type runner struct {
	t     *testing.T
	js    counter
	tool  *stepwell.Tool
	in    runInput
	send  func(*engine.Request) (*engine.Answer, error)
	done  engine.MapScope
	state json.RawMessage
	got   result
}

func (r *runner) run() result {
	r.done, r.state = engine.MapScope{}, r.in.State
	if err := r.steps(); err != nil {
		r.got.Data = nil
		r.got.Error = err.Error()
		var step *engine.StepError
		var filter *engine.FilterError
		if !errors.As(err, &step) && !errors.As(err, &filter) && !errors.Is(err, engine.ErrFile) {
			r.t.Errorf("an error of no step: %v", err)
		}
	}
	r.got.JSCalls = r.js.evaluated
	if string(r.state) != string(r.in.State) {
		r.got.State = r.state
	}
	return r.got
}

func (r *runner) steps() error {
	ctx := r.t.Context()
	compiled, err := engine.CompileTool(ctx, &r.js, r.tool)
	if err != nil {
		return err
	}
	if compiled.InputSchema != nil {
		if r.in.Inputs, err = compiled.InputSchema.ApplyDefaults(r.in.Inputs); err != nil {
			return err
		}
		for _, p := range compiled.InputSchema.Validate(r.in.Inputs) {
			r.got.Problems = append(r.got.Problems, p.String())
		}
	}
	r.got.Data = json.RawMessage("null")
	for i, s := range compiled.Steps {
		envelope, err := r.step(ctx, s, &r.tool.Steps[i])
		if err != nil {
			return err
		}
		r.done[r.tool.Steps[i].ID] = envelope
		r.got.Steps = append(r.got.Steps, envelope)
	}
	if compiled.Output != nil {
		res, err := compiled.Output.Transform(ctx, &r.js, r.scope(nil, ""))
		if err != nil {
			return err
		}
		r.got.Data, r.got.Files = res.Data, res.Files
		r.keep(res)
	}
	r.got.Data, err = compiled.Filters.Apply(r.got.Data)
	return err
}

func (r *runner) keep(res engine.TransformResult) {
	if res.State != nil {
		r.state = res.State
	}
}

func (r *runner) scope(item json.RawMessage, system string) engine.Scope {
	stored, credentials := engine.BindCredentials(r.in.Systems, system, r.in.Runtime)
	return engine.SourceData(engine.Sources{
		Inputs: r.in.Inputs, Results: r.done, Stored: stored, Credentials: credentials, CurrentItem: item, State: func(context.Context) (json.RawMessage, error) { return r.state, nil },
	})
}

func (r *runner) step(ctx context.Context, s *engine.Step, def *stepwell.Step) (json.RawMessage, error) {
	sel, err := s.Select(ctx, &r.js, r.scope(nil, def.Config.SystemID))
	if err != nil {
		return nil, err
	}
	if !sel.Loop {
		env, err := r.item(ctx, s, def, 0, sel.Item)
		if err == nil {
			var e struct {
				Data    json.RawMessage
				Success bool
			}
			unmarshal(r.t, env, &e)
			if e.Success {
				r.got.Data = e.Data
			}
		}
		return env, err
	}
	all := []json.RawMessage{}
	for i, item := range sel.Items {
		env, err := r.item(ctx, s, def, i, item)
		if err != nil {
			return nil, err
		}
		all = append(all, env)
	}
	joined, err := json.Marshal(all)
	r.got.Data = joined
	return joined, err
}

func (r *runner) item(ctx context.Context, s *engine.Step, def *stepwell.Step, index int, item json.RawMessage) (json.RawMessage, error) {
	data, err := r.fetch(ctx, s, def, index, item)
	if err != nil && def.ContinueOnFailure() {
		return engine.FailedEnvelope(item, err.Error()), nil
	}
	return engine.Envelope(item, data), err
}

func (r *runner) fetch(ctx context.Context, s *engine.Step, def *stepwell.Step, index int, item json.RawMessage) (json.RawMessage, error) {
	scope := r.scope(item, def.Config.SystemID)
	if def.IsTransform() {
		res, err := s.Transform(ctx, &r.js, scope)
		r.keep(res)
		return res.Data, err
	}
	if !def.Paginated() {
		out, err := r.page(ctx, s, scope, nil, index, 1, nil)
		if err != nil {
			return nil, err
		}
		if out.File != nil { // as it is stored
			out.File.Key = engine.FileKey(def.ID, index, 1, 0)
			out.Data = engine.DescribeFile(out.File)
		}
		return out.Data, nil
	}
	return engine.Merge(r.pages(ctx, s, scope, index))
}

// pages fetches a pull. Between two pages the state goes through JSON, as it does
// when it is stored.
func (r *runner) pages(ctx context.Context, s *engine.Step, scope engine.Scope, index int) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		seen := map[string]bool{}
		st := engine.PageState{Page: 1}
		for n := 1; ; n++ {
			if n > s.MaxPages(r.in.MaxPages) {
				yield(nil, s.TruncatedError(n-1))
				return
			}
			out, err := r.page(ctx, s, scope, &st, index, n, func(c string) bool { return seen[c] })
			if err != nil {
				yield(nil, err)
				return
			}
			r.got.Pages++
			r.got.Items += out.Count
			r.got.EndedBy = out.EndedBy
			if !yield(out.Data, nil) || out.Done {
				return
			}
			if out.Cursor != "" {
				seen[out.Cursor] = true
			}
			stored, err := json.Marshal(out.Next)
			if err != nil {
				r.t.Fatal(err)
			}
			st = engine.PageState{}
			unmarshal(r.t, stored, &st)
		}
	}
}

func (r *runner) page(ctx context.Context, s *engine.Step, scope engine.Scope, st *engine.PageState, item, n int, seen func(string) bool) (*engine.PageOutcome, error) {
	req, err := s.Build(ctx, &r.js, scope, st)
	if err != nil {
		return nil, err
	}
	s.AddIdempotencyKey(req, "run-1", item, n)
	a, err := r.send(req)
	if err != nil {
		return nil, err
	}
	return s.Interpret(ctx, &r.js, scope, st, seen, a)
}
