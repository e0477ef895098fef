package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
)

const (
	maskIDs   = `"responseFilters":[{"target":"KEYS","pattern":"^id$","action":"MASK"}],`
	refuseTwo = `"responseFilters":[{"target":"VALUES","pattern":"^two$","action":"FAIL"}],`
	pulled    = `{"id":"pull","config":{"url":"UP/pull?%s","queryParams":{"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased"}}}`
)

// equalTools are runs of every way in which data comes to a synchronous caller: from the
// worker's memory and from the store.
var equalTools = map[string]string{
	"one step":              `{"steps":[{"id":"a","config":{"url":"UP/rows"}}]}`,
	"filtered":              `{` + maskIDs + `"steps":[{"id":"a","config":{"url":"UP/rows"}}]}`,
	"two steps":             `{` + maskIDs + `"steps":[{"id":"a","config":{"url":"UP/rows"}},{"id":"b","config":{"url":"UP/one"}}]}`,
	"a filter refuses":      `{` + refuseTwo + `"steps":[{"id":"a","config":{"url":"UP/one"}},{"id":"b","config":{"url":"UP/rows"}}]}`,
	"no step":               `{"outputTransform":"() => ({a: 1, id: 2})"}`,
	"output":                `{` + maskIDs + `"steps":[{"id":"a","config":{"url":"UP/rows"}}],"outputTransform":"(s) => s.a.data.length"}`,
	"output fails":          `{` + maskIDs + `"steps":[{"id":"a","config":{"url":"UP/rows"}}],"outputTransform":"(s) => s.none.none"}`,
	"first fails":           `{"steps":[{"id":"a","config":{"url":"UP/missing"}},{"id":"b","config":{"url":"UP/one"}}]}`,
	"last fails":            `{` + maskIDs + `"steps":[{"id":"a","config":{"url":"UP/rows"}},{"id":"b","config":{"url":"UP/missing"}}]}`,
	"last fails, and on":    `{"steps":[{"id":"a","config":{"url":"UP/rows"}},{"id":"b","failureBehavior":"continue","config":{"url":"UP/missing"}}]}`,
	"all fail, and on":      `{"steps":[{"id":"a","failureBehavior":"continue","config":{"url":"UP/missing"}}]}`,
	"one page":              `{"steps":[` + fmt.Sprintf(pulled, "pages=1") + `]}`,
	"pages":                 `{` + maskIDs + `"steps":[` + fmt.Sprintf(pulled, "pages=4") + `]}`,
	"first page fails":      `{"steps":[` + fmt.Sprintf(pulled, "pages=4&fails=1") + `]}`,
	"a page fails":          `{"steps":[` + fmt.Sprintf(pulled, "pages=4&fails=3") + `]}`,
	"a page fails, masked":  `{` + maskIDs + `"steps":[` + fmt.Sprintf(pulled, "pages=4&fails=3") + `]}`,
	"a page fails, refused": `{` + refuseTwo + `"steps":[` + fmt.Sprintf(pulled, "pages=4&fails=3") + `]}`,
	"loop":                  `{` + maskIDs + `"steps":[{"id":"a","dataSelector":"() => [{id:1},{id:2}]","config":{"url":"UP/one"}}]}`,
	"loop of none":          `{"steps":[{"id":"a","dataSelector":"() => []","config":{"url":"UP/one"}}]}`,
	"loop fails":            `{"steps":[{"id":"a","dataSelector":"() => ['one','missing','one']","config":{"url":"UP/<<(s) => s.currentItem>>"}}]}`,
	"loop fails, and on":    `{"steps":[{"id":"a","dataSelector":"() => ['one','missing','one']","failureBehavior":"continue","config":{"url":"UP/<<(s) => s.currentItem>>"}}]}`,
	"loop fails wholly":     `{"steps":[{"id":"a","config":{"url":"UP/one"}},{"id":"b","dataSelector":"() => [1,2]","failureBehavior":"continue","config":{"url":"UP/missing"}}]}`,
	"the same, filtered":    `{` + maskIDs + `"steps":[{"id":"a","config":{"url":"UP/one"}},{"id":"b","dataSelector":"() => [1,2]","failureBehavior":"continue","config":{"url":"UP/missing"}}]}`,
	"one object":            `{"steps":[{"id":"a","dataSelector":"() => ({id: 7})","config":{"url":"UP/one"}}]}`,
	"selector fails":        `{"steps":[{"id":"a","dataSelector":"() => { throw new Error('no') }","config":{"url":"UP/one"}}]}`,
	"selector fails, on":    `{"steps":[{"id":"a","dataSelector":"() => { throw new Error('no') }","failureBehavior":"continue","config":{"url":"UP/one"}},{"id":"b","config":{"url":"UP/one"}}]}`,
	"transform":             `{"steps":[{"id":"a","config":{"url":"UP/rows"}},{"id":"b","config":{"type":"transform","transformCode":"(s) => s.a.data.map(r => r.id)"}}]}`,
	"transform of nothing":  `{"steps":[{"id":"b","config":{"type":"transform","transformCode":"() => undefined"}}]}`,
}

