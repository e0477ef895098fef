package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// flawed is an upstream of pages and items that fails at one place while it is told to.
type flawed struct {
	*upstream
	bad atomic.Bool
}

// startFlawed serves /pages?cursor=N up to last, and /item/N; while bad, what badAt names
// is answered 400.
func startFlawed(t *testing.T, last int, badAt string) *flawed {
	f := &flawed{}
	f.upstream = startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		at := strings.TrimPrefix(r.URL.Path, "/")
		n, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		if at == "pages" {
			at = "pages/" + strconv.Itoa(n+1)
		}
		if f.bad.Load() && at == badAt {
			http.Error(w, "broken", http.StatusBadRequest)
			return
		}
		if strings.HasPrefix(at, "pages/") {
			next := fmt.Sprintf(`,"next_cursor":"%d"`, n+1)
			if n+1 == last {
				next = ""
			}
			fmt.Fprintf(w, `{"data":[{"n":%d,"big":12345678901234567890}]%s}`, n, next)
			return
		}
		fmt.Fprintf(w, `{"at":%q}`, at)
	})
	f.bad.Store(true)
	return f
}

// asked gives what a run was asked for: paths, with the cursor of pages.
func (f *flawed) asked(run string) []string {
	var out []string
	for _, r := range f.of(run) {
		uri, _, _ := strings.Cut(r.uri, "&run=")
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(uri, "/"), "?run="+run))
	}
	return out
}

// rerun reruns a run and checks that it is a success.
func (n *node) rerun(t *testing.T, of string, r v1.RerunRequest) *v1.Run {
	t.Helper()
	run, err := n.api.Rerun(t.Context(), of, r)
	if err != nil {
		t.Fatal(err)
	}
	if run.Status != "success" || run.RerunOf != of {
		t.Fatalf("run %s of %s: %s %s", run.RunID, run.RerunOf, run.Status, run.Error)
	}
	return run
}

// whole gives the stored results of a run, without what differs from run to run.
func (n *node) whole(t *testing.T, run string) string {
	t.Helper()
	res, err := n.api.Results(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := json.Marshal(res.Data.StepResults)
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Data.Data) + string(steps)
}

func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if client.Status(err) != http.StatusBadRequest {
		t.Errorf("not refused with 400: %v", err)
	}
	for _, text := range texts {
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v does not say %q", err, text)
		}
	}
}

// The run id of requests is that of the run that sends them: it is an input here, so the
// upstream tells reruns apart by what they ask for again.
const pagesTool = `{"id":"pages","steps":[{"id":"first","config":{"url":"%[1]s/first?run=<<run>>"}},
	{"id":"pull","config":{"url":"%[1]s/pages?run=<<run>>","queryParams":{"cursor":"<<cursor>>"},
	"pagination":{"type":"cursorBased","cursorPath":"next_cursor"}}},
	{"id":"last","config":{"url":"%[1]s/last?run=<<run>>"}}],
	"outputTransform":"(s) => [s.pull.data.data.length, s.pull.data.data[999].n, s.last.data.at]"}`

