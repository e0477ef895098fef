package app_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"stepwell"
	v1 "stepwell/api/v1"
	"stepwell/client"
)

// nextTool is one to which runs are chained.
const nextTool = `{"id":"next","outputTransform":"(s) => ({next: 1})"}`

// followed checks what follows a run that has ended, and what follows that. A callback
// comes once and says what the run says, with data only of a success; the next run of a
// chain is there once after a success, and else never.
func (n *node) followed(ctx context.Context, to *receiver, id string) error {
	run, err := n.api.GetRun(ctx, id)
	if err != nil {
		return err
	}
	_, chains := stepwell.RunOptions{WebhookURL: run.Options.WebhookURL}.ChainTarget()
	if run.Options.WebhookURL != "" && !chains {
		if err := n.calledBack(ctx, to, run); err != nil {
			return err
		}
	} else if all, err := n.api.Deliveries(ctx, id); err != nil || len(all) > 0 || len(to.of(id)) > 0 {
		return fmt.Errorf("a callback that nobody asked for: %+v (%v)", all, err)
	}
	next, err := n.api.ListRuns(ctx, client.Page{}, client.RunFilter{ParentRunID: id})
	if err != nil {
		return err
	}
	if !chains || run.Status != "success" {
		if len(next.Data) > 0 {
			return fmt.Errorf("a run that is %s and chains %v is followed by %s", run.Status, chains, next.Data[0].RunID)
		}
		return nil
	}
	if len(next.Data) != 1 || next.Data[0].RunID != stepwell.ChainedRunID(id) {
		return fmt.Errorf("%d runs follow: %+v", len(next.Data), next.Data)
	}
	if _, err := n.api.Wait(ctx, next.Data[0].RunID); err != nil {
		return err
	}
	return n.followed(ctx, to, next.Data[0].RunID)
}

// calledBack checks the one callback of a run.
func (n *node) calledBack(ctx context.Context, to *receiver, run *v1.Run) error {
	err := poll(ctx, func() error {
		all, err := n.api.Deliveries(ctx, run.RunID)
		if err == nil && (len(all) != 1 || all[0].Status != "delivered") {
			err = fmt.Errorf("the callbacks of the run, which is %s, are %+v", run.Status, all)
		}
		return err
	})
	if err != nil {
		return err
	}
	got := to.of(run.RunID)
	if len(got) != 1 {
		return fmt.Errorf("%d callbacks", len(got))
	}
	success := run.Status == "success"
	if c := got[0]; c.Status != run.Status || c.Error != run.Error || c.Metadata.CompletedAt != run.Metadata.CompletedAt ||
		c.Success != success || (c.Data != nil) != success || string(c.Data) != string(run.Data) {
		return fmt.Errorf("the run is %s (%s) with %s, its callback %s", run.Status, run.Error, run.Data, c.body)
	}
	return nil
}

// of gives the calls for a run.
func (r *receiver) of(run string) []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []received
	for _, c := range r.calls {
		if c.RunID == run {
			out = append(out, c)
		}
	}
	return out
}

// once checks that no run was reported twice.
func (r *receiver) once(t *testing.T) {
	t.Helper()
	calls := map[string]int{}
	for _, c := range r.got() {
		if calls[c.RunID]++; calls[c.RunID] == 2 {
			t.Errorf("%s was reported twice", c.RunID)
		}
	}
}

// races are runs of one kind that are cancelled around their end.
type races struct {
	*node
	name    string
	webhook string
	next    bool // the run that follows is cancelled
	mu      sync.Mutex
	typical time.Duration // about what the last runs took that nobody cancelled in time
	ends    map[string]string
	counts  map[string]int
}

