package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/service"
)

// waiters is how many runs an upstream makes wait at once.
const waiters = 200

// TestWaitsHoldNothing makes 200 runs wait for an upstream: meanwhile another
// organization's runs are as fast as before, though there are few slots, and a restart of
// everything changes nothing but the process.
func TestWaitsHoldNothing(t *testing.T) {
	t.Parallel()
	var until time.Time // all shall wait
	var asked sync.Map  // seconds to wait that runs were told with their first request
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		run := r.URL.Query().Get("run")
		seconds := int(time.Until(until)/time.Second) + 1
		if _, again := asked.LoadOrStore(run, seconds); again || run == "other" {
			fmt.Fprintf(w, `{"run":%q}`, run)
			return
		}
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		w.WriteHeader(http.StatusTooManyRequests)
	})
	options := devstack.Options{DataDir: t.TempDir()}
	stack := stacktest.Start(t, options)
	cfg := configFor(t, stack)
	cfg.WorkerSlots = 4
	n := startParts(t, cfg, app.Parts{Server: true, Worker: true})
	key, err := service.CreateOrganization(t.Context(), n.Service.Store, "other")
	if err != nil {
		t.Fatal(err)
	}
	other := *n
	other.api = client.New(n.url, key)
	const document = `{"id":"ask","steps":[{"id":"a","config":{"url":"%s/x?run=<<run>>"}},{"id":"b","modify":true,"config":{"url":"%s/y?run=<<run>>"}}]}`
	tool := n.tool(t, fmt.Sprintf(`{"id":"ask","steps":[{"id":"a","config":{"url":"%s/x?run=<<run>>"}}]}`, up.URL))
	other.tool(t, fmt.Sprintf(document, up.URL, up.URL))
	idle := other.median(t)

	patience := 8*time.Second + 100*idle // a busy machine needs more to start all and to measure
	if *long {
		patience += 15 * time.Second
	}
	until = time.Now().Add(patience)
	var starting sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range waiters {
		starting.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id := fmt.Sprintf("wait-%d", i)
			if _, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: id, Inputs: fmt.Appendf(nil, `{"run":%q}`, id), Options: &v1.RunOptions{Async: true}}); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	eventually(t, patience/2, func() error { return n.allWait(t.Context()) })
	busy, most := other.median(t), idle*3/2
	if !*long {
		most = idle * 4 // other tests run beside
	}
	if busy > most { // the machine may have been busy with something else
		busy = min(busy, other.median(t))
	}
	if err := n.allWait(t.Context()); err != nil {
		t.Errorf("the waits were over before the measurement: %v", err)
	}
	t.Logf("another organization's runs: %s idle, %s while %d runs wait", idle, busy, waiters)
	if busy > most {
		t.Errorf("another organization's runs take %s while %d runs wait, %s without", busy, waiters, idle)
	}

	n.stop()
	if err := stack.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	stack = stacktest.Start(t, options)
	cfg.DatabaseURL, cfg.TemporalAddress = stack.DatabaseURL(), stack.TemporalAddress()
	n = startParts(t, cfg, app.Parts{Server: true, Worker: true})
	for i := range waiters {
		id := fmt.Sprintf("wait-%d", i)
		if run := n.waitFinal(t, id, patience+30*time.Second); run.Status != "success" {
			t.Fatalf("%s ended as %s: %s", id, run.Status, run.Error)
		}
		requests := up.of(id)
		if len(requests) != 2 {
			t.Fatalf("%s sent %d requests", id, len(requests))
		}
		seconds, _ := asked.Load(id)
		if waited := requests[1].began.Sub(requests[0].ended); waited < time.Duration(seconds.(int))*time.Second {
			t.Errorf("%s was told to wait %d s and asked again after %s", id, seconds, waited)
		}
	}
}

// allWait reports whether every waiting run says for what it waits.
func (n *node) allWait(ctx context.Context) error {
	for i := range waiters {
		run, err := n.api.GetRun(ctx, fmt.Sprintf("wait-%d", i))
		switch {
		case err != nil:
			return err
		case run.Progress == nil || run.Progress.WaitingFor == nil || run.Progress.WaitingFor.Reason == "":
			return errors.New("run " + run.RunID + " says of no wait")
		}
	}
	return nil
}

// median is the median time of a synchronous run, the best of three rounds: a busy
// machine disturbs one, not all.
func (n *node) median(t *testing.T) time.Duration {
	t.Helper()
	best := time.Hour
	for range 3 {
		var took []time.Duration
		for range 11 {
			began := time.Now()
			if run := n.run(t, "ask", v1.RunRequest{Inputs: []byte(`{"run":"other"}`)}); run.Status != "success" {
				t.Fatal(run.Error)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		best = min(best, took[len(took)/2])
	}
	return best
}
