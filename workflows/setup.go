package workflows

import (
	"context"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// Setup is how Temporal is set up for runs.
type Setup struct {
	Namespace bool          // whether it is registered; nothing else is known without it
	Retention time.Duration // of closed workflows
	Pollers   int           // workers that polled for workflow tasks within the last minutes
}

// Setup asks how Temporal is set up.
func (c *Client) Setup(ctx context.Context) (s Setup, err error) {
	service := c.temporal.WorkflowService()
	ns, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: Namespace})
	var missing *serviceerror.NamespaceNotFound
	if errors.As(err, &missing) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Namespace, s.Retention = true, ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	queue, err := service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{Namespace: Namespace,
		TaskQueue: &taskqueue.TaskQueue{Name: TaskQueue}, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW})
	s.Pollers = len(queue.GetPollers())
	return s, err
}
