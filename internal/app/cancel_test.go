package app_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/devstack/stacktest"
)

// cancels is how many runs the cancel test cancels: 200 in the long form.
var cancels = flag.Int("cancels", 60, "runs that TestCancel cancels")

// onTheWire is how long after the answer a request that had left before may arrive.
const onTheWire = 25 * time.Millisecond

// pages answers with endless pages, in the manner that the query asks for.
func pages(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n, _ := strconv.Atoi(q.Get("cursor"))
	switch q.Get("mode") {
	case "slow":
		select {
		case <-time.After(700 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	case "stuck":
		<-r.Context().Done()
		return
	case "retry":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "after":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	fmt.Fprintf(w, `{"data":[{"n":%d}],"next_cursor":"%d"}`, n, n+1)
}

const pullTool = `{"id":"pull","steps":[{"id":"pull","config":{"url":"%s/pages?run=<<run>>&mode=<<mode>>",
	"queryParams":{"cursor":"<<cursor>>"},"pagination":{"type":"cursorBased","cursorPath":"next_cursor"}}}]}`

// TestCancel cancels paginated runs at random moments: no request begins after the
// answer, the one in flight is cut off, and the run stays aborted.
func TestCancel(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	stalls := stacktest.MeterStalls(t)
	up := startUpstream(t, pages)
	tool := n.tool(t, fmt.Sprintf(pullTool, up.URL))
	modes := []string{"fast", "slow", "stuck", "retry", "after"}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 10)
	for i := range *cancels {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := cancelOne(t.Context(), n, up, stalls, tool, fmt.Sprintf("cancel-%d", i), modes[i%len(modes)]); err != nil {
				t.Errorf("run %d (%s): %v", i, modes[i%len(modes)], err)
			}
		})
	}
	wg.Wait()
}

func cancelOne(ctx context.Context, n *node, up *upstream, stalls *stacktest.Stalls, tool, run, mode string) error {
	inputs, _ := json.Marshal(map[string]string{"run": run, "mode": mode})
	_, err := n.api.Run(ctx, tool, v1.RunRequest{RunID: run, Inputs: inputs, Options: &v1.RunOptions{Async: true}})
	if err != nil {
		return err
	}
	if wait := rand.IntN(4) * rand.IntN(400); wait > 0 { // a quarter at once, before the start
		time.Sleep(time.Duration(wait) * time.Millisecond)
	}
	cancelled, err := n.api.Cancel(ctx, run)
	answered := time.Now()
	if err != nil {
		return err
	}
	if cancelled.Status != "aborted" || cancelled.Error != "Run cancelled by user" {
		return fmt.Errorf("cancel answered %s, %q", cancelled.Status, cancelled.Error)
	}
	// Long enough for a retry wait to pass, should one have survived, and for a slow cut.
	select {
	case <-time.After(2500 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, r := range up.of(run) {
		if late := r.began.Sub(answered); late > onTheWire+stalls.Worst() {
			return fmt.Errorf("a request began %s after the answer", late)
		}
		if r.ended.IsZero() || r.ended.Sub(answered) > stacktest.Promised(2*time.Second) {
			return fmt.Errorf("a request was not cut off within 2 s")
		}
	}
	after, err := n.api.GetRun(ctx, run)
	if err == nil && after.Status != "aborted" {
		err = fmt.Errorf("status became %s", after.Status)
	}
	if again, err2 := n.api.Cancel(ctx, run); err == nil && (err2 != nil || again.Status != "aborted") {
		err = fmt.Errorf("a second cancel: %v", err2)
	}
	return err
}
