package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
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

// long asks for the long forms of tests: minutes in place of seconds.
var long = flag.Bool("long", false, "run the long forms of tests")

// recordsPerPage is the number of records of a page of the big pull.
const recordsPerPage = 100

// flatMemory is how much a worker's memory may grow while a run of any length goes on.
const flatMemory = 48 << 20

// split is a server in this process and a worker in one of its own, which can be killed.
type split struct {
	*node
	worker *workerProcess
}

// startSplit starts both; runs continue as new after few activities.
func startSplit(t *testing.T, continueCount int) *split {
	t.Helper()
	// What was committed must survive the death of Postgres, if not that of the machine.
	stack := stacktest.Start(t, devstack.Options{PostgresSettings: map[string]string{"synchronous_commit": "on"}})
	cfg := configFor(t, stack)
	settings := workflows.DefaultSettings()
	settings.ContinueCount, settings.ContinueMinAge = continueCount, 0
	s := &split{node: startParts(t, cfg, app.Parts{Server: true, Settings: &settings})}
	s.stack = stack
	s.worker = startWorker(t, cfg)
	return s
}

// crash kills the worker and starts another.
func (s *split) crash(t *testing.T) {
	t.Helper()
	s.worker.kill()
	s.worker = startWorker(t, s.cfg)
}

// executions counts how often a run's workflow began, continued as new or not.
func (n *node) executions(t *testing.T, run string) int {
	t.Helper()
	me, err := n.api.Me(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{HostPort: n.cfg.TemporalAddress, Namespace: workflows.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	count := 0
	// The list lags behind; the last execution is in it when none of it is running.
	eventually(t, 10*time.Second, func() error {
		res, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf("WorkflowId = '%s'", workflows.RunID(me.OrgID, run)), PageSize: 1000})
		if err != nil {
			return err
		}
		count = len(res.Executions)
		for _, e := range res.Executions {
			if e.CloseTime == nil {
				return errors.New("a workflow of the run is still open")
			}
		}
		if count == 0 {
			return errors.New("no workflow of the run is listed")
		}
		return nil
	})
	return count
}

// numbered is an upstream of numbered things (pages, items): it counts how often it is
// asked for each, and tells a test when one is reached.
type numbered struct {
	mu      sync.Mutex
	hits    map[int]int
	total   int
	reached map[int]chan struct{}
}

func newNumbered() *numbered { return &numbered{hits: map[int]int{}, reached: map[int]chan struct{}{}} }

func (u *numbered) hit(i int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hits[i]++
	u.total++
	if c := u.reached[u.total]; c != nil {
		close(c)
		delete(u.reached, u.total)
	}
}

// at gives a channel that is closed with request number n.
func (u *numbered) at(n int) <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	c := make(chan struct{})
	if u.total >= n {
		close(c)
		return c
	}
	u.reached[n] = c
	return c
}

// await waits for request number n.
func (u *numbered) await(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-u.at(n):
	case <-timeout.C:
		t.Fatalf("request %d did not come within %s", n, limit)
	}
}

// check checks that each of the first n things was asked for, and how many more
// requests there were.
func (u *numbered) check(t *testing.T, n, extra, most int) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	repeated := 0
	for i := range n {
		if u.hits[i] == 0 || u.hits[i] > most {
			t.Errorf("%d was asked for %d times", i, u.hits[i])
		}
		repeated += max(0, u.hits[i]-1)
	}
	if len(u.hits) != n {
		t.Errorf("%d things were asked for, of %d", len(u.hits), n)
	}
	if repeated > extra {
		t.Errorf("%d requests were repeated, at most %d may be", repeated, extra)
	}
	t.Logf("%d requests for %d things", u.total, n)
}

