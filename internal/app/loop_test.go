package app_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/workflows"
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
	limit := time.Minute + time.Duration(items)*20*time.Millisecond // of each half, on a busy machine
	tool := s.tool(t, fmt.Sprintf(loopTool, loopConcurrency, up.URL))
	began := time.Now()
	s.run(t, tool, v1.RunRequest{RunID: "loop", Inputs: fmt.Appendf(nil, `{"n":%d}`, items), Options: &v1.RunOptions{Async: true}})
	asked.await(t, items/3, limit)
	t.Logf("%.1fs: kill the worker after %d requests", time.Since(began).Seconds(), items/3)
	s.crash(t)
	resumed := time.Now()
	asked.await(t, items/2, limit)
	half := time.Now()
	before, watch := memory(t, s.worker.cmd.Process.Pid), sample(t, s.worker.cmd.Process.Pid)
	asked.await(t, items*3/4, limit)
	quarter := time.Since(half)
	run := s.waitFinal(t, "loop", limit)
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

// TestLoopIsBounded sees how many items of a loop are in flight at once, and what happens
// after one has failed: no further one starts, and those in flight are finished.
func TestLoopIsBounded(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	var mu sync.Mutex
	inFlight, most, cut := map[string]int{}, map[string]int{}, 0
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		run, i := r.URL.Query().Get("run"), r.URL.Query().Get("i")
		mu.Lock()
		inFlight[run]++
		most[run] = max(most[run], inFlight[run])
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			inFlight[run]--
			if r.Context().Err() != nil {
				cut++
			}
		}()
		if run == "failing" && i == "1" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		select {
		case <-time.After(200 * time.Millisecond): // an upstream's time
		case <-r.Context().Done():
		}
		fmt.Fprint(w, i)
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"bounded","steps":[{"id":"each","dataSelector":"(s) => [0,1,2,3,4,5,6,7,8,9,10,11]","concurrency":4,
		"config":{"url":"%s/x?run=<<run>>&i=<<currentItem>>"}}]}`, up.URL))
	if run := n.run(t, tool, v1.RunRequest{Inputs: []byte(`{"run":"sound"}`)}); run.Status != "success" {
		t.Errorf("the run ended as %s: %s", run.Status, run.Error)
	}
	if most["sound"] > 4 || most["sound"] < 2 {
		t.Errorf("%d items were in flight at once", most["sound"])
	}
	run := n.run(t, tool, v1.RunRequest{Inputs: []byte(`{"run":"failing"}`)})
	if run.Status != "failed" || !strings.Contains(run.Error, "answered 403") {
		t.Errorf("the run ended as %s: %s", run.Status, run.Error)
	}
	if started := len(up.of("failing")); started > 4 || cut > 0 {
		t.Errorf("%d items were started, %d cut off", started, cut)
	}
	var envelopes []struct{ Success bool }
	if err := json.Unmarshal(run.StepResults[0].Data, &envelopes); err != nil || len(envelopes) != len(up.of("failing")) {
		t.Errorf("%d items were started, but the row says %s, %v", len(up.of("failing")), run.StepResults[0].Data, err)
	}
}

// TestLoopOfEffects kills the worker in the middle of a loop of POSTs: none is sent twice,
// unless the upstream honours the key.
func TestLoopOfEffects(t *testing.T) {
	t.Parallel()
	const items, concurrency = 60, 5
	s := startSplit(t, 2000)
	for _, idempotent := range []bool{false, true} {
		name := fmt.Sprintf("idempotent-%v", idempotent)
		asked := newNumbered()
		var mu sync.Mutex
		keys := map[string]map[string]bool{}
		up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			item := r.URL.Query().Get("i")
			i, _ := strconv.Atoi(item)
			mu.Lock()
			if keys[item] == nil {
				keys[item] = map[string]bool{}
			}
			keys[item][r.Header.Get("Idempotency-Key")] = true
			mu.Unlock()
			asked.hit(i)
			time.Sleep(20 * time.Millisecond) // an upstream's time
			fmt.Fprintf(w, `{"i":%d}`, i)
		})
		tool := s.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"each","dataSelector":"(s) => Array.from({length: %d}, (_, i) => i)","concurrency":%d,
			"failureBehavior":"continue","idempotent":%v,"config":{"method":"POST","url":"%s/x?i=<<currentItem>>"}}]}`, name, items, concurrency, idempotent, up.URL))
		s.run(t, tool, v1.RunRequest{RunID: name, Options: &v1.RunOptions{Async: true}})
		asked.await(t, items/3, time.Minute)
		s.crash(t)
		run := s.waitFinal(t, name, time.Minute)
		if run.Status != "success" {
			t.Fatalf("%s: the run ended as %s: %s", name, run.Status, run.Error)
		}
		var envelopes []struct {
			Success bool
			Error   string
		}
		decode(t, run.Data, &envelopes)
		unknown := 0
		for i, e := range envelopes {
			if !e.Success {
				unknown++
				if !strings.Contains(e.Error, "outcome unknown") {
					t.Errorf("%s: item %d: %s", name, i, e.Error)
				}
			}
		}
		if most := map[bool]int{true: 0, false: concurrency}[idempotent]; len(envelopes) != items || unknown > most {
			t.Errorf("%s: %d envelopes, %d of them with an unknown outcome", name, len(envelopes), unknown)
		}
		asked.checkEffects(t, items, idempotent, unknown)
		for item, k := range keys {
			if len(k) != 1 || !k[name+"/each/"+item+"/1"] {
				t.Errorf("%s: item %s was sent with the keys %v", name, item, k)
			}
		}
	}
}