// TestCancelAgainstCompletion cancels short runs around their end, with nothing, a
// callback or a chained run after it, and such chained runs: all answers, callbacks and
// chains agree on how each ended, and it never changes.
func TestCancelAgainstCompletion(t *testing.T) {
	t.Parallel()
	n, to := startNode(t, nil), startReceiver(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"ok":true}`) })
	const short = `{"id":%q,"webhookUrl":%q,"steps":[{"id":"get","config":{"url":"%s/"}}]}`
	n.tool(t, fmt.Sprintf(short, "short", "", up.URL))
	n.tool(t, fmt.Sprintf(short, "last", to.URL, up.URL))
	kinds := []*races{{name: "plain"}, {name: "callback", webhook: to.URL}, {name: "chain", webhook: "tool:last"}, {name: "chained", webhook: "tool:last", next: true, typical: 400 * time.Millisecond}}
	for _, k := range kinds {
		k.node, k.typical, k.ends, k.counts = n, cmp.Or(k.typical, 20*time.Millisecond), map[string]string{}, map[string]int{}
	}
	slots := make(chan struct{}, 4)
	var wg sync.WaitGroup
	for i := range *cancelRaces {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			k := kinds[i%len(kinds)]
			if run := fmt.Sprintf("%s-%d", k.name, i); t.Context().Err() == nil {
				if err := k.one(t.Context(), run); err != nil {
					t.Errorf("%s: %v", run, err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*cancelRaces)*50*time.Millisecond)
	defer cancel()
	for _, k := range kinds {
		for id, status := range k.ends {
			run := id
			if k.next {
				run = stepwell.ChainedRunID(id)
			}
			if now, err := n.api.GetRun(ctx, run); err != nil || now.Status != status {
				t.Errorf("%s was %s and is %v (%v)", id, status, now, err)
			}
			if err := n.followed(ctx, to, id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		t.Logf("%s: %v", k.name, k.counts)
		if *cancelRaces >= 100 && (k.counts["success"] == 0 || k.counts["aborted"] == 0) {
			t.Errorf("no race: %v", k.counts)
		}
	}
	to.once(t)
}

// one lets a run race.
func (k *races) one(ctx context.Context, id string) error {
	k.mu.Lock()
	wait := rand.N(3*k.typical/2 + 1)
	k.mu.Unlock()
	status, took, err := k.race(ctx, id, wait)
	k.mu.Lock()
	defer k.mu.Unlock()
	if status == "success" {
		k.typical = min((3*k.typical+took)/4, time.Second)
	} else {
		k.typical = min(k.typical*11/10, time.Second)
	}
	k.ends[id] = status
	k.counts[status]++
	return err
}

// race runs the tool synchronously, cancels the run (or the one that follows it)
// meanwhile, and gives its status, on which all answers agree, and how long it took.
func (k *races) race(ctx context.Context, first string, wait time.Duration) (status string, took time.Duration, err error) {
	id := first
	if k.next {
		id = stepwell.ChainedRunID(first)
	}
	done, began := make(chan *v1.Run, 1), time.Now()
	go func() { // ends with the run, which is short
		run, err := k.api.Run(ctx, "short", v1.RunRequest{RunID: first, Options: &v1.RunOptions{WebhookURL: k.webhook}})
		if err == nil && k.next {
			run, err = k.api.Wait(ctx, id)
		}
		if err != nil {
			run = &v1.Run{Status: err.Error()}
		}
		took = time.Since(began)
		done <- run
	}()
	if err := pauseFor(ctx, wait); err != nil {
		return "", 0, err
	}
	cancelled, refused := k.api.Cancel(ctx, id)
	for client.Status(refused) == http.StatusNotFound && ctx.Err() == nil {
		cancelled, refused = k.api.Cancel(ctx, id)
	}
	waited := <-done
	read, err := k.api.GetRun(ctx, id)
	if err != nil {
		return "", 0, err
	}
	results, err := k.api.Results(ctx, id)
	if err != nil {
		return "", 0, err
	}
	whole := results.Data != nil && results.Data.Success && len(results.Data.Data) > 0
	switch {
	case waited.Status != read.Status:
		err = fmt.Errorf("the caller got %s, a reader %s", waited.Status, read.Status)
	case read.Status == "aborted" && (refused != nil || cancelled.Status != "aborted" || len(read.Data)+len(waited.Data) > 0 || whole):
		err = fmt.Errorf("aborted, but cancel answered %v, and data %s %s", refused, read.Data, waited.Data)
	case read.Status == "success" && (client.Status(refused) != http.StatusBadRequest || !whole || len(waited.Data) == 0):
		err = fmt.Errorf("a success, but cancel answered %v, and its results are there: %v", refused, whole)
	case read.Status != "aborted" && read.Status != "success":
		err = fmt.Errorf("it ended as %s: %s", read.Status, read.Error)
	}
	return read.Status, took, err
}
