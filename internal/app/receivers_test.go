package app_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// TestDeadReceivers has 20 receivers that take a callback and never answer: they delay
// none of a live one.
func TestDeadReceivers(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.tool(t, one)
	var hanging atomic.Int32 // an attempt that ran into its timeout comes again
	release := make(chan struct{})
	dead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hanging.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler) // never an answer
	}))
	t.Cleanup(dead.Close)
	t.Cleanup(func() { close(release) })
	for i := range 20 {
		n.run(t, "one", calls(fmt.Sprintf("%s/%d", dead.URL, i)))
	}
	eventually(t, time.Minute, func() error {
		if n := hanging.Load(); n < 20 {
			return fmt.Errorf("%d receivers were called", n)
		}
		return nil
	})
	live := startReceiver(t, nil)
	for range 100 {
		n.run(t, "one", calls(live.URL))
	}
	var took []time.Duration
	for _, call := range live.wait(t, 100) {
		took = append(took, call.at.Sub(call.Metadata.CompletedAt.Time))
	}
	slices.Sort(took)
	t.Logf("from the end of a run to its callback: median %s, 99th percentile %s", took[50], took[98])
	// The dead ones hold for 15 s; busy machines get some room.
	if took[98] > stacktest.Promised(time.Second) {
		t.Errorf("live callbacks wait for the dead: the 99th percentile is %s", took[98])
	}
}

// TestCallbackOutlives takes the worker, Temporal and Postgres away while callbacks wait:
// the schedule goes on, under the same ids, to its end.
func TestCallbackOutlives(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Options{})
	cfg := configFor(t, stack)
	parts := app.Parts{Server: true, Worker: true, Settings: scaled(0.0001)} // 0.5 ms, 30 ms, 180 ms, 0.7 s, 1.8 s, 3.6 s, 3.6 s
	n := startParts(t, cfg, parts)
	n.tool(t, one)
	r := startReceiver(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
	id := n.run(t, "one", calls(r.URL)).RunID
	r.wait(t, 5)
	n.stop()
	n = startParts(t, cfg, parts)
	for _, pid := range []int{stack.TemporaldPID(), stack.PostgresPID()} { // the stack starts them again
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	r.wait(t, 8)
	d := n.delivery(t, id, "failed")
	if len(d.Attempts) != 8 {
		t.Errorf("%d attempts are recorded", len(d.Attempts))
	}
	for _, call := range r.got() {
		if call.id != d.WebhookID {
			t.Errorf("a call has the id %s, not %s", call.id, d.WebhookID)
		}
	}
}

// TestCallbackEgress sends no callback where requests may not go.
func TestCallbackEgress(t *testing.T) {
	t.Parallel()
	n := startScaled(t, 0.00001, func(c *config.Config) { c.Egress = "public" })
	n.tool(t, one)
	r := startReceiver(t, nil)
	d := n.delivery(t, n.run(t, "one", calls(r.URL)).RunID, "failed")
	if len(r.got()) != 0 || len(d.Attempts) != 8 || d.Attempts[0].ResponseStatus != 0 || d.Attempts[0].Error == "" {
		t.Errorf("%d calls; the delivery is %+v", len(r.got()), d)
	}
}

// TestCancelInChain cancels the first run of a chain when the second has begun: that one
// is a run of its own, and goes on.
func TestCancelInChain(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	release := make(chan struct{})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		fmt.Fprint(w, `{}`)
	})
	n.tool(t, `{"id":"first","webhookUrl":"tool:second","outputTransform":"(s) => 1"}`)
	n.tool(t, fmt.Sprintf(`{"id":"second","steps":[{"id":"get","config":{"url":"%s/?run=second"}}]}`, up.URL))
	run := n.run(t, "first", v1.RunRequest{}).RunID
	if _, err := n.api.Cancel(t.Context(), run); client.Status(err) != http.StatusBadRequest {
		t.Errorf("a success was cancelled: %v", err)
	}
	eventually(t, 20*time.Second, func() error {
		if len(up.of("second")) == 0 {
			return errors.New("the second run has not begun")
		}
		return nil
	})
	if err := n.Service.Workflows.CancelRun(t.Context(), n.org(t), run); err != nil { // as an operator of Temporal might
		t.Fatal(err)
	}
	close(release)
	if all := n.chain(t, run); len(all) != 2 || all[0].Status != "success" || all[1].Status != "success" {
		t.Errorf("%d runs, the last is %+v", len(all), all[len(all)-1])
	}
}

// org is the id of the node's organization.
func (n *node) org(t *testing.T) string {
	t.Helper()
	me, err := n.api.Me(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return me.OrgID
}