// checkEffects checks that nothing was asked for twice that must not be. An item with an
// unknown outcome may not have been sent at all.
func (u *numbered) checkEffects(t *testing.T, n int, idempotent bool, unknown int) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	missing := 0
	for i := range n {
		if u.hits[i] == 0 {
			missing++
		}
		if u.hits[i] > 1 && !idempotent || u.hits[i] > 2 {
			t.Errorf("item %d was sent %d times", i, u.hits[i])
		}
	}
	if missing > unknown {
		t.Errorf("%d items were not sent, %d have an unknown outcome", missing, unknown)
	}
	t.Logf("idempotent %v: %d requests for %d items, %d with an unknown outcome", idempotent, u.total, n, unknown)
}

// TestCancelLoop cancels a loop with many items in flight.
func TestCancelLoop(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	stalls := stacktest.MeterStalls(t)
	asked := newNumbered()
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.URL.Query().Get("i"))
		asked.hit(i)
		select {
		case <-time.After(50 * time.Millisecond): // an upstream's time
		case <-r.Context().Done():
		}
		fmt.Fprintf(w, `{"double":%d}`, 2*i)
	})
	tool := n.tool(t, fmt.Sprintf(loopTool, loopConcurrency, up.URL))
	n.run(t, tool, v1.RunRequest{RunID: "loop", Inputs: []byte(`{"n":1000}`), Options: &v1.RunOptions{Async: true}})
	asked.await(t, 100, time.Minute)
	run, err := n.api.Cancel(t.Context(), "loop")
	answered := time.Now()
	if err != nil || run.Status != "aborted" {
		t.Fatalf("%v, %+v", err, run)
	}
	eventually(t, 10*time.Second, func() error {
		if open := n.openWorkflows(t); open > 0 {
			return fmt.Errorf("%d workflows are open", open)
		}
		return nil
	})
	for _, r := range up.of("") {
		if late := r.began.Sub(answered); late > onTheWire+stalls.Worst() {
			t.Errorf("a request began %s after the answer", late)
		}
	}
	res, err := n.api.Results(t.Context(), "loop")
	if err != nil || res.Data == nil || res.Data.Data != nil || len(res.Data.StepResults) != 2 {
		t.Fatalf("the results are %+v, %v", res, err)
	}
	var envelopes []struct{ Success bool }
	decode(t, res.Data.StepResults[1].Data, &envelopes)
	if len(envelopes) < 50 {
		t.Errorf("only %d items stay readable", len(envelopes))
	}
}

// openWorkflows counts the workflows that are running.
func (n *node) openWorkflows(t *testing.T) int64 {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: n.cfg.TemporalAddress, Namespace: workflows.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res, err := c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: "ExecutionStatus = 'Running'"})
	if err != nil {
		t.Fatal(err)
	}
	return res.Count
}

// TestParallelPulls walks over pulls side by side, on a Temporal that allows few events:
// the run continues as new in the middle of its items and of their waits, each page is
// asked for once, and nothing comes before its time.
func TestParallelPulls(t *testing.T) {
	t.Parallel()
	const lanes, pages = 6, 120
	stack := stacktest.Start(t, devstack.Options{TemporalSettings: map[string]string{"limit.historyCount.error": "1500"}})
	settings := workflows.DefaultSettings()
	settings.ContinueCount, settings.ContinueMinAge = 60, 0
	n := startParts(t, configFor(t, stack), app.Parts{Server: true, Worker: true, Settings: &settings})
	var mu sync.Mutex
	waited := map[string]int{}
	asked := newNumbered()
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		lane, _ := strconv.Atoi(q.Get("lane"))
		page, _ := strconv.Atoi(q.Get("cursor"))
		mu.Lock()
		waits := waited[q.Get("lane")]
		if page == 10 {
			waited[q.Get("lane")]++
		}
		mu.Unlock()
		if page == 10 && waits < 3 { // while others go on
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		asked.hit(lane*pages + page)
		if page+1 == pages {
			fmt.Fprintf(w, `{"data":[%d]}`, page)
			return
		}
		fmt.Fprintf(w, `{"data":[%d],"next_cursor":"%d"}`, page, page+1)
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"lanes","steps":[{"id":"each","dataSelector":"(s) => Array.from({length: %d}, (_, i) => i)","concurrency":3,
		"config":{"url":"%s/x?lane=<<currentItem>>&run=<<currentItem>>","queryParams":{"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased"}}}],
		"outputTransform":"(s) => s.each.map((x) => x.success && x.data.data.every((v, i) => v === i) && x.data.data.length)"}`, lanes, up.URL))
	run := n.run(t, tool, v1.RunRequest{RunID: "lanes"})
	if want := "[" + strings.Repeat(fmt.Sprintf("%d,", pages), lanes-1) + fmt.Sprintf("%d]", pages); run.Status != "success" || string(run.Data) != want {
		t.Errorf("the run is a %s: %s%s", run.Status, run.Error, run.Data)
	}
	asked.check(t, lanes*pages, 0, 1)
	for lane := range lanes {
		var last time.Time // end of a refused request
		refused := 0
		for _, r := range up.of(strconv.Itoa(lane)) {
			if !strings.Contains(r.uri, "cursor=10&") && !strings.HasSuffix(r.uri, "cursor=10") {
				continue
			}
			if !last.IsZero() && r.began.Sub(last) < time.Second {
				t.Errorf("lane %d asked again after %s", lane, r.began.Sub(last))
			}
			last = r.ended
			refused++
		}
		if refused != 4 {
			t.Errorf("lane %d asked %d times for its page 10", lane, refused)
		}
	}
	if times := n.executions(t, "lanes"); times < 8 {
		t.Errorf("the run continued as new only %d times", times-1)
	}
}
