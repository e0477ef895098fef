package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "stepwell/api/v1"
)

// putState replaces the state of a tool.
func (n *node) putState(t *testing.T, tool, state string) {
	t.Helper()
	if _, err := n.api.PutToolState(t.Context(), tool, json.RawMessage(state), ""); err != nil {
		t.Fatal(err)
	}
}

// wantState compares the state of a tool, written with its keys in order.
func (n *node) wantState(t *testing.T, tool, want string) {
	t.Helper()
	state, _, err := n.api.ToolState(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	if string(state.State) != want {
		t.Errorf("the state of %s is %s, want %s", tool, state.State, want)
	}
}

// wantWarnings compares the warnings of a run: each must hold its text.
func wantWarnings(t *testing.T, run *v1.Run, want ...string) {
	t.Helper()
	if run.Status != "success" {
		t.Errorf("run of %s: %s, %s", run.ToolID, run.Status, run.Error)
	}
	got := run.Metadata.Warnings
	if len(got) != len(want) {
		t.Errorf("run of %s has the warnings %q, want %d of %q", run.ToolID, got, len(want), want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("run of %s: warning %d is %q, want one with %q", run.ToolID, i, got[i], want[i])
		}
	}
}

// transform is a transform step.
func transform(id, code, more string) string {
	text, _ := json.Marshal(code)
	return fmt.Sprintf(`{"id":%q,"config":{"type":"transform","transformCode":%s}%s}`, id, text, more)
}

// gated is an upstream that holds the request of a run until it is let go.
type gated struct {
	*upstream
	gate chan struct{}
	open func()
}

func startGated(t *testing.T) *gated {
	g := &gated{gate: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.gate) })
	t.Cleanup(g.open)
	g.upstream = startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gate" {
			select {
			case <-g.gate:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, `{"ok":true}`)
	})
	return g
}

