package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// bulkFlags declares the filters of a bulk operation.
func (c *call) bulkFlags() *v1.BulkRequest {
	r := &v1.BulkRequest{ID: uuid.NewString()}
	c.flags.StringVar(&r.ToolID, "tool", "", "all runs of this `tool`, in place of RUN")
	c.flags.StringVar(&r.UserID, "user", "", "all runs of this `user`")
	c.flags.StringVar(&r.SystemID, "system", "", "all runs of tools that use this `system`")
	c.flags.StringVar(&r.RequestSources, "sources", "", "all runs of these `sources`, separated by commas")
	c.flags.BoolVar(&r.All, "all", false, "all runs")
	c.flags.BoolVar(&r.DryRun, "dry-run", false, "only count the runs")
	return r
}

// filtered reports whether a bulk operation is asked for.
func filtered(r *v1.BulkRequest) bool {
	return r.All || r.DryRun || r.ToolID+r.UserID+r.SystemID+r.RequestSources+r.Status != ""
}

// printBulk waits for the end of a bulk operation and prints it. Runs that failed are an
// error.
func (c *call) printBulk(ctx context.Context, api *client.Client, op *v1.BulkOperation) error {
	if op.Status == "dry_run" {
		_, err := fmt.Fprintf(c.streams.Out, "%s runs\n", count(int64(op.Total)))
		return err
	}
	id := op.ID
	op, err := api.WaitBulk(ctx, id)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; operation %s goes on", id)
		}
		return err
	}
	if err := c.print(op); err != nil {
		return err
	}
	if op.Failed > 0 {
		return fmt.Errorf("%d of %d runs failed", op.Failed, op.Total)
	}
	return nil
}

// runsCancel is `stepwell runs cancel`.
func runsCancel(c *call) func(context.Context, []string) error {
	request := c.bulkFlags()
	return func(ctx context.Context, args []string) error {
		if !filtered(request) {
			return c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
				run, err := api.Cancel(ctx, args[0])
				if err != nil {
					return err
				}
				return c.print(run)
			})(ctx, args)
		}
		return c.remote(nil, func(ctx context.Context, api *client.Client, _ []string) error {
			op, err := api.CancelMany(ctx, *request)
			if err != nil {
				return err
			}
			return c.printBulk(ctx, api, op)
		})(ctx, args)
	}
}
