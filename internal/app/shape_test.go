package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
	"stepwell/docs"
)

// shape is a tool with what a run of it must come to, seen by the synchronous caller and
// in the stored results.
type shape struct {
	name    string
	tool    string // UP stands for the upstream's address
	inputs  string
	data    string // of a run that succeeds; as docs.Match has it
	problem string // in the error of a run that fails
	rows    string // of stepResults; as docs.Match has it
	absent  string // in no answer
	refused string // in the 400 that answers the start
}

var shapes = []shape{
	{
		name: "defaults",
		tool: `{"inputSchema":{"type":"object","required":["q"],"properties":{"q":{"type":"string"},"n":{"type":"integer","default":3},
			"deep":{"type":"object","default":{},"properties":{"x":{"default":[1,2]}}},"left":{"type":"string"}}},
			"steps":[{"id":"a","config":{"url":"UP/echo","queryParams":{"q":"<<q>>","n":"<<n>>","x":"<<(s) => s.deep.x>>","left":"<<left>>"}}}]}`,
		inputs: `{"q":"a b"}`,
		data:   `{"q":["a b"],"n":["3"],"x":["1","2"]}`,
	},
	{
		name: "refused inputs",
		tool: `{"inputSchema":{"type":"object","required":["q"],"properties":{"q":{"type":"string"},"l":{"type":"array","items":{"type":"integer"}}}},
			"steps":[{"id":"a","config":{"url":"UP/echo"}}]}`,
		inputs:  `{"l":[1,"x"]}`,
		refused: "l[1]",
	},
	{
		name: "output schema holds",
		tool: `{"outputSchema":{"type":"object","required":["n"]},"steps":[{"id":"a","config":{"url":"UP/echo?n=1"}}]}`,
		data: `{"n":["1"]}`,
	},
	{
		name:    "output schema is violated",
		tool:    `{"outputSchema":{"type":"object","required":["m"]},"steps":[{"id":"a","config":{"url":"UP/echo?n=1"}}]}`,
		problem: "does not match outputSchema: m",
		rows:    `[{"stepId":"a","success":true,"data":{"n":["1"]}}]`,
	},
	{
		name: "output schema sees what filters take away",
		tool: `{"outputSchema":{"type":"object","required":["secret"]},"responseFilters":[{"target":"KEYS","pattern":"secret","action":"REMOVE"}],
			"steps":[{"id":"a","config":{"url":"UP/echo?n=1&secret=hidden"}}]}`,
		data: `{"n":["1"]}`, absent: "hidden",
	},
	{
		name: "filters on data and rows, not on later steps",
		tool: `{"responseFilters":[{"target":"KEYS","pattern":"^secret$","action":"REMOVE"},{"target":"VALUES","pattern":"hid[a-z]+","action":"MASK"}],
			"steps":[{"id":"a","config":{"url":"UP/echo?n=1&secret=hidden"}},
				{"id":"b","config":{"url":"UP/echo","queryParams":{"length":"<<(s) => s.a.data.secret[0].length>>","text":"so <<(s) => s.a.data.secret>>"}}}]}`,
		data: `{"length":["6"],"text":["so [\"[filtered]\"]"]}`, absent: "hidden",
		rows: `[{"stepId":"a","success":true,"data":{"n":["1"]}},{"stepId":"b","success":true,"data":{"length":["6"],"text":["so [\"[filtered]\"]"]}}]`,
	},
	{
		name: "filters on a failed run",
		tool: `{"responseFilters":[{"target":"KEYS","pattern":"secret","action":"REMOVE"}],
			"steps":[{"id":"a","config":{"url":"UP/echo?n=1&secret=hidden"}},{"id":"b","config":{"url":"UP/status?code=404"}}]}`,
		problem: "Step 2 (b): GET", absent: "hidden",
		rows: `[{"stepId":"a","success":true,"data":{"n":["1"]}},{"stepId":"b","success":false,"error":"…"}]`,
	},
	{
		name: "a filter that fails the run",
		tool: `{"responseFilters":[{"name":"no cards","target":"VALUES","pattern":"4111","action":"FAIL"}],
			"steps":[{"id":"a","config":{"url":"UP/echo?n=1"}},{"id":"b","config":{"url":"UP/echo?card=41111111"}}]}`,
		problem: "no cards", absent: "41111111",
		rows: `[{"stepId":"a","success":true,"data":{"n":["1"]}},{"stepId":"b","success":true}]`,
	},
	{
		name: "filters on a loop",
		tool: `{"responseFilters":[{"target":"VALUES","pattern":"^2$","action":"REMOVE","scope":"ITEM"}],
			"steps":[{"id":"a","dataSelector":"(s) => [{n: 1}, {n: 3}]","config":{"url":"UP/echo","queryParams":{"n":"<<(s) => s.currentItem.n>>"}}}]}`,
		data: `[{"currentItem":{"n":1},"data":{"n":["1"]},"success":true},{"currentItem":{"n":3},"data":{"n":["3"]},"success":true}]`,
	},
	{
		name: "a loop over pulls",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => [2, 0, 3]","concurrency":3,"config":{"url":"UP/pages","queryParams":{"pages":"<<currentItem>>","cursor":"<<cursor>>"},
			"pagination":{"type":"cursorBased"}}}],
			"outputTransform":"(s) => s.a.map((x) => [x.currentItem, x.success, x.data.data])"}`,
		data: `[[2,true,[0,1]],[0,true,[]],[3,true,[0,1,2]]]`,
		rows: `[{"stepId":"a","success":true,"pages":6,"items":5}]`,
	},
	{
		name: "a loop over pulls without concurrency",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => [2, 1]","config":{"url":"UP/pages","queryParams":{"pages":"<<currentItem>>","page":"<<page>>"},
			"pagination":{"type":"pageBased","pageSize":1}}}]}`,
		data: `[{"currentItem":2,"success":true,"data":{"data":[0,1]}},{"currentItem":1,"success":true,"data":{"data":[0]}}]`,
		rows: `[{"stepId":"a","success":true,"pages":5,"items":3}]`,
	},
	{
		name:    "a failed item ends a loop",
		tool:    `{"steps":[{"id":"a","dataSelector":"(s) => [200, 404, 200]","config":{"url":"UP/status?code=<<currentItem>>"}},{"id":"b","config":{"url":"UP/echo"}}]}`,
		problem: "Step 1 (a): GET",
		rows:    `[{"stepId":"a","success":false,"error":"…","data":[{"currentItem":200,"success":true,"data":{"code":200}},{"currentItem":404,"success":false,"error":"…"}]}]`,
	},
	{
		name: "a failed item of a loop with continue",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => [200, 404, 201]","concurrency":2,"failureBehavior":"continue","config":{"url":"UP/status?code=<<currentItem>>"}},
			{"id":"b","config":{"url":"UP/echo","queryParams":{"ok":"<<(s) => s.a.map((x) => x.success)>>","error":"<<(s) => s.a[1].error.includes('404')>>","none":"<<(s) => s.a[1].data === undefined>>"}}}]}`,
		data: `{"ok":["true","false","true"],"error":["true"],"none":["true"]}`,
		rows: `[{"stepId":"a","success":true,"data":[{"currentItem":200,"success":true,"data":{"code":200}},{"currentItem":404,"success":false,"error":"…"},{"currentItem":201,"success":true,"data":{"code":201}}]},{"stepId":"b","success":true}]`,
	},
	{
		name: "all items of a loop with continue fail",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => [404, 410]","failureBehavior":"continue","config":{"url":"UP/status?code=<<currentItem>>"}}]}`,
		data: `[{"currentItem":404,"success":false,"error":"…"},{"currentItem":410,"success":false,"error":"…"}]`,
	},
	{
		name: "a failed pull in a loop with continue",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => [1, 'x', 2]","failureBehavior":"continue","config":{"url":"UP/pages","queryParams":{"pages":"<<currentItem>>","cursor":"<<cursor>>"},"pagination":{"type":"cursorBased"}}}],
			"outputTransform":"(s) => s.a.map((x) => x.success)"}`,
		data: `[true,false,true]`,
	},
	{
		name: "a failed step with continue",
		tool: `{"steps":[{"id":"a","config":{"url":"UP/echo?n=1"}},{"id":"b","failureBehavior":"continue","config":{"url":"UP/status?code=410"}}]}`,
		data: `{"n":["1"]}`,
		rows: `[{"stepId":"a","success":true},{"stepId":"b","success":false,"error":"…"}]`,
	},
	{
		name: "no step succeeds",
		tool: `{"steps":[{"id":"b","failureBehavior":"continue","config":{"url":"UP/status?code=410"}}]}`,
		data: `null`,
	},
	{
		name: "a selector that throws, with continue",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => s.nothing.at.all","failureBehavior":"continue","config":{"url":"UP/echo"}},
			{"id":"b","config":{"url":"UP/echo","queryParams":{"ok":"<<(s) => s.a.success>>"}}}]}`,
		data: `{"ok":["false"]}`,
		rows: `[{"stepId":"a","success":false,"error":"…"},{"stepId":"b","success":true}]`,
	},
	{
		name: "an empty loop",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => []","concurrency":5,"config":{"url":"UP/echo"}}]}`,
		data: `[]`,
		rows: `[{"stepId":"a","success":true,"data":[]}]`,
	},
	{
		name: "a transform in a loop",
		tool: `{"steps":[{"id":"a","dataSelector":"(s) => [1, 2]","config":{"type":"transform","transformCode":"(s) => s.currentItem * 10"}}]}`,
		data: `[{"currentItem":1,"success":true,"data":10},{"currentItem":2,"success":true,"data":20}]`,
	},
	{
		name:   "a tool of an outputTransform alone",
		tool:   `{"outputTransform":"(s) => ({twice: s.n * 2})"}`,
		inputs: `{"n":21}`,
		data:   `{"twice":42}`,
	},
	{
		name: "undefined is null",
		tool: `{"steps":[{"id":"a","config":{"url":"UP/echo"}}],"outputTransform":"(s) => undefined"}`,
		data: `null`,
	},
	{
		name: "exact numbers",
		tool: `{"steps":[{"id":"a","config":{"url":"UP/big"}},{"id":"b","config":{"url":"UP/echo","queryParams":{"n":"<<(s) => s.a.data.n>>"}}}]}`,
		data: `{"n":["123456789012345678901234567890"]}`,
	},
	{
		name:    "a truncated pull",
		tool:    `{"steps":[{"id":"a","config":{"url":"UP/pages?pages=5","queryParams":{"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased","maxPages":2}}}]}`,
		problem: "truncated",
		rows:    `[{"stepId":"a","success":false,"error":"…","pages":2,"items":2}]`,
	},
}

