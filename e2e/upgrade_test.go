package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stepwell/api/v1"
)

// openRunLimit is how long an open run may take under another release: Temporal gives
// work of a killed worker to another after up to 11 s, and its claims end later.
const openRunLimit = 90 * time.Second

// TestUpgradeAndRollback: runs of every shape that are open while one release takes the
// place of another go on under it, there and back, and what was stored reads the same.
func TestUpgradeAndRollback(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name    string
		long    bool // only on a machine of its own
		replace func(*release, func() *release) *release
	}{
		{"killed", false, func(old *release, start func() *release) *release {
			old.server.kill()
			old.worker.kill()
			return start()
		}},
		{"stopped", true, func(old *release, start func() *release) *release {
			old.stop()
			return start()
		}},
		{"side by side", false, func(old *release, start func() *release) *release {
			now := start()
			old.stop()
			return now
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			if way.long && *slack > 0 {
				t.Skip("`make load` does it")
			}
			there := programsBefore(t)
			// A held request is not worth waiting for: it is sent again.
			c := newCluster(t, "STEPWELL_STOP_WAIT=2s")
			last := c.startRelease("before1", there)
			c.saveShapes()
			finished := c.begin("finished", false)
			c.checkAll(finished)
			seen := c.read(finished)
			upgraded, twice := c.begin("upgraded", true), c.begin("twice", true)

			last = way.replace(last, func() *release { return c.startRelease("now", programs(t)) })
			c.sameAs(seen, finished)
			rolledBack := c.begin("back", true)
			c.release(upgraded)
			c.checkAll(upgraded)

			way.replace(last, func() *release { return c.startRelease("before2", there) })
			c.sameAs(seen, finished)
			c.release(append(twice, rolledBack...))
			c.checkAll(twice)
			c.checkAll(rolledBack)
			again := c.begin("again", false)
			c.checkAll(again)
			c.checkLogs()
		})
	}
}

// release is a server and a worker of one release.
type release struct {
	t              testing.TB
	server, worker *process
}

// startRelease starts programs of a directory; the cluster's client calls them from now on.
func (c *cluster) startRelease(name, dir string) *release {
	c.t.Helper()
	c.client = nil
	address := freeAddress(c.t)
	r := &release{c.t, c.process("server-"+name, "server", nil, append(c.env[:len(c.env):len(c.env)], "STEPWELL_LISTEN="+address)),
		c.process("worker-"+name, "worker", nil, c.env)}
	for _, p := range []*process{r.server, r.worker} {
		p.args[0] = filepath.Join(dir, filepath.Base(p.args[0]))
		p.start(c.t)
	}
	c.client = newLoadClient("http://" + address + "/v1")
	return r
}

// stop asks both to stop and waits for it.
func (r *release) stop() {
	r.t.Helper()
	for _, p := range []*process{r.server, r.worker} {
		p.signal(r.t, syscall.SIGTERM)
	}
	for _, p := range []*process{r.server, r.worker} {
		if err, ok := p.wait(20 * time.Second); !ok || err != nil {
			r.t.Errorf("%s did not stop well after SIGTERM: %v", p.name, err)
			p.kill()
		}
	}
}

// runShape is a kind of run that can be held open in the middle.
type runShape struct {
	tool  string
	asks  string // what it asks for where it is held
	times int    // how often it has asked for it when it is held
	data  string // of its end
}

var runShapes = []runShape{
	{"pull", "3", 1, `{"items":[1,2,3,4,5,6,7,8,9,10],"next_cursor":"5"}`}, // the first page is slow: regular activities
	{"busy", "busy", 2, `{"n":1}`},                                         // waits for a Retry-After, a second time
	{"loop", "5", 1, `[1,2,3,4,5,6,7,8]`},
	{"effect", "7", 1, `{"n":7}`}, // a POST that was sent and is not answered
	{"steps", "12", 1, `{"sum":22}`},
}

