package app_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

const overdue = "The run was stopped: it had not ended within 2s, the deadline of a run"

// TestRunDeadline: a run past its deadline has failed, whatever it waits for: an answer,
// which is cut off; a Retry-After; an item of a loop; and a synchronous caller is told.
func TestRunDeadline(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *config.Config) { c.RunDeadline = 2 * time.Second })
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/later" {
			w.Header().Set("Retry-After", "1800")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		<-r.Context().Done()
	})
	for name, step := range map[string]string{
		"answer": `{"id":"a","config":{"method":"POST","url":"%s/?run=answer"}}`,
		"wait":   `{"id":"a","config":{"url":"%s/later?run=wait"}}`,
		"items":  `{"id":"a","concurrency":3,"dataSelector":"() => [1,2,3,4]","config":{"url":"%s/?run=items"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := n.run(t, n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[`+step+`]}`, name, up.URL)), v1.RunRequest{})
			if run.Status != "failed" || run.Error != overdue {
				t.Errorf("the run is %s: %s", run.Status, run.Error)
			}
			if name == "wait" {
				return
			}
			eventually(t, 10*time.Second, func() error {
				for _, r := range up.of(name) {
					if !r.aborted {
						return fmt.Errorf("a request is still under way")
					}
				}
				return nil
			})
		})
	}
}

// TestRunDeadlineWithoutWorkers: the same while no worker is there; and a worker that
// comes later finds nothing to do.
func TestRunDeadlineWithoutWorkers(t *testing.T) {
	t.Parallel()
	cfg := configFor(t, stacktest.Start(t, devstack.Options{}))
	cfg.RunDeadline = 2 * time.Second
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	n := startParts(t, cfg, app.Parts{Server: true})
	tool := n.tool(t, fmt.Sprintf(`{"id":"a","steps":[{"id":"a","config":{"url":"%s/?run=a"}}]}`, up.URL))
	run := n.run(t, tool, v1.RunRequest{Options: &v1.RunOptions{Async: true}})
	if run := n.waitFinal(t, run.RunID, 30*time.Second); run.Status != "failed" || run.Error != overdue {
		t.Errorf("the run is %s: %s", run.Status, run.Error)
	}
	worker := startParts(t, cfg, app.Parts{Server: true, Worker: true})
	if run := worker.run(t, tool, v1.RunRequest{}); run.Status != "success" {
		t.Errorf("a run with a worker is %s: %s", run.Status, run.Error)
	}
	if asked := up.of("a"); len(asked) != 1 {
		t.Errorf("%d requests were sent, want one", len(asked))
	}
}