func shapeUpstream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/echo":
		_ = json.NewEncoder(w).Encode(q)
	case "/big":
		fmt.Fprint(w, `{"n":123456789012345678901234567890}`)
	case "/status":
		code, _ := strconv.Atoi(q.Get("code"))
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"code":%d}`, code)
	case "/pages":
		pages, err := strconv.Atoi(q.Get("pages"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		page, _ := strconv.Atoi(q.Get("cursor"))
		if n, err := strconv.Atoi(q.Get("page")); err == nil {
			page = n - 1
		}
		switch {
		case page >= pages:
			fmt.Fprint(w, `{"data":[]}`)
		case page+1 == pages || q.Has("page"):
			fmt.Fprintf(w, `{"data":[%d]}`, page)
		default:
			fmt.Fprintf(w, `{"data":[%d],"next_cursor":"%d"}`, page, page+1)
		}
	}
}

// TestShapes runs tools of every shape for real.
func TestShapes(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startUpstream(t, shapeUpstream)
	t.Run("all", func(t *testing.T) {
		for i, x := range shapes {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprintf("shape-%d", i)
				tool := n.tool(t, fmt.Sprintf(`{"id":%q,%s`, id, strings.ReplaceAll(x.tool[1:], "UP", up.URL)))
				run, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: id, Inputs: json.RawMessage(x.inputs)})
				if x.refused != "" {
					if err == nil || !strings.Contains(err.Error(), x.refused) {
						t.Errorf("the start gave %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				x.check(t, "the answer", run.Status, run.Error, run.Data, run.StepResults)
				stored, err := n.api.Results(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if stored.Data == nil && (run.Data != nil && len(run.StepResults) > 0) {
					t.Fatal("nothing is stored")
				}
				if stored.Data != nil {
					x.check(t, "the results", run.Status, stored.Data.Error, stored.Data.Data, stored.Data.StepResults)
				}
				for _, text := range n.answers(t, id) {
					if x.absent != "" && strings.Contains(text, x.absent) && !strings.Contains(x.tool, x.absent) {
						t.Errorf("an answer holds %q: %.2000s", x.absent, text)
					}
				}
			})
		}
	})
}

// check compares what one answer says with what the shape wants.
func (x *shape) check(t *testing.T, where, status, problem string, data json.RawMessage, rows []v1.StepResult) {
	t.Helper()
	if x.problem != "" {
		if status != "failed" || !strings.Contains(problem, x.problem) || data != nil {
			t.Errorf("%s: a %s with error %q and data %s", where, status, problem, data)
		}
	} else {
		if status != "success" || problem != "" {
			t.Errorf("%s: a %s with error %q", where, status, problem)
			return
		}
		if d := docs.Match(json.RawMessage(x.data), data); d != "" {
			t.Errorf("%s: data: %s: %s", where, d, data)
		}
	}
	document, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	if x.rows != "" {
		if d := docs.Match(json.RawMessage(x.rows), document); d != "" {
			t.Errorf("%s: step results: %s: %s", where, d, document)
		}
	}
	if all := string(data) + string(document); x.absent != "" && strings.Contains(all, x.absent) {
		t.Errorf("%s holds %q: %s", where, x.absent, all)
	}
}