// saveShapes saves the tools of runShapes.
func (c *cluster) saveShapes() {
	pull := c.request("pull", "/pages", map[string]string{"run": "<<run>>", "of": "5", "cursor": "<<cursor>>",
		"slow": "<<slow>>", "gate": "3"})
	pull.Config.Pagination = &v1.Pagination{Type: "cursorBased", ItemsPath: "items"}
	loop := c.request("loop", "/value", map[string]string{"run": "<<run>>", "n": "<<currentItem>>", "gate": "5"})
	loop.DataSelector, loop.Concurrency = "() => [1,2,3,4,5,6,7,8]", 3
	effect := c.request("effect", "/value", map[string]string{"run": "<<run>>", "n": "7", "gate": "7"})
	effect.Config.Method, effect.Config.Body, effect.Idempotent = "POST", `{"a":1}`, true
	for _, tool := range []v1.ToolCreate{
		{ID: "pull", Steps: []v1.Step{pull}},
		{ID: "busy", Steps: []v1.Step{c.request("busy", "/busy", map[string]string{"run": "<<run>>"})}},
		{ID: "loop", Steps: []v1.Step{loop}, OutputTransform: "(s) => s.loop.map((x) => x.data.n)"},
		{ID: "effect", Steps: []v1.Step{effect}},
		{ID: "steps", Steps: []v1.Step{
			c.request("first", "/value", map[string]string{"run": "<<run>>", "n": "10"}),
			{ID: "twice", Config: v1.StepConfig{Type: "transform", TransformCode: "(s) => s.first.data.n + 2"}},
			c.request("second", "/value", map[string]string{"run": "<<run>>", "n": "<<(s) => s.twice.data>>", "gate": "12"}),
		}, OutputTransform: "(s) => ({sum: s.first.data.n + s.second.data.n})"},
	} {
		c.save(tool)
	}
}

// open is a run of a shape.
type openRun struct {
	runShape
	id string
}

// begin starts a run of each shape. Those that are held are begun when each is in the
// middle; the others are not held.
func (c *cluster) begin(name string, held bool) []openRun {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var runs []openRun
	slow := "0s"
	if held {
		slow = "2100ms"
	}
	for _, shape := range runShapes {
		r := openRun{shape, name + "-" + shape.tool}
		runs = append(runs, r)
		if !held {
			c.backend.open(r.id)
		}
		inputs, err := json.Marshal(map[string]string{"run": r.id, "slow": slow})
		if err != nil {
			c.t.Fatal(err)
		}
		if _, err := c.client.Run(ctx, shape.tool, v1.RunRequest{RunID: r.id, Inputs: inputs, Options: &v1.RunOptions{Async: true}}); err != nil {
			c.t.Fatalf("start the run %s: %v", r.id, err)
		}
	}
	for _, r := range runs {
		if held {
			c.backend.asked(c.t, r.id, r.asks, r.times)
		}
	}
	return runs
}

// release lets held runs go on.
func (c *cluster) release(runs []openRun) {
	for _, r := range runs {
		c.backend.open(r.id)
	}
}

// checkAll waits for the end of runs and checks their data.
func (c *cluster) checkAll(runs []openRun) {
	c.t.Helper()
	for _, r := range runs {
		run := c.ended(pull{id: r.id}, openRunLimit)
		if run.Status != "success" {
			c.t.Errorf("run %s ended as %s: %s", r.id, run.Status, run.Error)
			continue
		}
		var data bytes.Buffer
		if err := json.Compact(&data, run.Data); err != nil || data.String() != r.data {
			c.t.Errorf("run %s has the data %s, not %s (%v)", r.id, run.Data, r.data, err)
		}
		for what, n := range c.backend.requests(r.id) {
			if what != r.asks && n > 1 {
				c.t.Errorf("run %s asked %d times for %s, which was not in flight when a release went", r.id, n, what)
			}
		}
	}
}

// read gives the answers about ended runs, byte by byte.
func (c *cluster) read(runs []openRun) []string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var all []string
	for _, r := range runs {
		run, err := c.client.GetRun(ctx, r.id)
		if err != nil {
			c.t.Fatalf("read the run %s: %v", r.id, err)
		}
		run.ResultStorageURI = "" // holds the server's address
		text, err := json.Marshal(run)
		if err != nil {
			c.t.Fatal(err)
		}
		var results bytes.Buffer
		if err := c.client.ResultsTo(ctx, r.id, &results); err != nil {
			c.t.Fatalf("read the results of the run %s: %v", r.id, err)
		}
		all = append(all, string(text), results.String())
	}
	return all
}

// sameAs checks that ended runs read as they did.
func (c *cluster) sameAs(seen []string, runs []openRun) {
	c.t.Helper()
	for i, text := range c.read(runs) {
		if text != seen[i] {
			c.t.Errorf("run %s reads differently under the other release:\n%s\n%s", runs[i/2].id, seen[i], text)
		}
	}
}

// checkLogs checks that no worker met a history that its code does not understand.
func (c *cluster) checkLogs() {
	c.t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.dir, "worker-*.log"))
	if err != nil || len(logs) == 0 {
		c.t.Fatal("the logs of the workers are not there: ", err)
	}
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "TMPRL1100") || strings.Contains(strings.ToLower(line), "nondeterminis") {
				c.t.Errorf("%s: %s", filepath.Base(name), strconv.QuoteToGraphic(strings.TrimSpace(line)))
				break
			}
		}
	}
}
