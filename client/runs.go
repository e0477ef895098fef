package client

import (
	"context"
	"io"
	"net/http"
	"time"

	"stepwell/api/v1"
)

// Run starts a run. Without options.async it waits for the end, as long as the
// service does; the run may still be running when it returns, and a final one may
// have failed: look at its Status. A request without a RunID is not repeated after a
// broken connection, because the repeat might start a second run. With a RunID it is;
// a repeat that finds the run there gives the run, once it is final unless
// options.async is set.
func (c *Client) Run(ctx context.Context, toolID string, r v1.RunRequest) (*v1.Run, error) {
	return c.start(ctx, call{method: "POST", path: toolPath(toolID) + "/run", body: r}, r.RunID, r.Options != nil && r.Options.Async)
}

// Rerun takes up an ended run again in a new one, and answers as Run does. Without a
// FromStep it goes on where the run stopped.
func (c *Client) Rerun(ctx context.Context, id string, r v1.RerunRequest) (*v1.Run, error) {
	async := r.Options != nil && r.Options.Async != nil && *r.Options.Async
	return c.start(ctx, call{method: "POST", path: runPath(id) + "/rerun", body: r}, r.RunID, async)
}

// start starts a run whose id, if it has one, makes a repeat safe.
func (c *Client) start(ctx context.Context, in call, runID string, async bool) (*v1.Run, error) {
	if runID == "" {
		return change[v1.Run](ctx, c, in)
	}
	once := *c
	once.retries = 0
	pause := c.pause
	for try := 0; ; try++ {
		run, err := change[v1.Run](ctx, &once, in)
		switch {
		case err == nil:
			return run, nil
		case try > 0 && Status(err) == http.StatusConflict:
			if async {
				return c.GetRun(ctx, runID)
			}
			return c.Wait(ctx, runID)
		}
		in.repeatable = true
		if try >= c.retries || !mayRepeat(in, err) {
			return nil, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
		pause *= 2
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func runPath(id string) string { return "/runs/" + escape(id) }

// GetRun gives a run, with its data when that is at most 256 KiB.
func (c *Client) GetRun(ctx context.Context, id string) (*v1.Run, error) {
	return get[v1.Run](ctx, c, runPath(id), nil)
}

// maxPoll bounds the pause between two looks at a run.
const maxPoll = 2 * time.Second

// Wait asks for a run until it is final. It looks often at first, later every 2 s.
func (c *Client) Wait(ctx context.Context, id string) (*v1.Run, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, maxPoll) {
		run, err := c.GetRun(ctx, id)
		if err != nil || run.Status != "running" {
			return run, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// RunFilter selects runs; empty values do not filter.
type RunFilter struct {
	ToolID         string
	Status         string
	RequestSources string // several are separated by commas
	UserID         string
	SystemID       string
	RerunOf        string
	ParentRunID    string
	StartedAfter   time.Time
	StartedBefore  time.Time
}

// ListRuns gives a page of runs, newest first.
func (c *Client) ListRuns(ctx context.Context, p Page, f RunFilter) (*v1.List[v1.Run], error) {
	q := p.values()
	for name, value := range map[string]string{
		"toolId": f.ToolID, "status": f.Status, "requestSources": f.RequestSources, "userId": f.UserID,
		"systemId": f.SystemID, "rerunOf": f.RerunOf, "parentRunId": f.ParentRunID,
		"startedAfter": timeText(f.StartedAfter), "startedBefore": timeText(f.StartedBefore),
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return get[v1.List[v1.Run]](ctx, c, "/runs", q)
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Results gives the full stored results of a run, in memory.
func (c *Client) Results(ctx context.Context, id string) (*v1.Results, error) {
	return get[v1.Results](ctx, c, runPath(id)+"/results", nil)
}

// ResultsTo writes the answer of Results to w as it arrives. An error after some
// bytes were written means that they are not the whole.
func (c *Client) ResultsTo(ctx context.Context, id string, w io.Writer) error {
	res, err := c.send(ctx, call{method: "GET", path: runPath(id) + "/results", repeatable: true})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(w, res.Body)
	return err
}

// Cancel ends a running run and gives it, aborted.
func (c *Client) Cancel(ctx context.Context, id string) (*v1.Run, error) {
	return change[v1.Run](ctx, c, call{method: "POST", path: runPath(id) + "/cancel", repeatable: true})
}

// Deliveries gives the callbacks of a run: one at most.
func (c *Client) Deliveries(ctx context.Context, run string) ([]v1.Delivery, error) {
	all, err := get[v1.Deliveries](ctx, c, runPath(run)+"/deliveries", nil)
	if err != nil {
		return nil, err
	}
	return all.Data, nil
}

// Redeliver asks for one more attempt of a callback at once and gives the callback.
func (c *Client) Redeliver(ctx context.Context, delivery string) (*v1.Delivery, error) {
	return change[v1.Delivery](ctx, c, call{method: "POST", path: "/deliveries/" + escape(delivery) + "/redeliver"})
}

// WebhookSecrets gives the valid secrets that sign callbacks, newest first.
func (c *Client) WebhookSecrets(ctx context.Context) ([]v1.WebhookSecret, error) {
	all, err := get[v1.WebhookSecrets](ctx, c, "/webhook-secrets", nil)
	if err != nil {
		return nil, err
	}
	return all.Data, nil
}

// CreateWebhookSecret makes a new signing secret; the older ones stay valid for a day.
func (c *Client) CreateWebhookSecret(ctx context.Context) (*v1.WebhookSecret, error) {
	return change[v1.WebhookSecret](ctx, c, call{method: "POST", path: "/webhook-secrets"})
}