// TestRerunFromPage takes up a run that failed at page 700 of 1,000: pages 1 to 699 are
// not asked for again, and the result is that of a run that nothing disturbed.
func TestRerunFromPage(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startFlawed(t, 1000, "pages/700")
	n.tool(t, fmt.Sprintf(pagesTool, up.URL))
	input := func(run string) v1.RunRequest {
		return v1.RunRequest{RunID: run, Inputs: json.RawMessage(`{"run":"` + run + `"}`)}
	}
	failed := n.run(t, "pages", input("a"))
	if failed.Status != "failed" || len(up.of("a")) != 1+700 {
		t.Fatalf("%s after %d requests: %s", failed.Status, len(up.of("a")), failed.Error)
	}
	up.bad.Store(false)
	undisturbed := n.run(t, "pages", input("b"))

	again := n.rerun(t, "a", v1.RerunRequest{RunID: "a2"})
	if got := len(up.of("a")) - 701; got != 301+1 {
		t.Errorf("the rerun sent %d requests, want pages 700 to 1,000 and the last step", got)
	}
	if first := up.of("a")[701].uri; !strings.Contains(first, "cursor=699") {
		t.Errorf("the rerun began with %s", first)
	}
	if string(again.Data) != string(undisturbed.Data) || n.whole(t, "a2") != n.whole(t, "b") {
		t.Errorf("the rerun came to %s, an undisturbed run to %s", again.Data, undisturbed.Data)
	}
	if string(again.ToolPayload) != `{"run":"a"}` || again.Tool.Version != "1.0.0" {
		t.Errorf("payload %s, version %s", again.ToolPayload, again.Tool.Version)
	}

	// From a later step: only that is asked for.
	before := len(up.of("a"))
	later := n.rerun(t, "a2", v1.RerunRequest{FromStep: "last"})
	if asked := up.asked("a")[before:]; !slices.Equal(asked, []string{"last"}) || string(later.Data) != string(again.Data) {
		t.Errorf("asked %v, data %s", asked, later.Data)
	}
	// From a step in the middle: it begins anew.
	before = len(up.of("a"))
	n.rerun(t, "a2", v1.RerunRequest{FromStep: "pull"})
	if asked := up.asked("a")[before:]; len(asked) != 1001 || asked[0] != "pages" {
		t.Errorf("asked for %d", len(asked))
	}
}

// TestRerunCapped goes on after a cap of pages with a higher one, and keeps other options.
func TestRerunCapped(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startFlawed(t, 30, "")
	n.tool(t, fmt.Sprintf(strings.Replace(pagesTool, "[999]", "[29]", 1), up.URL))
	capped := n.run(t, "pages", v1.RunRequest{RunID: "a", Inputs: json.RawMessage(`{"run":"a"}`), Options: &v1.RunOptions{MaxPages: 10, Timeout: 5000}})
	if capped.Status != "failed" || !strings.Contains(capped.Error, "truncated after 10 pages") {
		t.Fatal(capped.Status, capped.Error)
	}
	again := n.rerun(t, "a", v1.RerunRequest{Options: &v1.RerunOptions{RunOptions: v1.RunOptions{MaxPages: 100}}})
	if len(up.of("a")) != 1+30+1 || again.Options.Timeout != 5000 || again.Options.MaxPages != 100 {
		t.Errorf("%d requests, options %+v", len(up.of("a")), again.Options)
	}
}

const itemsTool = `{"id":"%[2]s","steps":[{"id":"first","config":{"url":"%[1]s/first?run=<<run>>"}},
	{"id":"items","dataSelector":"(s) => Array.from({length: 50}, (_, i) => ({i}))","concurrency":%[3]d,"config":{"url":"%[1]s/item/<<(s) => s.currentItem.i>>?run=<<run>>"}},
	{"id":"sum","config":{"type":"transform","transformCode":"(s) => s.items.map((e) => e.data.at).join()"}}]}`

// TestRerunFromItem takes up loops that failed at item 37 of 50, under another version too.
func TestRerunFromItem(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	for _, concurrency := range []int{1, 8} {
		tool := fmt.Sprintf("items-%dx", concurrency)
		up := startFlawed(t, 1, "item/37")
		n.tool(t, fmt.Sprintf(itemsTool, up.URL, tool, concurrency))
		inputs := json.RawMessage(`{"run":"a"}`)
		if run := n.run(t, tool, v1.RunRequest{RunID: tool, Inputs: inputs}); run.Status != "failed" {
			t.Fatal(run.Status, run.Error)
		}
		done := up.asked("a")
		if !slices.Contains(done, "item/37") || len(done) > 1+38+concurrency {
			t.Fatalf("%d requests", len(done))
		}
		// The upstream stays broken; another version asks for the item elsewhere.
		changed := strings.Replace(fmt.Sprintf(itemsTool, up.URL, tool, concurrency), "/item/", "/other/", 1)
		var create v1.ToolCreate
		decode(t, []byte(changed), &create)
		if _, err := n.api.UpdateTool(t.Context(), tool, v1.ToolUpdate{Steps: v1.Some(create.Steps)}); err != nil {
			t.Fatal(err)
		}
		run := n.rerun(t, tool, v1.RerunRequest{ToolVersion: "1.1.0"})
		again := up.asked("a")[len(done):]
		for _, uri := range again {
			if slices.Contains(done, strings.Replace(uri, "other", "item", 1)) && uri != "other/37" {
				t.Errorf("%s was asked for again", uri)
			}
		}
		if len(again) != 51-(len(done)-1) || !strings.Contains(string(run.Data), "item/36,other/37,") || run.Tool.Version != "1.1.0" {
			t.Errorf("%d requests, version %s, data %s", len(again), run.Tool.Version, run.Data)
		}
		if stored, err := n.api.ListRuns(t.Context(), client.Page{}, client.RunFilter{RerunOf: tool}); err != nil || stored.Total != 1 {
			t.Errorf("reruns are not listed: %v", err)
		}
	}
}