// TestStateOfRuns runs tools that read and write their state in every way.
func TestStateOfRuns(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"asked":%q}`, r.URL.RawQuery) })

	counter := n.tool(t, `{"id":"counter","outputTransform":"(s) => { s.persistedState.n = (s.persistedState.n || 0) + 1; return s.persistedState.n }"}`)
	for want := 1; want <= 3; want++ {
		if run := n.run(t, counter, v1.RunRequest{}); string(run.Data) != fmt.Sprint(want) {
			t.Errorf("run %d counts %s, %s", want, run.Data, run.Error)
		}
	}
	n.wantState(t, counter, `{"n":3}`)

	// Later steps see what a transform changed; items go one after another over one state.
	steps := n.tool(t, fmt.Sprintf(`{"id":"steps","steps":[%s,
		{"id":"ask","config":{"url":"%s/?x=<<(s) => s.persistedState.x>>&run=<<(s) => s.persistedState.gone || 'no'>>"}},%s,%s],
		"outputTransform":"(s) => { delete s.persistedState.x; s.persistedState.last = undefined; return {asked: s.ask.data.asked, list: s.persistedState.list, each: s.loop.map((e) => e.data)} }"}`,
		transform("first", "(s) => { s.persistedState.x = s.persistedState.start + 1; delete s.persistedState.gone; s.persistedState.list = [] }", ""), up.URL,
		transform("loop", "(s) => { s.persistedState.list.push(s.currentItem); return s.persistedState.list.length }", `,"dataSelector":"(s) => { s.persistedState.selected = 1; return [...Array(30).keys()] }","concurrency":20`),
		transform("none", "(s) => { s.persistedState = {replaced: 1}; return 1 }", "")))
	n.putState(t, steps, `{"start":41,"gone":true,"last":[1],"big":12345678901234567890}`)
	run := n.run(t, steps, v1.RunRequest{})
	var got struct {
		Asked      string
		List, Each []int
	}
	if err := json.Unmarshal(run.Data, &got); err != nil || got.Asked != "x=42&run=no" || len(got.List) != 30 || len(got.Each) != 30 {
		t.Errorf("the run gave %s %s, %v", run.Data, run.Error, err)
	}
	for i := range got.List {
		if got.List[i] != i || got.Each[i] != i+1 {
			t.Errorf("item %d came out of its turn: %v %v", i, got.List, got.Each)
			break
		}
	}
	list, _ := json.Marshal(got.List)
	n.wantState(t, steps, fmt.Sprintf(`{"big":12345678901234567890,"list":%s,"start":41}`, list))

	odd := n.tool(t, fmt.Sprintf(`{"id":"odd","steps":[%s],"outputTransform":"(s) => { s.persistedState.g = () => 1; s.persistedState.d = new Date(0); return s.persistedState }"}`,
		transform("nan", "(s) => { s.persistedState.f = NaN; s.persistedState.a = [Infinity, 1] }", "")))
	run = n.run(t, odd, v1.RunRequest{})
	wantWarnings(t, run, "persistedState.f is no JSON", "persistedState.a", "persistedState.g is no JSON")
	n.wantState(t, odd, `{"a":[null,1],"d":"1970-01-01T00:00:00.000Z"}`)

	// A failed run writes nothing.
	failing := n.tool(t, fmt.Sprintf(`{"id":"failing","steps":[%s,%s]}`,
		transform("write", "(s) => { s.persistedState.n = 1 }", ""), transform("fail", "(s) => { throw new Error('no') }", "")))
	if run := n.run(t, failing, v1.RunRequest{}); run.Status != "failed" {
		t.Errorf("status %s", run.Status)
	}
	n.wantState(t, failing, `{}`)

	// Over a limit nothing is written, not even what would fit.
	for name, code := range map[string]string{
		"keys":  "(s) => { for (let i = 0; i < 101; i++) s.persistedState['k' + i] = i }",
		"value": "(s) => { s.persistedState.ok = 1; s.persistedState.large = 'x'.repeat(65536) }",
		"key":   "(s) => { s.persistedState.ok = 1; s.persistedState['x'.repeat(257)] = 1 }",
		"nul":   "(s) => { s.persistedState.ok = 1; s.persistedState['a\\u0000'] = 1 }",
	} {
		tool := n.tool(t, fmt.Sprintf(`{"id":"over-%s","steps":[%s]}`, name, transform("a", code, "")))
		n.putState(t, tool, `{"was":1}`)
		wantWarnings(t, n.run(t, tool, v1.RunRequest{}), "over a limit")
		n.wantState(t, tool, `{"was":1}`)
	}
	if left := n.count(t, `SELECT count(*) FROM run_states s JOIN runs r ON r.org_id = s.org_id AND r.id = s.run_id WHERE r.status = 'success'`); left != 0 {
		t.Errorf("what %d successful runs read is still there", left)
	}
}

// count asks the database for a number.
func (n *node) count(t *testing.T, sql string) (count int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), n.cfg.DatabaseURL)
	if err != nil {
		t.Fatal("connect to the database")
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&count); err != nil {
		t.Fatal(err)
	}
	return count
}

// TestStateConflicts changes the state while runs are going on that read it before.
func TestStateConflicts(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	for name, c := range map[string]struct {
		before    string // state at the start
		code      string // of the transform that ends the run
		meanwhile func(tool string)
		after     string
		warnings  []string
	}{
		"a key written by another": {`{"a":1,"b":1}`, "(s) => { s.persistedState.a++; s.persistedState.b++ }",
			func(tool string) { n.putState(t, tool, `{"a":10,"b":1}`) }, `{"a":10,"b":2}`, []string{"'a'"}},
		"written and back again": {`{"a":1}`, "(s) => { s.persistedState.a++ }",
			func(tool string) { n.putState(t, tool, `{"a":5}`); n.putState(t, tool, `{"a":1}`) }, `{"a":1}`, []string{"'a'"}},
		"an equal value": {`{"a":{"x":1,"y":[2]}}`, "(s) => { s.persistedState.a = 2 }",
			func(tool string) { n.putState(t, tool, `{ "a" : {"y":[2.0],"x":1e0} }`) }, `{"a":2}`, nil},
		"a key removed by another": {`{"a":1,"b":1}`, "(s) => { s.persistedState.a++; delete s.persistedState.b }",
			func(tool string) { n.putState(t, tool, `{"b":1}`) }, `{}`, []string{"'a'"}},
		"a new key of both": {`{}`, "(s) => { s.persistedState.a = 1; s.persistedState.c = 1 }",
			func(tool string) { n.putState(t, tool, `{"a":7}`) }, `{"a":7,"c":1}`, []string{"'a'"}},
		"a key removed that another changed": {`{"a":1}`, "(s) => { delete s.persistedState.a }",
			func(tool string) { n.putState(t, tool, `{"a":2}`) }, `{"a":2}`, []string{"'a'"}},
		"untouched keys are no conflict": {`{"a":1,"b":1}`, "(s) => { s.persistedState.b = 2; s.persistedState.a = 1.0 }",
			func(tool string) { n.putState(t, tool, `{"a":9,"b":1}`) }, `{"a":9,"b":2}`, nil},
		"reset": {`{"a":1,"b":1}`, "(s) => { s.persistedState.a++; s.persistedState.fresh = 1; delete s.persistedState.b }",
			func(tool string) { n.reset(t, tool) }, `{"fresh":1}`, []string{"'a'", "'b'"}},
		"reset of a key that came after the start": {`{}`, "(s) => { s.persistedState.a = 1; s.persistedState.fresh = 1 }",
			func(tool string) { n.putState(t, tool, `{"a":5}`); n.reset(t, tool) }, `{"fresh":1}`, []string{"'a'"}},
		"reset, and a key of both after it": {`{"a":1}`, "(s) => { s.persistedState.b = 1 }",
			func(tool string) { n.reset(t, tool); n.putState(t, tool, `{"b":2}`) }, `{"b":2}`, []string{"'b'"}},
		"too many keys together": {`{}`, "(s) => { for (let i = 0; i < 60; i++) s.persistedState['r' + i] = 1 }",
			func(tool string) { n.putState(t, tool, manyKeys(41)) }, manyKeys(41), []string{"101 keys"}},
		"tool deleted": {`{"a":1}`, "(s) => { s.persistedState.a++ }",
			func(tool string) { n.again(t, tool) }, `{}`, []string{"tool was deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := startGated(t)
			tool := n.tool(t, fmt.Sprintf(`{"steps":[{"id":"wait","config":{"url":"%s/gate?run=x"}},%s]}`, up.URL, transform("end", c.code, "")))
			n.putState(t, tool, c.before)
			run := n.run(t, tool, v1.RunRequest{Options: &v1.RunOptions{Async: true}})
			eventually(t, 20*time.Second, func() error {
				if len(up.of("x")) == 0 {
					return fmt.Errorf("the run has not begun")
				}
				return nil
			})
			c.meanwhile(tool)
			up.open()
			wantWarnings(t, n.waitFinal(t, run.RunID, 20*time.Second), c.warnings...)
			n.wantState(t, tool, c.after)
		})
	}
}

func manyKeys(n int) string {
	keys := map[string]int{}
	for i := range n {
		keys[fmt.Sprintf("p%02d", i)] = 1
	}
	text, _ := json.Marshal(keys)
	return string(text)
}

func (n *node) reset(t *testing.T, tool string) {
	t.Helper()
	if _, err := n.api.ResetToolState(t.Context(), tool); err != nil {
		t.Fatal(err)
	}
}

// again deletes a tool and makes another of the same id.
func (n *node) again(t *testing.T, tool string) {
	t.Helper()
	if err := n.api.DeleteTool(t.Context(), tool); err != nil {
		t.Fatal(err)
	}
	n.tool(t, fmt.Sprintf(`{"id":%q,"outputTransform":"(s) => 1"}`, tool))
}

// TestStateOfReruns goes on with runs that failed after a transform had changed the state.
func TestStateOfReruns(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startFlawed(t, 1, "item/1")
	make := func(id string) (tool, failed string) {
		tool = n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"first","config":{"url":"%s/item/0?run=x"}},%s,{"id":"flawed","config":{"url":"%s/item/1?run=x"}}],"outputTransform":"(s) => s.persistedState"}`,
			id, up.URL, transform("count", "(s) => { s.persistedState.n = (s.persistedState.n || 0) + 1 }", ""), up.URL))
		n.putState(t, tool, `{"n":5,"other":"old"}`)
		up.bad.Store(true)
		run := n.run(t, tool, v1.RunRequest{})
		if run.Status != "failed" {
			t.Fatalf("status %s", run.Status)
		}
		n.wantState(t, tool, `{"n":5,"other":"old"}`)
		up.bad.Store(false)
		return tool, run.RunID
	}
	rerun := func(run, from string) *v1.Run {
		t.Helper()
		out, err := n.api.Rerun(t.Context(), run, v1.RerunRequest{FromStep: from})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	// The transform is reused, and its change counts, over the state that the first run read.
	tool, failed := make("goes-on")
	n.putState(t, tool, `{"n":5,"other":"new"}`)
	run := rerun(failed, "")
	wantWarnings(t, run)
	if string(run.Data) != `{"n":6,"other":"old"}` {
		t.Errorf("the rerun saw %s", run.Data)
	}
	n.wantState(t, tool, `{"n":6,"other":"new"}`)

	// A second one counts nothing twice: what it reuses is a conflict by now.
	wantWarnings(t, rerun(failed, ""), "'n'")
	n.wantState(t, tool, `{"n":6,"other":"new"}`)

	// From an earlier step on nothing of it is reused: the state is read anew.
	tool, failed = make("anew")
	n.putState(t, tool, `{"n":50}`)
	run = rerun(failed, "count")
	wantWarnings(t, run)
	n.wantState(t, tool, `{"n":51}`)

	// A success has written its changes: they do not count again.
	wantWarnings(t, rerun(run.RunID, "flawed"))
	n.wantState(t, tool, `{"n":51}`)
}

