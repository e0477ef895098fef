package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/devstack/stacktest"
)

// abuse is code that would kill or hang a process that interprets it.
var abuse = map[string]string{
	"endless loop":       "(s) => { for(;;){} }",
	"huge string":        "(s) => 'x'.repeat(2**33)",
	"huge typed array":   "(s) => new Uint8Array(2**33)",
	"huge BigInt":        "(s) => 2n**(2n**33n)",
	"nested parentheses": strings.Repeat("(", 300_000) + "1" + strings.Repeat(")", 300_000),
	"nested, but short":  strings.Repeat("(", 30_000) + "1" + strings.Repeat(")", 30_000),
	"long source":        "(s) => '" + strings.Repeat("x", 65<<10) + "'",
	"built-in":           "(s) => { let a=[];a.length=4294967295;return a.indexOf(1) }",
	"pushing loop":       "(s) => { let a = []; for (;;) a.push('x'.repeat(1000)) }",
}

// TestAbuse saves and runs tools whose templates are abuse: each run fails soon and says
// which limit it met, and nobody else notices.
func TestAbuse(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"v":%q}`, r.URL.Query().Get("v")) })
	postgres, temporald := n.stack.PostgresPID(), n.stack.TemporaldPID()
	tool := func(id, expression string) string {
		document, err := json.Marshal(map[string]any{"id": id, "steps": []any{map[string]any{"id": "a", "config": map[string]any{
			"url": up.URL + "/x?run=" + id + "&v=<<" + expression + ">>"}}}})
		if err != nil {
			t.Fatal(err)
		}
		return n.tool(t, string(document))
	}
	neighbour := tool("neighbour", "(s) => s.n + 1")
	stop, stopped := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var took []time.Duration
		defer func() { stopped <- took }()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			began := time.Now()
			run, err := n.api.Run(t.Context(), neighbour, v1.RunRequest{Inputs: fmt.Appendf(nil, `{"n":%d}`, i)})
			if err != nil || run.Status != "success" || string(run.Data) != fmt.Sprintf(`{"v":"%d"}`, i+1) {
				t.Errorf("the neighbour's run %d: %v, %+v", i, err, run)
				return
			}
			took = append(took, time.Since(began))
		}
	}()
	for name, source := range abuse {
		id := tool(strings.NewReplacer(" ", "-", ",", "").Replace(name), source)
		for range 2 { // the second one meets what the first has left
			began := time.Now()
			run := n.run(t, id, v1.RunRequest{})
			took := time.Since(began)
			if run.Status != "failed" || !strings.Contains(run.Error, "limit of an expression") || !strings.HasPrefix(run.Error, "Step 1 (a): url: ") {
				t.Errorf("%s: the run is a %s with error %.300q", name, run.Status, run.Error)
			}
			if len(run.Error) > 1000 {
				t.Errorf("%s: an error of %d bytes", name, len(run.Error))
			}
			if took > stacktest.Promised(3*time.Second) {
				t.Errorf("%s: the run took %s", name, took)
			}
			if row := run.StepResults; len(row) != 1 || row[0].Success || row[0].Error != run.Error {
				t.Errorf("%s: the step results are %+v", name, row)
			}
			if len(up.of(id)) > 0 {
				t.Errorf("%s: a request was sent", name)
			}
			if got, err := n.api.GetRun(t.Context(), run.RunID); err != nil || got.Error != run.Error {
				t.Errorf("%s: GET gives %v, %v", name, got, err)
			}
			t.Logf("%s: %s: %.120s", name, took.Round(time.Millisecond), run.Error)
		}
	}
	close(stop)
	took := <-stopped
	slices.Sort(took)
	if len(took) < 50 {
		t.Fatalf("the neighbour had only %d runs", len(took))
	}
	t.Logf("the neighbour: %d runs, median %s, longest %s", len(took), took[len(took)/2], took[len(took)-1])
	if n.stack.PostgresPID() != postgres || n.stack.TemporaldPID() != temporald {
		t.Error("a process of the stack died")
	}
}