// TestAnswersEqualResults compares what a synchronous caller gets with what is stored. Of
// a step that failed the results show what it stored before; the answer does not.
func TestAnswersEqualResults(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		switch r.URL.Path {
		case "/rows":
			fmt.Fprint(w, `[{"id":1,"name":"one"},{"id":2,"name":"two"}]`)
		case "/one":
			fmt.Fprint(w, `{"id":1,"name":"one"}`)
		case "/pull":
			page := "1" + q.Get("cursor")
			switch {
			case fmt.Sprint(len(page)) == q.Get("fails"):
				http.NotFound(w, r)
			case fmt.Sprint(len(page)) == q.Get("pages"):
				fmt.Fprintf(w, `{"data":[{"id":%s,"name":"two"}]}`, page)
			default:
				fmt.Fprintf(w, `{"data":[{"id":%s,"name":"two"}],"next_cursor":"%s"}`, page, page)
			}
		default:
			http.NotFound(w, r)
		}
	})
	t.Run("all", func(t *testing.T) {
		for name, document := range equalTools {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				checkEqual(t, n, n.tool(t, strings.ReplaceAll(document, "UP", up.URL)))
			})
		}
	})
}

func checkEqual(t *testing.T, n *node, tool string) {
	answer := n.run(t, tool, v1.RunRequest{})
	res, err := n.api.Results(t.Context(), answer.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if res.Data == nil {
		if answer.Status == "success" || len(answer.StepResults) > 0 {
			t.Fatalf("nothing is stored of %+v", answer)
		}
		return
	}
	if got, want := string(res.Data.Data), string(answer.Data); compact(t, got) != compact(t, want) {
		t.Errorf("stored data %s, answered %s", got, want)
	}
	if len(res.Data.StepResults) != len(answer.StepResults) {
		t.Fatalf("%d rows stored, %d answered", len(res.Data.StepResults), len(answer.StepResults))
	}
	for i, stored := range res.Data.StepResults {
		refused := strings.Contains(asText(t, answer.Tool), `"action":"FAIL"`)
		if !stored.Success && stored.Pages > 0 && (stored.Data == nil) != refused {
			t.Errorf("of a pull that failed after %d pages the results show %s", stored.Pages, stored.Data)
		}
		if !stored.Success && answer.StepResults[i].Data == nil {
			stored.Data = nil
		}
		a, b := asText(t, stored), asText(t, answer.StepResults[i])
		if a != b {
			t.Errorf("stored   %s\nanswered %s", a, b)
		}
	}
	got, err := n.api.GetRun(t.Context(), answer.RunID)
	if err != nil {
		t.Fatal(err)
	}
	got.StepResults = answer.StepResults
	if a, b := asText(t, got), asText(t, answer); a != b {
		t.Errorf("read     %s\nanswered %s", a, b)
	}
	if strings.Contains(asText(t, res), `"name":"two"`) && strings.Contains(asText(t, got.Tool), `"action":"FAIL"`) {
		t.Error("what a filter refuses is in the results")
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return compact(t, string(b))
}