// TestConsole finds the console output of transforms in the log, masked and bounded.
func TestConsole(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	tool := n.tool(t, fmt.Sprintf(`{"id":"talks","steps":[%s,%s],"outputTransform":"(s) => { console.log('at the end'); return 1 }"}`,
		transform("a", "(s) => { console.log('key', s.credentials.key); console.warn({n: 1}); for (let i = 0; i < 90; i++) console.log('x'.repeat(1000)) }", ""),
		transform("b", "(s) => { console.error('before it throws'); throw new Error('no') }", `,"failureBehavior":"continue"`)))
	if run := n.run(t, tool, v1.RunRequest{Credentials: json.RawMessage(`{"key":"very-secret-key"}`)}); run.Status != "success" {
		t.Fatal(run.Error)
	}
	output := map[string]string{}
	for _, entry := range n.log.FilterMessage("console").All() {
		fields := entry.ContextMap()
		output[fmt.Sprint(fields["step"])] = fmt.Sprint(fields["output"])
	}
	if text := output["a"]; !strings.HasPrefix(text, "key [masked]\n") || len(text) < 8<<10 || len(text) > 9<<10 {
		t.Errorf("step a logged %d bytes: %.100s", len(text), text)
	}
	if output["b"] != "error: before it throws" || output["outputTransform"] != "at the end" {
		t.Errorf("the others logged %q and %q", output["b"], output["outputTransform"])
	}
}

