package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/devstack/stacktest"
)

// gate lets requests through one by one, or all at once when it is open.
type gate chan struct{}

func (g gate) handler(w http.ResponseWriter, r *http.Request) {
	select {
	case <-g:
		pages(w, r)
	case <-r.Context().Done():
	}
}

// TestEvents follows a run: its status, its progress, its end, and resumes on another
// server without seeing anything twice.
func TestEvents(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	second := startParts(t, n.cfg, app.Parts{Server: true})
	g := make(gate)
	up := startUpstream(t, g.handler)
	tool := n.tool(t, strings.Replace(fmt.Sprintf(pullTool, up.URL), `"cursorPath"`, `"stopCondition":"(r, p) => p.page >= 4","cursorPath"`, 1))
	if _, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: "a", Inputs: json.RawMessage(`{"run":"a","mode":""}`), Options: &v1.RunOptions{Async: true}}); err != nil {
		t.Fatal(err)
	}
	// The first server: until two pages are there.
	enough := errors.New("enough")
	var ids, kinds []string
	go func() { g <- struct{}{}; g <- struct{}{} }()
	err := n.api.Watch(t.Context(), "a", func(e v1.Event) error {
		ids, kinds = append(ids, e.ID), append(kinds, kindOf(e))
		if e.Progress != nil && e.Progress.Page == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || kinds[0] != "running" || !slices.Contains(kinds, "progress") {
		t.Fatalf("%v after %v", err, kinds)
	}
	// The second one goes on after the last event.
	req, err := http.NewRequestWithContext(t.Context(), "GET", second.url+"/runs/a/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	req.Header.Set("Last-Event-ID", ids[len(ids)-1])
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	close(g)
	text := readAll(t, res)
	if strings.Contains(text, "id: running\n") || strings.Contains(text, "id: "+ids[len(ids)-1]+"\n") || strings.Contains(text, `"data":{"data"`) ||
		!strings.HasSuffix(text, "\n\n") || strings.Count(text, "event: status\nid: success\n") != 1 {
		t.Errorf("resumed with %s", text)
	}
	req.Header.Set("Last-Event-ID", "success")
	if res, err = http.DefaultClient.Do(req); err != nil || res.StatusCode != http.StatusNoContent {
		t.Errorf("an end that was seen: %v %v", res, err)
	} else {
		res.Body.Close()
	}
}

func kindOf(e v1.Event) string {
	if e.Run != nil {
		return e.Run.Status
	}
	return "progress"
}

// TestEventsManyListeners has many listeners on one run: all see the end at once, and the
// database is asked as if there were one.
func TestEventsManyListeners(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	g := make(gate)
	up := startUpstream(t, g.handler)
	tool := n.tool(t, fmt.Sprintf(pullTool, up.URL))
	if _, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: "a", Inputs: json.RawMessage(`{"run":"a","mode":""}`), Options: &v1.RunOptions{Async: true}}); err != nil {
		t.Fatal(err)
	}
	const listeners = 200
	var wg, began sync.WaitGroup
	var mu sync.Mutex
	var ended []time.Time
	began.Add(listeners)
	for range listeners {
		wg.Go(func() {
			var once sync.Once
			err := n.api.Watch(t.Context(), "a", func(e v1.Event) error {
				once.Do(began.Done)
				if e.Run != nil && e.Run.Status == "aborted" {
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, time.Now())
				}
				return nil
			})
			if err != nil {
				once.Do(began.Done)
				t.Error(err)
			}
		})
	}
	began.Wait()
	cancelled := time.Now()
	if _, err := n.api.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if len(ended) != listeners {
		t.Fatalf("%d of %d saw the end", len(ended), listeners)
	}
	if last := slices.MaxFunc(ended, time.Time.Compare).Sub(cancelled); last > stacktest.Promised(5*time.Second) {
		t.Errorf("the last listener heard of the end after %s", last)
	}
}
