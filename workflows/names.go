// Package workflows holds the workflow code and all that others need to start,
// cancel and look at workflows: names, ids, options and a client. Workflow code is
// deterministic: it reads no configuration, no clock and no store, and sees neither
// bodies nor secrets.
package workflows

import "time"

// Names in Temporal.
const (
	Namespace   = "stepwell"
	TaskQueue   = "stepwell"
	RunToolName = "RunTool"
)

// RunID is the workflow id of a run. With an organization's id of 36 characters and
// a run id of at most 200 it stays below Temporal's limit of 255.
func RunID(org, run string) string { return "run:" + org + ":" + run }

// TaskTimeout is the workflow task timeout: a stalled worker's run is taken over
// after it (design, "Which kind of activity").
const TaskTimeout = 5 * time.Second
