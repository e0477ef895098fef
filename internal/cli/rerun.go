package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// runsRerun is `stepwell runs rerun`.
func runsRerun(c *call) func(context.Context, []string) error {
	var request v1.RerunRequest
	given := inputs{}
	c.flags.StringVar(&request.FromStep, "from-step", "", "`id` of the step to begin with (default: where the run stopped)")
	c.flags.StringVar(&request.ToolVersion, "tool-version", "", "`version` of the tool to run (default: that of the run)")
	c.flags.Var(given, "input", "an input `k=v` (a text) or k:=JSON; may be repeated; new inputs need the first step")
	file := c.flags.String("inputs", "", "`file` with a JSON object of inputs (- reads the standard input)")
	secrets := c.flags.String("credentials", "", "`file` with a JSON object of run-time credentials, which are not kept (- reads the standard input)")
	async := c.flags.Bool("async", false, "do not wait for the end: print the id of the new run")
	pages := c.flags.Int("max-pages", 0, "the most `pages` of one pull: more than the run had, to go on after truncated")
	c.flags.StringVar(&request.RunID, "run-id", uuid.NewString(), "`id` of the new run")
	c.flags.Lookup("run-id").DefValue = "" // for the help: it is a new one each time
	full := c.flags.Bool("full", false, "print the whole run as JSON, not its data alone")
	many := c.bulkFlags()
	c.flags.StringVar(&many.Status, "status", "", "all runs of this `status`: failed or aborted")
	one := c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
		if *file == "-" && *secrets == "-" {
			return usagef("inputs and credentials cannot both be read from the standard input")
		}
		all := map[string]json.RawMessage{}
		if *file != "" {
			if err := c.document(*file, &all); err != nil {
				return err
			}
		}
		for name, value := range given {
			all[name] = value
		}
		if *file != "" || len(given) > 0 {
			var err error
			if request.Inputs, err = json.Marshal(all); err != nil {
				return err
			}
		}
		if *secrets != "" {
			if err := c.document(*secrets, &request.Credentials); err != nil {
				return err
			}
		}
		request.Options = &v1.RerunOptions{Async: async, RunOptions: v1.RunOptions{RequestSource: "cli", MaxPages: *pages}}
		run, err := api.Rerun(ctx, args[0], request)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted; the run goes on if it was accepted: stepwell runs watch %s", request.RunID)
			}
			return err
		}
		return c.printRun(run, *full)
	})
	return func(ctx context.Context, args []string) error {
		if !filtered(many) {
			return one(ctx, args)
		}
		if alone := c.given("from-step", "tool-version", "input", "inputs", "credentials", "async", "max-pages", "run-id", "full"); alone != "" {
			return usagef("--%s is for the rerun of one RUN", alone)
		}
		return c.remote(nil, func(ctx context.Context, api *client.Client, _ []string) error {
			op, err := api.RerunMany(ctx, *many)
			if err != nil {
				return err
			}
			return c.printBulk(ctx, api, op)
		})(ctx, args)
	}
}