// TestRerunRefused is every 400 and 404 that depends on what is stored.
func TestRerunRefused(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startFlawed(t, 3, "last")
	n.tool(t, fmt.Sprintf(strings.Replace(pagesTool, "[999]", "[2]", 1), up.URL))
	run := n.run(t, "pages", v1.RunRequest{RunID: "a", Inputs: json.RawMessage(`{"run":"a","x":1}`), Credentials: json.RawMessage(`{"token":"s3cret","other":"o"}`)})
	if run.Status != "failed" {
		t.Fatal(run.Error)
	}
	secrets := json.RawMessage(`{"token":"s3cret","other":"o"}`)
	_, err := n.api.Rerun(t.Context(), "a", v1.RerunRequest{})
	refused(t, err, "other, token")
	_, err = n.api.Rerun(t.Context(), "a", v1.RerunRequest{Credentials: json.RawMessage(`{"token":"x"}`)})
	refused(t, err, "with other")
	_, err = n.api.Rerun(t.Context(), "a", v1.RerunRequest{Credentials: secrets, Inputs: json.RawMessage(`{"run":"b"}`)})
	refused(t, err, "first step")
	_, err = n.api.Rerun(t.Context(), "a", v1.RerunRequest{Credentials: secrets, Inputs: json.RawMessage(`{"run":"b"}`), FromStep: "last"})
	refused(t, err, "first step")
	up.bad.Store(false)
	// The same inputs in another order are not new ones; nothing but the last step is done.
	before := len(up.of("a"))
	n.rerun(t, "a", v1.RerunRequest{Credentials: secrets, Inputs: json.RawMessage(`{"x":1,"run":"a"}`)})
	if asked := up.asked("a")[before:]; !slices.Equal(asked, []string{"last"}) {
		t.Errorf("asked %v", asked)
	}
	// New inputs from the first step begin anew.
	n.rerun(t, "a", v1.RerunRequest{Credentials: secrets, Inputs: json.RawMessage(`{"run":"b"}`), FromStep: "first"})
	if asked := up.asked("b"); len(asked) != 5 {
		t.Errorf("asked %v", asked)
	}
	// A step that the run never reached cannot be skipped.
	up.bad.Store(true)
	if other := n.tool(t, strings.Replace(fmt.Sprintf(itemsTool, up.URL, "early", 1), "/first?", "/last?", 1)); other != "early" {
		t.Fatal(other)
	}
	n.run(t, "early", v1.RunRequest{RunID: "c", Inputs: json.RawMessage(`{"run":"c"}`)})
	_, err = n.api.Rerun(t.Context(), "c", v1.RerunRequest{FromStep: "sum"})
	refused(t, err, "'first'")
	if err := n.api.DeleteTool(t.Context(), "early"); err != nil {
		t.Fatal(err)
	}
	n.tool(t, fmt.Sprintf(itemsTool, up.URL, "early", 1)) // another tool of that id
	if _, err = n.api.Rerun(t.Context(), "c", v1.RerunRequest{}); client.Status(err) != http.StatusNotFound {
		t.Errorf("a run of a deleted tool was rerun: %v", err)
	}
	if _, err := n.api.UpdateTool(t.Context(), "pages", v1.ToolUpdate{Archived: v1.Some(true)}); err != nil {
		t.Fatal(err)
	}
	_, err = n.api.Rerun(t.Context(), "a", v1.RerunRequest{Credentials: secrets})
	refused(t, err, "archived")
}

