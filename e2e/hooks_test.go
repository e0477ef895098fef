package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/api/v1"
	"stepwell/client"
)

var hookCalls = flag.Int("hook.calls", 200, "calls of TestHooksLoseNothing; `make load` takes 2000")

// hookPace is the time between two deliveries: 100 a second.
const hookPace = 10 * time.Millisecond

// webhook is one event that its sender delivers: again and again, by turns at each server, until one
// accepts it.
type webhook struct {
	key      string
	n        int
	run      string // of the answer
	attempts int
	took     time.Duration // from the first attempt to the answer
	err      error         // a refusal, or that nobody accepted it in time
}

// TestHooksLoseNothing: webhooks come at 100 a second while servers and workers are
// killed in turn. Their senders try again with the same key when a connection breaks;
// every tenth delivers everything twice at once. Each key that was answered 202 has one
// run, the same in each answer, and all end well.
func TestHooksLoseNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 2, 2)
	c.save(v1.ToolCreate{ID: "hooked", Steps: []v1.Step{
		c.request("one", "/value", map[string]string{"run": "<<(s) => s.__headers__['idempotency-key']>>", "n": "<<n>>", "delay": "50ms"}),
	}, OutputTransform: "(s) => ({n: s.one.data.n, same: JSON.parse(s.__rawBody__).n === s.n})"})
	n := *hookCalls
	var sent atomic.Int64
	hooks := make([]webhook, n+n/10)
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(hookPace)
		defer tick.Stop()
		for i := range n {
			<-tick.C
			hooks[i] = webhook{key: fmt.Sprintf("hook-%d", i), n: i}
			all.Go(func() { c.deliver(&hooks[i], i) })
			if i%10 == 0 {
				twin := &hooks[n+i/10]
				*twin = hooks[i]
				all.Go(func() { c.deliver(twin, i+1) })
			}
			sent.Add(1)
		}
	})
	for _, event := range []struct {
		after int // of 16 parts
		do    func()
	}{
		{2, c.servers[0].kill}, {4, func() { c.servers[0].start(t) }},
		{5, c.workers[0].kill}, {7, func() { c.workers[0].start(t) }},
		{8, c.servers[1].kill}, {10, func() { c.servers[1].start(t) }},
		{11, c.workers[1].kill}, {13, func() { c.workers[1].start(t) }},
		{14, func() { c.servers[0].kill(); c.workers[0].kill() }},
		{15, func() { c.servers[0].start(t); c.workers[0].start(t) }},
	} {
		if !eventually(time.Minute, func() bool { return int(sent.Load()) >= n*event.after/16 }) {
			t.Fatal("the deliveries stand still")
		}
		event.do()
	}
	all.Wait()
	c.checkHooks(hooks[:n], hooks[n:])
}

// deliver sends one webhook until it is accepted.
func (c *cluster) deliver(s *webhook, server int) {
	began := time.Now()
	for ; time.Since(began) < time.Minute; s.attempts++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		answer, err := c.clients[(server+s.attempts)%len(c.clients)].Hook(ctx, "hooked", client.HookCall{Key: s.key, Body: fmt.Appendf(nil, `{"n":%d}`, s.n)})
		cancel()
		s.err = err
		if err == nil {
			s.run, s.took = answer.RunID, time.Since(began)
			return
		}
		if status := client.Status(err); status != 0 && status != 503 {
			return // refused: nothing that a repeat would cure
		}
		wait(context.Background(), 100*time.Millisecond)
	}
}

// checkHooks looks at each run that was promised, and that there are no others.
func (c *cluster) checkHooks(hooks, twins []webhook) {
	t := c.t
	t.Helper()
	var took []time.Duration
	repeated := 0
	for i := range hooks {
		s := &hooks[i]
		if s.err != nil {
			t.Errorf("%s was not accepted after %d attempts: %v", s.key, s.attempts, s.err)
			continue
		}
		took = append(took, s.took)
		if s.attempts > 0 {
			repeated++
		}
		run := c.ended(pull{id: s.run}, 2*time.Minute)
		var data struct {
			N    int  `json:"n"`
			Same bool `json:"same"`
		}
		if err := json.Unmarshal(run.Data, &data); run.Status != "success" || err != nil || data.N != s.n || !data.Same {
			t.Errorf("%s: run %s ended as %s (%s) with %s", s.key, s.run, run.Status, run.Error, run.Data)
		}
		for what, n := range c.backend.requests(s.key) {
			if n > 3 { // a kill of its worker may repeat what was in flight; all four workers' lives end
				t.Errorf("%s asked %d times for %s", s.key, n, what)
			}
		}
	}
	for i := range twins {
		if first := &hooks[i*10]; twins[i].err != nil || twins[i].run != first.run {
			t.Errorf("%s was delivered twice: %s %v and %s %v", first.key, first.run, first.err, twins[i].run, twins[i].err)
		}
	}
	list, err := c.client.ListRuns(context.Background(), client.Page{Limit: 1}, client.RunFilter{ToolID: "hooked"})
	if err != nil || list.Total != len(hooks) {
		t.Errorf("%v: there are %d runs of %d deliveries", err, list.Total, len(hooks))
	}
	slices.Sort(took)
	t.Logf("%d webhooks, %d of them sent more than once; accepted within %s", len(hooks), repeated, percentiles(took))
}
