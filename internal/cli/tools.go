package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// toolsList is `stepwell tools list`.
func toolsList(c *call) func(context.Context, []string) error {
	archived := c.flags.Bool("archived", false, "list archived tools too")
	page, asJSON := c.listFlags("1000")
	return c.remote(nil, func(ctx context.Context, api *client.Client, _ []string) error {
		list, err := api.ListTools(ctx, *page, *archived)
		if err != nil {
			return err
		}
		if *asJSON {
			return c.print(list)
		}
		w := tabwriter.NewWriter(c.streams.Out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "ID\tVERSION\tSTEPS\tUPDATED\tNAME")
		for _, t := range list.Data {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", t.ID, t.Version, len(t.Steps), clock(t.UpdatedAt.Time), t.Name)
		}
		return c.endList(w, list.HasMore, list.Page, list.Total)
	})
}

// toolsGet is `stepwell tools get`.
func toolsGet(c *call) func(context.Context, []string) error {
	return c.remote([]string{"TOOL"}, func(ctx context.Context, api *client.Client, args []string) error {
		tool, err := api.GetTool(ctx, args[0])
		if err != nil {
			return err
		}
		return c.print(tool)
	})
}

// toolsCreate is `stepwell tools create`.
func toolsCreate(c *call) func(context.Context, []string) error {
	return c.remote([]string{"FILE"}, func(ctx context.Context, api *client.Client, args []string) error {
		var create v1.ToolCreate
		if err := c.document(args[0], &create); err != nil {
			return err
		}
		tool, err := api.CreateTool(ctx, create)
		if err != nil {
			return err
		}
		return c.print(tool)
	})
}

// toolsUpdate is `stepwell tools update`.
func toolsUpdate(c *call) func(context.Context, []string) error {
	return c.remote([]string{"TOOL", "FILE"}, func(ctx context.Context, api *client.Client, args []string) error {
		var change v1.ToolUpdate
		if err := c.document(args[1], &change); err != nil {
			return err
		}
		updated, err := api.UpdateTool(ctx, args[0], change)
		if err != nil {
			return err
		}
		return c.print(updated)
	})
}

// toolsArchive is `stepwell tools archive` and `stepwell tools unarchive`.
func toolsArchive(archived bool) func(*call) func(context.Context, []string) error {
	return func(c *call) func(context.Context, []string) error {
		return c.remote([]string{"TOOL"}, func(ctx context.Context, api *client.Client, args []string) error {
			tool, err := api.UpdateTool(ctx, args[0], v1.ToolUpdate{Archived: v1.Some(archived)})
			if err != nil {
				return err
			}
			return c.print(tool)
		})
	}
}

// toolsDelete is `stepwell tools delete`.
func toolsDelete(c *call) func(context.Context, []string) error {
	return c.remote([]string{"TOOL"}, func(ctx context.Context, api *client.Client, args []string) error {
		return api.DeleteTool(ctx, args[0])
	})
}
