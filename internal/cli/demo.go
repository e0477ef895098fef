package cli

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// DemoToolID is the id of the tool that the demo saves.
const DemoToolID = "demo-orders"

// demoDelay is how slow the demo asks its upstream to be: fast enough to wait
// for, slow enough to see.
const demoDelay = "10ms"

// demoDocument is the demo tool as POST /tools takes it; {upstream} stands for
// the address of the upstream.
//
//go:embed demo-orders.json
var demoDocument string

// demoSummary is what the demo tool's outputTransform makes.
type demoSummary struct {
	Records      int64  `json:"records"`
	RevenueCents int64  `json:"revenueCents"`
	Currency     string `json:"currency"`
	TopCustomers []struct {
		Name         string `json:"name"`
		Orders       int64  `json:"orders"`
		RevenueCents int64  `json:"revenueCents"`
	} `json:"topCustomers"`
}

// RunDemo is the demo of `stepwell dev`: it saves the tool DemoToolID (or brings
// a saved one up to date), runs it over the demo upstream at upstreamURL, shows
// the progress, on a terminal as one line that is redrawn, and writes what came
// of it. An error says what failed; a run that did not succeed is one.
func RunDemo(ctx context.Context, w io.Writer, tty bool, api *client.Client, upstreamURL string) error {
	tool, err := saveDemoTool(ctx, api, upstreamURL)
	if err != nil {
		return fmt.Errorf("demo: save the tool: %w", err)
	}
	st := newStyle(tty, os.Getenv)
	began := time.Now()
	run, err := api.Run(ctx, tool.ID, v1.RunRequest{
		RunID:   uuid.NewString(), // with an id of our own the call can be repeated
		Inputs:  json.RawMessage(`{"delay":"` + demoDelay + `"}`),
		Options: &v1.RunOptions{Async: true, RequestSource: "cli"},
	})
	if err != nil {
		return fmt.Errorf("demo: start the run: %w", err)
	}
	fmt.Fprintf(w, "\n  Running %s: %d steps, run %s\n\n", st.bold(tool.ID), len(tool.Steps), run.RunID)
	run, err = watch(ctx, api, run.RunID, newProgressLine(w, tty, st, began))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if run.Status != "success" {
		return fmt.Errorf("demo: the run ended as %s: %s", run.Status, run.Error)
	}
	var summary demoSummary
	if err := json.Unmarshal(run.Data, &summary); err != nil {
		return fmt.Errorf("demo: the result is not what the tool returns: %w", err)
	}
	results, err := api.Results(ctx, run.RunID)
	if err != nil {
		return fmt.Errorf("demo: read the results: %w", err)
	}
	if results.Data == nil {
		return fmt.Errorf("demo: the run has no results: %s", results.Message)
	}
	writeSummary(w, st, run, results.Data.StepResults, summary)
	return nil
}

// saveDemoTool saves the demo tool, or updates the saved one: the address of the
// upstream differs from start to start.
func saveDemoTool(ctx context.Context, api *client.Client, upstreamURL string) (*v1.Tool, error) {
	document := []byte(strings.ReplaceAll(demoDocument, "{upstream}", upstreamURL))
	_, err := api.GetTool(ctx, DemoToolID)
	if client.Status(err) == http.StatusNotFound {
		var tool v1.ToolCreate
		if err := json.Unmarshal(document, &tool); err != nil {
			return nil, err
		}
		return api.CreateTool(ctx, tool)
	}
	if err != nil {
		return nil, err
	}
	var update v1.ToolUpdate
	if err := json.Unmarshal(document, &update); err != nil {
		return nil, err
	}
	update.Archived = v1.Some(false)
	return api.UpdateTool(ctx, DemoToolID, update)
}

// writeSummary writes what the demo's run did and what it returned.
func writeSummary(w io.Writer, st style, run *v1.Run, steps []v1.StepResult, s demoSummary) {
	pages := 0
	for _, step := range steps {
		pages += max(step.Pages, 1)
	}
	took := run.Metadata.CompletedAt.Sub(run.Metadata.StartedAt.Time)
	fmt.Fprintf(w, "  %s in %s: %s orders in %s pages, each stored as it came\n\n",
		st.green("Done"), st.bold(duration(took)), st.bold(count(s.Records)), st.bold(count(int64(pages))))
	fmt.Fprintf(w, "  %-18s%s %s\n", "Revenue", right(cents(s.RevenueCents), 14), s.Currency)
	for i, c := range s.TopCustomers {
		label := ""
		if i == 0 {
			label = "Top customers"
		}
		fmt.Fprintf(w, "  %-18s%s %s  %s  %s\n", label, right(cents(c.RevenueCents), 14), s.Currency,
			fit(c.Name, 18), st.dim(count(c.Orders)+" orders"))
	}
	fmt.Fprintln(w)
}

// Ready is what stays on the screen while `stepwell dev` runs.
type Ready struct {
	BaseURL   string // of the API, with /v1
	Dashboard string // "" when there is none
	AdminKey  string // "" when it was shown at an earlier start
	DemoTool  bool   // the demo tool is saved, so the example can call it
	Upstream  string // address of the demo upstream, "" when it does not run
}

// WriteReady writes the addresses, the key and a line to paste. Without a key
// the line takes it from STEPWELL_API_KEY.
func WriteReady(w io.Writer, tty bool, r Ready) {
	st := newStyle(tty, os.Getenv)
	fmt.Fprintf(w, "  %s\n\n", st.green("stepwell is ready"))
	key := r.AdminKey
	for _, row := range []struct{ label, value string }{
		{"API", r.BaseURL}, {"Dashboard", r.Dashboard}, {"Demo upstream", r.Upstream}, {"Admin key", key},
	} {
		if row.value != "" {
			fmt.Fprintf(w, "  %s  %s\n", st.dim(fit(row.label, 13)), row.value)
		}
	}
	if key == "" {
		fmt.Fprintf(w, "  %s  shown at the first start\n", st.dim(fit("Admin key", 13)))
		key = "$STEPWELL_API_KEY"
	}
	call := " " + r.BaseURL + "/tools"
	if r.DemoTool {
		call = " -X POST" + call + "/" + DemoToolID + "/run"
	}
	fmt.Fprintf(w, "\n  Try it:\n\n    curl -s%s \\\n      -H \"Authorization: Bearer %s\"\n\n  %s\n", call, key, st.dim("Ctrl-C stops everything."))
}
