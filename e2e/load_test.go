package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/api/v1"
)

// The sizes of the load; `make load` takes the large ones.
var (
	loadGets  = flag.Float64("load.gets", 200, "GET /runs/<id> a second")
	loadLists = flag.Float64("load.lists", 20, "GET /runs a second")
	loadRuns  = flag.Float64("load.runs", 10, "new runs a second")
	loadFor   = flag.Duration("load.for", 3*time.Second, "how long the load lasts")
	loadP99   = flag.Duration("load.p99", time.Second, "within which 99 of 100 reads are answered")
)

// TestReadsUnderLoad: runs are read and listed at a fixed rate while others go on.
func TestReadsUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1)
	c.saveReadable()
	call := newCaller()
	ids := c.finishedRuns(60)
	stored := map[string][]byte{} // as they were read first
	for _, id := range ids {
		stored[id] = call.call(t.Context(), c.bases[0]+"/runs/"+id, "").body
	}
	ids = append(ids, c.runningRuns(15)...)
	read := func(ctx context.Context, i int) error {
		id := ids[i%len(ids)]
		a := call.call(ctx, c.bases[0]+"/runs/"+id, "")
		if a.err != nil || a.status != 200 || !bytes.Contains(a.body, []byte(strconv.Quote(id))) || !readable(a.body) {
			return fmt.Errorf("GET run %s: %d %s %w", id, a.status, a.body[:min(len(a.body), 300)], a.err)
		}
		if first := stored[id]; first != nil && !bytes.Equal(a.body, first) {
			return fmt.Errorf("the ended run %s reads differently now: %s, first: %s", id, a.body, first)
		}
		return nil
	}
	lists := []string{"", "?status=success", "?toolId=one", "?limit=10&page=2"}
	list := func(ctx context.Context, i int) error {
		a := call.call(ctx, c.bases[0]+"/runs"+lists[i%len(lists)], "")
		if a.err != nil || a.status != 200 || !bytes.Contains(a.body, []byte(`"runId"`)) {
			return fmt.Errorf("GET runs: %d %s %w", a.status, a.body[:min(len(a.body), 300)], a.err)
		}
		return nil
	}
	var started atomic.Int64
	start := func(ctx context.Context, i int) error {
		body := fmt.Sprintf(`{"runId":"under-load-%d","inputs":{"run":"under-load-%d","of":4,"gate":0},"options":{"async":true}}`, i, i)
		a := call.call(ctx, c.bases[0]+"/tools/pages/run", body)
		if a.err != nil || a.status != 202 {
			return fmt.Errorf("start a run: %d %s %w", a.status, a.body, a.err)
		}
		started.Add(1)
		return nil
	}

	before, err := cpu(c.servers[0].pid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *loadFor+time.Minute)
	defer cancel()
	var gets, listed, starts rate
	var all sync.WaitGroup
	all.Go(func() { gets = generate(ctx, *loadGets, *loadFor, 256, read) })
	all.Go(func() { listed = generate(ctx, *loadLists, *loadFor, 64, list) })
	all.Go(func() { starts = generate(ctx, *loadRuns, *loadFor, 64, start) })
	all.Wait()
	after, err := cpu(c.servers[0].pid())
	if err != nil {
		t.Fatal(err)
	}
	n := len(gets.latencies) + len(listed.latencies) + len(starts.latencies)
	t.Logf("the server used %s of processor time for %d requests, %s each", after-before, n, ((after - before) / time.Duration(n)).Round(time.Microsecond))
	gets.check(t, "GET /runs/<id>", *loadP99)
	listed.check(t, "GET /runs", *loadP99)
	starts.check(t, "new runs", *loadP99)
	for i := range started.Load() {
		if run := c.ended(pull{id: fmt.Sprintf("under-load-%d", i)}, time.Minute); run.Status != "success" {
			t.Errorf("run under-load-%d ended as %s: %s", i, run.Status, run.Error)
		}
	}
}

// readable reports whether the answer about a run says what it came to, or how far it is.
func readable(body []byte) bool {
	return bytes.Contains(body, []byte(`"data":`)) || bytes.Contains(body, []byte(`"progress":`))
}

// saveReadable saves tools whose data is kept in the different ways: as their step's one
// page, as several pages, as a body of the run's own.
func (c *cluster) saveReadable() {
	pages := c.request("pages", "/pages", map[string]string{"run": "<<run>>", "of": "<<of>>", "cursor": "<<cursor>>", "gate": "<<gate>>"})
	pages.Config.Pagination = &v1.Pagination{Type: "cursorBased", ItemsPath: "items"}
	one := c.request("one", "/value", map[string]string{"run": "<<run>>", "n": "1"})
	c.save(v1.ToolCreate{ID: "pages", Steps: []v1.Step{pages}})
	c.save(v1.ToolCreate{ID: "one", Steps: []v1.Step{one}})
	c.save(v1.ToolCreate{ID: "made", Steps: []v1.Step{one}, OutputTransform: "(s) => ({made: 'x'.repeat(2000), n: s.one.data.n})"})
}

// finishedRuns makes ended runs of each tool of saveReadable.
func (c *cluster) finishedRuns(n int) []string {
	c.t.Helper()
	ids := make([]string, n)
	var all sync.WaitGroup
	for worker := range 6 {
		all.Go(func() {
			for i := worker; i < n; i += 6 {
				ids[i] = fmt.Sprintf("read-%d", i)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				run, err := c.client.Run(ctx, []string{"pages", "one", "made"}[i%3], v1.RunRequest{RunID: ids[i],
					Inputs: json.RawMessage(`{"of":4,"gate":0,"run":` + strconv.Quote(ids[i]) + `}`)})
				cancel()
				if err != nil || run.Status != "success" {
					c.t.Errorf("run %s to read: %v", ids[i], err)
				}
			}
		})
	}
	all.Wait()
	return ids
}

// runningRuns makes runs of many pages that go on until the test ends.
func (c *cluster) runningRuns(n int) []string {
	c.t.Helper()
	const pages = 200
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("running-%d", i)
		inputs := fmt.Appendf(nil, `{"run":%q,"of":%d,"gate":%d}`, ids[i], pages, pages)
		if _, err := c.client.Run(ctx, "pages", v1.RunRequest{RunID: ids[i], Inputs: inputs, Options: &v1.RunOptions{Async: true}}); err != nil {
			c.t.Fatal("start a run to read: ", err)
		}
	}
	for _, id := range ids {
		c.backend.asked(c.t, id, strconv.Itoa(pages), 1)
	}
	return ids
}