// TestBigPull pulls pages by cursor while its worker is killed three times: complete, in
// order, continued as new, each page asked for once but for those in flight, with flat
// memory.
func TestBigPull(t *testing.T) {
	t.Parallel()
	pages, continueCount := 1000, 50
	if *long {
		pages, continueCount = 10_000, 500
	}
	s := startSplit(t, continueCount)
	asked := newNumbered()
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		asked.hit(page)
		_, _ = w.Write(bigPage(page, pages))
	})
	tool := s.tool(t, fmt.Sprintf(`{"id":"big","steps":[{"id":"orders","config":{"url":"%s/orders","queryParams":{"cursor":"<<cursor>>"},
		"pagination":{"type":"cursorBased","pageSize":%d,"cursorPath":"next_cursor"}}}]}`, up.URL, recordsPerPage))
	began := time.Now()
	s.run(t, tool, v1.RunRequest{RunID: "big", Options: &v1.RunOptions{Async: true}})
	for kill := range 3 {
		moment := pages/10 + kill*pages/5 + rand.IntN(pages/10)
		asked.await(t, moment, time.Minute)
		s.crash(t)
		t.Logf("%.1fs: killed the worker at request %d", time.Since(began).Seconds(), moment)
	}
	asked.await(t, pages*6/10+100, time.Minute)
	before, watch := memory(t, s.worker.cmd.Process.Pid), sample(t, s.worker.cmd.Process.Pid)
	run := s.waitFinal(t, "big", 3*time.Minute)
	most := watch.end()
	t.Logf("%.1fs: ended; memory %d MiB, then at most %d MiB", time.Since(began).Seconds(), before>>20, most>>20)
	if run.Status != "success" {
		t.Fatalf("the run ended as %s: %s", run.Status, run.Error)
	}
	if most > before+flatMemory {
		t.Errorf("memory grew from %d to %d MiB", before>>20, most>>20)
	}
	asked.check(t, pages, 3, 2)
	s.checkBig(t, "big", pages)
	if n := s.executions(t, "big"); n <= 10 {
		t.Errorf("the run continued as new only %d times", n-1)
	} else {
		t.Logf("continued as new %d times", n-1)
	}
}

// bigPage is a page of records of about 100 bytes, counted through all pages.
func bigPage(page, pages int) []byte {
	out := []byte(`{"data":[`)
	for i := range recordsPerPage {
		if i > 0 {
			out = append(out, ',')
		}
		n := page*recordsPerPage + i
		out = fmt.Appendf(out, `{"n":%d,"id":"ord_%08d","customer":"cus_%05d","note":"a record of the usual length, %d"}`, n, n, n%977, n*7)
	}
	if page+1 < pages {
		return fmt.Appendf(out, `],"next_cursor":"%d"}`, page+1)
	}
	return append(out, `],"next_cursor":null}`...)
}

// checkBig reads the results as a stream: every record is there, in order.
func (n *node) checkBig(t *testing.T, run string, pages int) {
	t.Helper()
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(n.api.ResultsTo(context.WithoutCancel(t.Context()), run, pw)) }()
	defer pr.Close()
	d := json.NewDecoder(pr)
	for { // up to the array of the run's data
		token, err := d.Token()
		if err != nil {
			t.Fatal("the results hold no records: ", err)
		}
		if delim, ok := token.(json.Delim); ok && delim == '[' {
			break
		}
	}
	count := 0
	for d.More() {
		var record struct{ N int }
		if err := d.Decode(&record); err != nil {
			t.Fatalf("record %d: %v", count, err)
		}
		if record.N != count {
			t.Fatalf("record %d is number %d", count, record.N)
		}
		count++
	}
	if count != pages*recordsPerPage {
		t.Errorf("%d records, want %d", count, pages*recordsPerPage)
	}
	res, err := n.api.GetRun(t.Context(), run)
	if err != nil || res.Data != nil || !strings.Contains(res.ResultStorageURI, run) {
		t.Errorf("GET shows a large run as %d bytes of data, %q, %v", len(res.Data), res.ResultStorageURI, err)
	}
}
