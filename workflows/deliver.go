package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"stepwell/activities"
)

// DeliverInput is all that the workflow of a callback's round knows.
type DeliverInput struct {
	Org      string `json:"org"`
	Delivery string `json:"delivery"`
	Round    int    `json:"round"` // 1 follows the schedule, a further one makes one attempt
	// Scale multiplies the waits of the schedule; 0 means 1. It travels in the input, as
	// everything does that shapes commands.
	Scale float64 `json:"scale,omitempty"`
}

// deliverySchedule is the wait before each attempt of a callback. Source: the interface.
var deliverySchedule = []time.Duration{0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour}

// waits are the waits before each attempt of a round.
func (in DeliverInput) waits() []time.Duration {
	if in.Round > 1 {
		return deliverySchedule[:1]
	}
	scale := in.Scale
	if scale == 0 {
		scale = 1
	}
	waits := make([]time.Duration, len(deliverySchedule))
	for i, wait := range deliverySchedule {
		waits[i] = time.Duration(float64(wait) * scale)
	}
	return waits
}

// attemptTimeout bounds one attempt of a callback: its request has 15 s, the rest is for
// Postgres. An attempt without an outcome is made again by Temporal: what was recorded of
// it decides.
const attemptTimeout = 5 * time.Minute

// Deliver is the workflow of one round of a callback: attempts, until one succeeds or the
// schedule ends. Its waits are timers. Started again it goes through what is recorded.
func Deliver(ctx workflow.Context, in DeliverInput) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: attemptTimeout,
		HeartbeatTimeout:    heartbeatTimeout,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
	})
	waits := in.waits()
	for i := range waits {
		req := activities.AttemptRequest{Org: in.Org, Delivery: in.Delivery, Round: in.Round, Number: i + 1, Last: i == len(waits)-1}
		if !req.Last {
			req.NextMS = waits[i+1].Milliseconds()
		}
		var res activities.AttemptResult
		if err := workflow.ExecuteActivity(ctx, activities.AttemptName, req).Get(ctx, &res); err != nil {
			return err
		}
		if res.Over {
			return nil
		}
		if err := workflow.Sleep(ctx, time.Duration(res.AfterMS)*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
