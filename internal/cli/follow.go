package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// redrawEvery is how often the line on a terminal is drawn anew between two events: its
// clock runs on.
const redrawEvery = 200 * time.Millisecond

// runsWatch is `stepwell runs watch`.
func runsWatch(c *call) func(context.Context, []string) error {
	return c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
		st := newStyle(c.streams.Terminal, c.streams.Getenv)
		run, err := c.follow(ctx, api, args[0], st)
		if err != nil {
			return err
		}
		status := st.green(run.Status)
		if run.Status != "success" {
			status = st.red(run.Status)
		}
		took := run.Metadata.CompletedAt.Sub(run.Metadata.StartedAt.Time)
		fmt.Fprintf(c.streams.Out, "  %s  %s after %s\n", run.RunID, status, duration(took))
		return succeeded(run)
	})
}

// follow shows the progress of a run, as its events tell it, until it ends, and gives it
// as it ended.
func (c *call) follow(ctx context.Context, api *client.Client, id string, st style) (*v1.Run, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, ended := make(chan v1.Event), make(chan error, 1)
	go func() { // ends with ctx at the latest, and is waited for
		ended <- api.Watch(ctx, id, func(e v1.Event) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	var run *v1.Run
	var line *progressLine
	var last snapshot
	redraw := time.NewTicker(redrawEvery)
	defer redraw.Stop()
	for {
		select {
		case e := <-events:
			if e.Run != nil {
				run = e.Run
				if line == nil {
					line = newProgressLine(c.streams.Out, c.streams.Terminal, st, run.Metadata.StartedAt.Time)
					defer line.end()
				}
				last = snapshotOf(run.Progress)
			} else {
				last = snapshotOf(e.Progress)
			}
			if line != nil && run.Status == "running" {
				line.show(time.Now(), last)
			}
		case <-redraw.C:
			if line != nil && c.streams.Terminal && run.Status == "running" {
				line.show(time.Now(), last)
			}
		case err := <-ended:
			if err == nil && run == nil {
				err = fmt.Errorf("run %s sent no event", id)
			}
			return run, err
		}
	}
}

// eventLine is an event as `runs events` prints it.
type eventLine struct {
	ID    string          `json:"id"`
	Event string          `json:"event"` // status or progress
	Data  json.RawMessage `json:"data"`
}

// runsEvents is `stepwell runs events`: for programs, one JSON object on a line.
func runsEvents(c *call) func(context.Context, []string) error {
	after := c.flags.String("after", "", "`id` of the last event that was seen: go on after it")
	return c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
		encoder := json.NewEncoder(c.streams.Out)
		encoder.SetEscapeHTML(false)
		return api.WatchAfter(ctx, args[0], *after, func(e v1.Event) (err error) {
			line := eventLine{ID: e.ID, Event: "progress"}
			if e.Run != nil {
				line.Event = "status"
				line.Data, err = json.Marshal(e.Run)
			} else {
				line.Data, err = json.Marshal(e.Progress)
			}
			if err != nil {
				return err
			}
			return encoder.Encode(line)
		})
	})
}
