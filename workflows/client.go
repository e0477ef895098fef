package workflows

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"stepwell"
	"stepwell/activities"
)

// Client starts, cancels and looks at the workflows of runs. It is the only way by
// which others do that.
type Client struct {
	temporal client.Client
	settings Settings
}

// NewClient makes a client; settings go into the input of every run that it starts.
func NewClient(c client.Client, settings Settings) *Client {
	return &Client{temporal: c, settings: settings}
}

// StartRun starts the workflow of a recorded run of a tool version. One that has started
// already, or has even ended, is left alone and counts as success. One that Temporal will
// never take (its plan is larger than a payload may be) is a KindInvalid error.
func (c *Client) StartRun(ctx context.Context, r *stepwell.Run, t *stepwell.Tool) error {
	_, chains := r.Options.ChainTarget()
	_, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       RunID(r.OrgID, r.ID),
		TaskQueue:                                TaskQueue,
		WorkflowTaskTimeout:                      TaskTimeout,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		EnableEagerStart:                         true,
		StaticSummary:                            t.ID,
		Priority:                                 priority(r),
	}, RunToolName, RunInput{Org: r.OrgID, Run: r.ID, Plan: activities.Plan(t), Settings: c.settings, Chains: chains})
	var refused *serviceerror.InvalidArgument
	switch {
	case temporal.IsWorkflowExecutionAlreadyStartedError(err):
		return nil
	case errors.As(err, &refused):
		return &stepwell.Error{Kind: stepwell.KindInvalid, Code: "refused", Message: "Temporal refuses the run", Cause: err}
	}
	return err
}

// StartDelivery starts the workflow of a round of a callback. One that is going on is left
// alone; one that has ended goes through what it recorded, and does nothing more.
func (c *Client) StartDelivery(ctx context.Context, org, delivery string, round int) error {
	_, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       DeliverID(org, delivery, round),
		TaskQueue:                                DeliveryQueue,
		WorkflowTaskTimeout:                      TaskTimeout,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, DeliverName, DeliverInput{Org: org, Delivery: delivery, Round: round, Scale: c.settings.DeliveryScale})
	if temporal.IsWorkflowExecutionAlreadyStartedError(err) {
		return nil
	}
	return err
}

// CancelRun asks the workflow of a run to end. One that is unknown or has ended is left alone.
func (c *Client) CancelRun(ctx context.Context, org, run string) error {
	err := c.temporal.CancelWorkflow(ctx, RunID(org, run), "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil
	}
	return err
}

// State is what Temporal knows of a run's workflow.
type State struct {
	Known       bool   // false: there is no such workflow (any more)
	Open        bool   // it is running
	Status      string // of one that is closed, for example Terminated
	TaskAttempt int32  // of its pending workflow task: above 1, the task has failed or timed out
}

// RunState asks for the state of a run's workflow.
func (c *Client) RunState(ctx context.Context, org, run string) (State, error) {
	d, err := c.temporal.DescribeWorkflowExecution(ctx, RunID(org, run), "")
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	status := d.GetWorkflowExecutionInfo().GetStatus()
	return State{
		Known:       true,
		Open:        status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		Status:      status.String(),
		TaskAttempt: d.GetPendingWorkflowTask().GetAttempt(),
	}, nil
}

// TerminateRun ends the workflow of a run at once, without letting it do anything more.
func (c *Client) TerminateRun(ctx context.Context, org, run, reason string) error {
	err := c.temporal.TerminateWorkflow(ctx, RunID(org, run), "", reason)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil
	}
	return err
}

// Ready reports whether Temporal answers.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := c.temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
	return err
}
