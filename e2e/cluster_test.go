package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"stepwell/api/v1"
	"stepwell/client"
)

var clusterRuns = flag.Int("cluster.runs", 200, "runs of TestClusterLosesNothing; `make load` takes 2000")

// lateAnswer is how much longer than its run a synchronous caller of a living server
// may wait.
const lateAnswer = time.Second

// asker is one caller's view of one run.
type asker struct {
	id        string
	n         int
	server    int // which was called
	sync      bool
	run       *v1.Run // of the answer
	err       error
	began     time.Time
	took      time.Duration
	delay     time.Duration
	completed time.Time
}

// TestClusterLosesNothing: of two servers and two workers one each is killed while many
// runs are under way. Every run that was accepted ends well, also when its answer was
// lost, and who waits at the living server gets the answer at once.
func TestClusterLosesNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 2)
	c.saveSum()
	n := *clusterRuns
	asked := c.askMany(n, 48, random(t), map[int]func(){
		n / 4:     c.servers[0].kill,
		n / 2:     func() { c.servers[0].start(t) },
		n * 5 / 8: c.workers[0].kill,
		n * 3 / 4: func() { c.workers[0].start(t) },
	})
	c.client = c.clients[1]
	lost := 0
	for i := range asked {
		lost += c.reconcile(&asked[i])
	}
	t.Logf("%d runs, %d of them were never accepted", len(asked), lost)
	if lost > len(asked)/2+48 { // the callers of the killed server
		t.Errorf("%d runs were never accepted", lost)
	}
	c.checkWaits(asked, 1)
}

// TestAnswersWithoutNotices: synchronous callers get their answers in time, too, when
// no notice of the worker reaches the server.
func TestAnswersWithoutNotices(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, "STEPWELL_LISTEN_DATABASE_URL=postgres://nobody@127.0.0.1:1/nothing")
	c.saveSum()
	asked := c.askMany(60, 8, random(t), nil)
	for i := range asked {
		if c.reconcile(&asked[i]) > 0 {
			t.Errorf("run %s was not accepted: %v", asked[i].id, asked[i].err)
		}
	}
	c.checkWaits(asked, 0)
}

// saveSum saves a tool of two requests, each with a delay, the second made of the
// first's answer.
func (c *cluster) saveSum() {
	c.save(v1.ToolCreate{ID: "sum", Steps: []v1.Step{
		c.request("one", "/value", map[string]string{"run": "<<run>>", "n": "<<n>>", "delay": "<<delay>>"}),
		c.request("two", "/value", map[string]string{"run": "<<run>>", "n": "<<(s) => s.one.data.n + 1>>", "delay": "<<delay>>"}),
	}, OutputTransform: "(s) => ({sum: s.one.data.n + s.two.data.n})"})
}

// askMany starts runs by some callers at once, half of them synchronous, by turns at
// each server, and calls what is to happen when so many have begun.
func (c *cluster) askMany(n, callers int, r *rand.Rand, at map[int]func()) []asker {
	asked := make([]asker, n)
	for i := range asked {
		asked[i] = asker{id: fmt.Sprintf("cluster-%d", i), n: i, server: i % len(c.clients), sync: i/len(c.clients)%2 == 0,
			delay: time.Duration(r.IntN(250)) * time.Millisecond}
	}
	next := make(chan *asker)
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for a := range next {
				c.ask(a)
			}
		})
	}
	for i := range asked {
		if f := at[i]; f != nil {
			f()
		}
		next <- &asked[i]
	}
	close(next)
	all.Wait()
	return asked
}

// ask sends one request and waits for its answer.
func (c *cluster) ask(a *asker) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	inputs := fmt.Appendf(nil, `{"run":%q,"n":%d,"delay":%q}`, a.id, a.n, a.delay)
	a.began = time.Now()
	a.run, a.err = c.clients[a.server].Run(ctx, "sum", v1.RunRequest{RunID: a.id, Inputs: inputs, Options: &v1.RunOptions{Async: !a.sync}})
	a.took = time.Since(a.began)
}

// reconcile checks one run by its id, whatever its caller heard of it. It gives 1 when
// the run was never accepted, which only a broken call may be.
func (c *cluster) reconcile(a *asker) int {
	c.t.Helper()
	if a.err != nil {
		if status := client.Status(a.err); status != 0 {
			c.t.Errorf("run %s: %v", a.id, a.err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := c.client.GetRun(ctx, a.id); client.Status(err) == 404 {
			if n := len(c.backend.requests(a.id)); n > 0 {
				c.t.Errorf("run %s is not recorded, but sent %d requests", a.id, n)
			}
			return 1
		}
	}
	run := c.ended(pull{id: a.id}, 2*time.Minute)
	a.completed = run.Metadata.CompletedAt.Time
	var data struct {
		Sum int `json:"sum"`
	}
	if err := json.Unmarshal(run.Data, &data); run.Status != "success" || err != nil || data.Sum != 2*a.n+1 {
		c.t.Errorf("run %s ended as %s (%s) with %s, not with the sum %d", a.id, run.Status, run.Error, run.Data, 2*a.n+1)
	}
	if a.err == nil && a.sync && a.run.Status != "success" {
		c.t.Errorf("the synchronous caller of run %s was told %s", a.id, a.run.Status)
	}
	for what, n := range c.backend.requests(a.id) {
		if n > 2 { // one kill of its worker may repeat what was in flight
			c.t.Errorf("run %s asked %d times for %s", a.id, n, what)
		}
	}
	return 0
}

// checkWaits checks that who waited at a server that lived got the answer when the run
// had ended. All clocks are this machine's.
func (c *cluster) checkWaits(asked []asker, living int) {
	c.t.Helper()
	var over, runs []time.Duration
	for _, a := range asked {
		if a.err != nil || !a.sync || a.server != living {
			continue
		}
		ran := a.completed.Sub(a.began)
		runs, over = append(runs, ran), append(over, a.took-ran)
		if a.took-ran > lateAnswer+*slack {
			c.t.Errorf("the caller of run %s waited %s longer than the run took (%s)", a.id, a.took-ran, ran)
		}
	}
	slices.Sort(over)
	slices.Sort(runs)
	c.t.Logf("%d synchronous callers of the living server: runs took %s; the answer came later by %s", len(over), percentiles(runs), percentiles(over))
	if len(over) == 0 {
		c.t.Error("no synchronous caller of the living server got an answer")
	}
}

// percentiles describes sorted durations.
func percentiles(d []time.Duration) string {
	if len(d) == 0 {
		return "nothing"
	}
	text := ""
	for _, p := range []float64{50, 95, 99, 100} {
		at := min(len(d)-1, int(float64(len(d))*p/100))
		text += " p" + strconv.Itoa(int(p)) + "=" + d[at].Round(100*time.Microsecond).String()
	}
	return text[1:]
}