// TestRerunAborted goes on after a cancel in the middle of a pull.
func TestRerunAborted(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	hold := make(chan struct{})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("cursor") == "5" {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		pages(w, r)
	})
	tool := n.tool(t, strings.Replace(fmt.Sprintf(pullTool, up.URL), `"cursorPath"`, `"stopCondition":"(r, p) => p.page >= 9","cursorPath"`, 1))
	if _, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: "a", Inputs: json.RawMessage(`{"run":"a","mode":""}`), Options: &v1.RunOptions{Async: true}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error {
		if len(up.of("a")) < 6 {
			return fmt.Errorf("only %d requests", len(up.of("a")))
		}
		return nil
	})
	if _, err := n.api.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	close(hold)
	run, err := n.api.Rerun(t.Context(), "a", v1.RerunRequest{Options: &v1.RerunOptions{Async: new(false)}})
	if err != nil || run.Status != "success" || len(up.of("a")) != 6+4 {
		t.Errorf("%v %+v after %d requests", err, run, len(up.of("a")))
	}
}

// TestRerunFromPageOfItem takes up a loop of pulls that failed at page 3 of item 2, under
// another version: the items and pages before it are not asked for again.
func TestRerunFromPageOfItem(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	var bad atomic.Bool
	bad.Store(true)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		item, page := r.URL.Query().Get("item"), r.URL.Query().Get("page")
		if bad.Load() && item == "2" && page == "3" {
			http.Error(w, "broken", http.StatusBadRequest)
			return
		}
		records := fmt.Sprintf(`[{"at":"%[1]s.%[2]s"},{"at":"%[1]s.%[2]s, too"}]`, item, page)
		if page == "4" {
			records = `[]`
		}
		fmt.Fprintf(w, `{"data":%s}`, records)
	})
	document := fmt.Sprintf(`{"id":"loop","steps":[{"id":"items","dataSelector":"() => [0, 1, 2, 3]","config":{"url":"%s/?run=<<run>>",
		"queryParams":{"item":"<<currentItem>>","page":"<<page>>"},"pagination":{"type":"pageBased","pageSize":2}}}]}`, up.URL)
	n.tool(t, document)
	run := func(id string) *v1.Run {
		return n.run(t, "loop", v1.RunRequest{RunID: id, Inputs: json.RawMessage(`{"run":"` + id + `"}`)})
	}
	if failed := run("a"); failed.Status != "failed" || len(up.of("a")) != 4+4+3 {
		t.Fatalf("%s after %d requests", failed.Status, len(up.of("a")))
	}
	bad.Store(false)
	run("b")
	var create v1.ToolCreate
	decode(t, []byte(strings.Replace(document, `"page":"<<page>>"`, `"page":"<<page>>","version":"2"`, 1)), &create)
	if _, err := n.api.UpdateTool(t.Context(), "loop", v1.ToolUpdate{Steps: v1.Some(create.Steps)}); err != nil {
		t.Fatal(err)
	}
	n.rerun(t, "a", v1.RerunRequest{RunID: "a2", ToolVersion: "1.1.0"})
	again := up.of("a")[11:]
	if len(again) != 2+4 || !strings.Contains(again[0].uri, "item=2") || !strings.Contains(again[0].uri, "page=3") || !strings.Contains(again[0].uri, "version=2") {
		t.Errorf("the rerun sent %d requests, the first for %s", len(again), again[0].uri)
	}
	if got, want := n.whole(t, "a2"), n.whole(t, "b"); got != want {
		t.Errorf("the rerun came to %s, an undisturbed run to %s", got, want)
	}
}
