package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"stepwell/api/v1"
)

// refusedWithin is how early a full server says so.
const refusedWithin = time.Second

// TestOverloadIsRefusedEarly: a server that is full says so at once, with Retry-After;
// what it refused does not exist, and what it accepted ends well.
func TestOverloadIsRefusedEarly(t *testing.T) {
	t.Parallel()
	const places = 20
	c := startCluster(t, 1, 1, fmt.Sprintf("STEPWELL_MAX_WAITING=%d", places), "STEPWELL_MAX_IN_FLIGHT=4")
	c.save(v1.ToolCreate{ID: "held", Steps: []v1.Step{
		c.request("one", "/value", map[string]string{"run": "<<run>>", "n": "1", "gate": "<<gate>>"})}})
	o := &overload{cluster: c, call: newCaller()}

	// All places are taken by callers whose runs are held.
	var waiting sync.WaitGroup
	for i := range places {
		waiting.Go(func() { o.start(fmt.Sprintf("held-%d", i), 1, false) })
	}
	for i := range places {
		c.backend.asked(t, fmt.Sprintf("held-%d", i), "1", 1)
	}
	o.burst("full", 100, true)
	if o.count(503) != 100 {
		t.Errorf("a full server refused %d of 100", o.count(503))
	}
	if _, err := c.client.GetRun(t.Context(), "held-0"); err != nil {
		t.Error("a server that is full of waiting callers gives no run: ", err)
	}
	for i := range places {
		c.backend.open(fmt.Sprintf("held-%d", i))
	}
	waiting.Wait()
	if o.count(200) != places {
		t.Errorf("%d of %d waiting callers got their run", o.count(200), places)
	}

	// Many more at once than there are places: each is accepted or refused.
	o.burst("burst", 300, false)
	t.Logf("of 300 at once %d were accepted", o.count(202))
	if o.count(202) == 0 {
		t.Error("an overloaded server accepted none")
	}
	o.reconcile()
	o.floodReads("held-0")
}

// overload collects what became of many starts.
type overload struct {
	*cluster
	call *caller

	mu      sync.Mutex
	answers map[string]answer // by run
}

// start starts a run, synchronously or not.
func (o *overload) start(id string, gate int, async bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	body := fmt.Sprintf(`{"runId":%q,"inputs":{"run":%q,"gate":%d},"options":{"async":%t}}`, id, id, gate, async)
	a := o.call.call(ctx, o.bases[0]+"/tools/held/run", body)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers == nil {
		o.answers = map[string]answer{}
	}
	o.answers[id] = a
	o.checkAnswer(id, a)
}

// checkAnswer checks that a refusal is early and says when to try again.
func (o *overload) checkAnswer(what string, a answer) {
	switch {
	case a.err != nil:
		o.t.Errorf("%s: %v", what, a.err)
	case a.status == 200 || a.status == 202:
	case a.status != 503 || a.retryAfter == "":
		o.t.Errorf("%s: %d with Retry-After %q: %s", what, a.status, a.retryAfter, a.body)
	case a.took > refusedWithin+*slack:
		o.t.Errorf("%s was refused after %s", what, a.took)
	}
}

// burst starts runs all at once and waits for the answers.
func (o *overload) burst(name string, n int, waits bool) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { o.start(fmt.Sprintf("%s-%d", name, i), 0, !waits) })
	}
	all.Wait()
}

// count gives how many starts were answered with a status.
func (o *overload) count(status int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, a := range o.answers {
		if a.status == status {
			n++
		}
	}
	return n
}

// reconcile checks that accepted runs end well and refused ones do not exist.
func (o *overload) reconcile() {
	o.t.Helper()
	for id, a := range o.answers {
		if a.status == 503 {
			if got := o.call.call(o.t.Context(), o.bases[0]+"/runs/"+id, ""); got.status != 404 {
				o.t.Errorf("the refused run %s: %d %s", id, got.status, got.body)
			}
			if n := len(o.backend.requests(id)); n > 0 {
				o.t.Errorf("the refused run %s sent %d requests", id, n)
			}
			continue
		}
		if run := o.ended(pull{id: id}, time.Minute); run.Status != "success" {
			o.t.Errorf("run %s ended as %s: %s", id, run.Status, run.Error)
		}
	}
}

// floodReads reads by many callers at once until some are refused.
func (o *overload) floodReads(id string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), 10*time.Second)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	refused, answered := 0, 0
	for range 64 {
		all.Go(func() {
			for ctx.Err() == nil {
				a := o.call.call(o.t.Context(), o.bases[0]+"/runs?limit=100", "")
				mu.Lock()
				o.checkAnswer("a list", a)
				if a.status == 503 {
					refused++
				} else {
					answered++
				}
				if refused > 0 && answered > 0 {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	o.t.Logf("64 callers of lists: %d answered, %d refused", answered, refused)
	if refused == 0 || answered == 0 {
		o.t.Error("a flood of reads was not both answered and refused")
	}
	if got := o.call.call(o.t.Context(), o.bases[0]+"/runs/"+id, ""); got.status != 200 {
		o.t.Errorf("after the flood: %d %s", got.status, got.body)
	}
}
