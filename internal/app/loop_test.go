package app_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	v1 "stepwell/api/v1"
)

const loopConcurrency = 20

var loopItems = flag.Int("items", 0, "items of TestBigLoop; 0 means 2,000, or 50,000 with -long")

// loopTool makes a list of numbers and asks for each of them.
const loopTool = `{"id":"loop","steps":[
	{"id":"list","config":{"type":"transform","transformCode":"(s) => Array.from({length: s.n}, (_, i) => ({i}))"}},
	{"id":"each","dataSelector":"(s) => s.list.data","concurrency":%d,"config":{"url":"%s/item?i=<<(s) => s.currentItem.i>>"}}]}`

// TestBigLoop walks over many items, continues as new on the way, and loses its worker:
// only the items in flight are asked for again.
func TestBigLoop(t *testing.T) {
	t.Parallel()
	items, continueCount := 2000, 150
	if *long {
		items, continueCount = 50_000, 2000
	}
	if *loopItems > 0 {
		items = *loopItems
	}
	s := startSplit(t, continueCount)
	asked := newNumbered()
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.URL.Query().Get("i"))
		asked.hit(i)
		fmt.Fprintf(w, `{"double":%d}`, 2*i)
	})
	tool := s.tool(t, fmt.Sprintf(loopTool, loopConcurrency, up.URL))
	began := time.Now()
	s.run(t, tool, v1.RunRequest{RunID: "loop", Inputs: fmt.Appendf(nil, `{"n":%d}`, items), Options: &v1.RunOptions{Async: true}})
	asked.await(t, items/3, time.Minute)
	t.Logf("%.1fs: kill the worker after %d requests", time.Since(began).Seconds(), items/3)
	s.crash(t)
	resumed := time.Now()
	asked.await(t, items/2, time.Minute)
	half := time.Now()
	before, watch := memory(t, s.worker.cmd.Process.Pid), sample(t, s.worker.cmd.Process.Pid)
	asked.await(t, items*3/4, 5*time.Minute)
	quarter := time.Since(half)
	run := s.waitFinal(t, "loop", 5*time.Minute)
	last := time.Since(half) - quarter
	most := watch.end()
	t.Logf("resumed after %.1fs; third quarter %.1fs, last %.1fs: %.0f items/s; memory %d MiB, then at most %d MiB", half.Sub(resumed).Seconds(),
		quarter.Seconds(), last.Seconds(), float64(items)/2/(quarter+last).Seconds(), before>>20, most>>20)
	if run.Status != "success" {
		t.Fatalf("the run ended as %s: %s", run.Status, run.Error)
	}
	if *long && last > quarter*3/2 {
		t.Errorf("the last quarter took %s, the one before it %s", last, quarter)
	}
	if most > before+flatMemory {
		t.Errorf("memory grew from %d to %d MiB", before>>20, most>>20)
	}
	asked.check(t, items, loopConcurrency, 2)
	s.checkLoop(t, "loop", items)
	if n := s.executions(t, "loop"); n <= 5 {
		t.Errorf("the run continued as new only %d times", n-1)
	} else {
		t.Logf("continued as new %d times", n-1)
	}
}

// checkLoop checks that each item has its envelope, in order.
func (n *node) checkLoop(t *testing.T, run string, items int) {
	t.Helper()
	res, err := n.api.Results(t.Context(), run)
	if err != nil || res.Data == nil {
		t.Fatal("results: ", err)
	}
	var envelopes []struct {
		CurrentItem struct{ I int }
		Data        struct{ Double int }
		Success     bool
	}
	if err := json.Unmarshal(res.Data.Data, &envelopes); err != nil {
		t.Fatal(err)
	}
	if len(envelopes) != items {
		t.Fatalf("%d envelopes, want %d", len(envelopes), items)
	}
	for i, e := range envelopes {
		if !e.Success || e.CurrentItem.I != i || e.Data.Double != 2*i {
			t.Fatalf("envelope %d is %+v", i, e)
		}
	}
}
