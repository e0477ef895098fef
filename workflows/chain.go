package workflows

import (
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"stepwell/activities"
)

// startNext starts the workflow of the run that follows, and waits until it has started:
// from then on it is a run of its own. One that has started already is left alone.
func (r *run) startNext(ctx workflow.Context, next *activities.Next) error {
	// Never cancelled, also not at the end: cancelling the context of a child cancels it.
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            RunID(r.in.Org, next.Run),
		TaskQueue:             TaskQueue,
		WorkflowTaskTimeout:   TaskTimeout,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, // by default a closed one runs again
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		StaticSummary:         next.Tool,
		Priority:              chainedPriority(r.in.Org),
	})
	child := workflow.ExecuteChildWorkflow(ctx, RunToolName, RunInput{Org: r.in.Org, Run: next.Run, Plan: next.Plan, Settings: r.in.Settings, Chains: next.Chains})
	err := child.GetChildWorkflowExecution().Get(ctx, nil)
	var started *temporal.ChildWorkflowExecutionAlreadyStartedError
	if errors.As(err, &started) {
		return nil
	}
	return err
}
