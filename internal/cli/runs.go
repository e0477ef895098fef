package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// watchEvery is how often a run is asked for while it is watched.
const watchEvery = 100 * time.Millisecond

// inputs is --input, which may be given several times: k=v is text, k:=JSON any value.
type inputs map[string]json.RawMessage

func (i inputs) String() string { return "" }

// Set reads one input.
func (i inputs) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || strings.TrimSuffix(name, ":") == "" {
		return errors.New("write k=v for a text, k:=JSON for any other value")
	}
	if key, isJSON := strings.CutSuffix(name, ":"); isJSON {
		if !json.Valid([]byte(value)) {
			return fmt.Errorf("the value of %s is no JSON", key)
		}
		i[key] = json.RawMessage(value)
		return nil
	}
	quoted, err := json.Marshal(value)
	i[name] = quoted
	return err
}

// runCommand is `stepwell run`.
func runCommand(c *call) func(context.Context, []string) error {
	given := inputs{}
	options := v1.RunOptions{RequestSource: "cli"}
	var request v1.RunRequest
	c.flags.Var(given, "input", "an input `k=v` (a text) or k:=JSON; may be repeated")
	file := c.flags.String("inputs", "", "`file` with a JSON object of inputs (- reads the standard input)")
	c.flags.BoolVar(&options.Async, "async", false, "do not wait for the end: print the id of the run")
	c.flags.StringVar(&options.Mode, "mode", "", "`mode` whose system credentials are used: prod or dev")
	c.flags.Int64Var(&options.Timeout, "timeout", 0, "`milliseconds` for each outbound request (default 60000)")
	c.flags.StringVar(&request.RunID, "run-id", uuid.NewString(), "`id` of the run; a second run with it is refused")
	c.flags.Lookup("run-id").DefValue = "" // for the help: it is a new one each time
	full := c.flags.Bool("full", false, "print the whole run as JSON, not its data alone")
	return c.remote([]string{"TOOL"}, func(ctx context.Context, api *client.Client, args []string) error {
		all := map[string]json.RawMessage{}
		if *file != "" {
			if err := c.document(*file, &all); err != nil {
				return err
			}
		}
		for name, value := range given {
			all[name] = value
		}
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		request.Inputs, request.Options = text, &options
		run, err := api.Run(ctx, args[0], request)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted; the run goes on if it was accepted: stepwell runs watch %s", request.RunID)
			}
			return err
		}
		return c.printRun(run, *full)
	})
}

// printRun prints the data of a run that succeeded, the id of one that still
// runs, or with full the run as it is. One that failed is an error.
func (c *call) printRun(run *v1.Run, full bool) error {
	err := succeeded(run)
	switch {
	case full:
		err = errors.Join(c.print(run), err)
	case run.Status == "running":
		_, err = fmt.Fprintln(c.streams.Out, run.RunID)
	case err == nil:
		err = c.print(run.Data)
	}
	return err
}

// succeeded is an error for a run that ended otherwise than as a success.
func succeeded(run *v1.Run) error {
	if run.Status == "failed" || run.Status == "aborted" {
		return fmt.Errorf("run %s %s: %s", run.RunID, run.Status, run.Error)
	}
	return nil
}

// runsList is `stepwell runs list`.
func runsList(c *call) func(context.Context, []string) error {
	var filter client.RunFilter
	c.flags.StringVar(&filter.ToolID, "tool", "", "only runs of this `tool`")
	c.flags.StringVar(&filter.Status, "status", "", "only runs of this `status`: running, success, failed or aborted")
	page, asJSON := c.listFlags("100")
	return c.remote(nil, func(ctx context.Context, api *client.Client, _ []string) error {
		list, err := api.ListRuns(ctx, *page, filter)
		if err != nil {
			return err
		}
		if *asJSON {
			return c.print(list)
		}
		w := tabwriter.NewWriter(c.streams.Out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "RUN\tTOOL\tSTATUS\tSTARTED\tTOOK\tSOURCE")
		for _, r := range list.Data {
			took := ""
			if r.Metadata.DurationMS != nil {
				took = duration(time.Duration(*r.Metadata.DurationMS) * time.Millisecond)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.RunID, r.ToolID, r.Status, clock(r.Metadata.StartedAt.Time), took, r.RequestSource)
		}
		return c.endList(w, list.HasMore, list.Page, list.Total)
	})
}

// runsGet is `stepwell runs get`.
func runsGet(c *call) func(context.Context, []string) error {
	return c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
		run, err := api.GetRun(ctx, args[0])
		if err != nil {
			return err
		}
		return c.print(run)
	})
}

// runsResults is `stepwell runs results`.
func runsResults(c *call) func(context.Context, []string) error {
	output := c.flags.String("output", "-", "`file` for the results (- is standard output)")
	return c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
		return c.toFile(*output, func(w io.Writer) error {
			return api.ResultsTo(ctx, args[0], w)
		})
	})
}

// watch is follow for a service on this machine, which is asked again and again: a run of
// seconds moves on between two events.
func watch(ctx context.Context, api *client.Client, runID string, line *progressLine) (*v1.Run, error) {
	defer line.end()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		run, err := api.GetRun(ctx, runID)
		if err != nil {
			return nil, err
		}
		if run.Status != "running" {
			return run, nil
		}
		line.show(time.Now(), snapshotOf(run.Progress))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// snapshotOf is the progress of a run as the progress line shows it.
func snapshotOf(p *v1.Progress) snapshot {
	if p == nil {
		return snapshot{}
	}
	s := snapshot{step: p.Step, page: p.Page, items: p.Items, bytes: p.Bytes}
	if p.WaitingFor != nil {
		s.waiting, s.until = p.WaitingFor.Reason, p.WaitingFor.Until.Time
	}
	return s
}
