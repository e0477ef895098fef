// Package workflows holds the workflow code and all that others need to start,
// cancel and look at workflows: names, ids, options and a client. Workflow code is
// deterministic: it reads no configuration, no clock and no store, and sees neither
// bodies nor secrets.
package workflows

import (
	"strconv"
	"time"
)

// Names in Temporal.
const (
	Namespace     = "stepwell"
	TaskQueue     = "stepwell"
	DeliveryQueue = "stepwell-deliveries" // of its own: slow receivers hold up no run
	RunToolName   = "RunTool"
	DeliverName   = "Deliver"
)

// RunID is the workflow id of a run. With an organization's id of 36 characters and
// a run id of at most 200 it stays below Temporal's limit of 255.
func RunID(org, run string) string { return "run:" + org + ":" + run }

// DeliverID is the workflow id of a round of a callback.
func DeliverID(org, delivery string, round int) string {
	return "deliver:" + org + ":" + delivery + ":" + strconv.Itoa(round)
}

// TaskTimeout is the workflow task timeout: a stalled worker's run is taken over
// after it (design, "Which kind of activity").
const TaskTimeout = 5 * time.Second