// TestMaskedState hides credentials of a tool's systems in its state, and keeps them when
// what was read is written back.
func TestMaskedState(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	n.system(t, v1.SystemCreate{ID: "crm", URL: up.URL, Credentials: map[string]string{"key": "crm-secret"}})
	n.system(t, v1.SystemCreate{ID: "crm", URL: up.URL, Environment: "dev", Credentials: map[string]string{"key": "dev-secret"}})
	n.system(t, v1.SystemCreate{ID: "other", URL: up.URL, Credentials: map[string]string{"key": "other-secret"}})
	n.system(t, v1.SystemCreate{ID: "tenant", URL: up.URL, MultiTenancyMode: "enabled"})
	user, err := n.api.CreateEndUser(t.Context(), v1.EndUserCreate{AllowedSystems: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.api.ConnectEndUser(t.Context(), user.ID, "tenant", map[string]string{"key": "their-secret"}); err != nil {
		t.Fatal(err)
	}
	tool := n.tool(t, `{"id":"masks","steps":[{"id":"a","config":{"systemId":"crm","url":"<<crm_url>>"}},{"id":"b","failureBehavior":"continue","config":{"systemId":"tenant","url":"<<crm_url>>"}}],
		"outputTransform":"(s) => { s.persistedState.runs = 1; return s.persistedState }"}`)
	const stored = `{"a":"crm-secret","b":[1,{"c":"dev-secret","d":"their-secret"}],"e":"other-secret","f":"not crm-secret alone","g":"crm-secre"}`
	n.putState(t, tool, stored)
	const masked = `{"a":"[masked]","b":[1,{"c":"[masked]","d":"[masked]"}],"e":"other-secret","f":"not crm-secret alone","g":"crm-secre"}`
	n.wantState(t, tool, masked)
	n.putState(t, tool, strings.Replace(masked, `"g":"crm-secre"`, `"g":"[masked]","h":"[masked]"`, 1))
	run := n.run(t, tool, v1.RunRequest{})
	if want := strings.TrimSuffix(stored, "}") + `,"h":"[masked]","runs":1}`; string(run.Data) != want {
		t.Errorf("the run saw %s, want %s", run.Data, want)
	}
	if _, etag, err := n.api.ToolState(t.Context(), tool); err != nil || etag == "" {
		t.Errorf("etag %q, %v", etag, err)
	}
}
