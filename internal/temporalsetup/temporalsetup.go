// Package temporalsetup connects to Temporal and makes the worker, with the settings
// that were measured. It owns options of the SDK and nothing of what runs.
package temporalsetup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"stepwell/activities"
	"stepwell/internal/logging"
	"stepwell/internal/metrics"
	"stepwell/internal/tracing"
	"stepwell/workflows"
)

// retention is how long Temporal keeps closed workflows (design, "Data").
const retention = 72 * time.Hour

// Connect makes a client without waiting for Temporal to answer. m and t may be nil:
// then nothing is counted or traced, and nothing of that is in the way.
func Connect(address string, log *zap.Logger, m *metrics.Metrics, t *tracing.Tracer) (client.Client, error) {
	interceptors, err := traced(t)
	if err != nil {
		return nil, err
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort:       address,
		Namespace:      workflows.Namespace,
		Logger:         logging.Temporal(log),
		MetricsHandler: measured(m),
		Interceptors:   interceptors,
		ConnectionOptions: client.ConnectionOptions{
			// Compression costs more than it saves between processes of one site.
			GrpcCompression: &client.GrpcCompressionNone{},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("temporal: %w", err)
	}
	return c, nil
}

// EnsureNamespace registers the namespace when it is missing.
func EnsureNamespace(ctx context.Context, c client.Client) error {
	_, err := c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        workflows.Namespace,
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	var exists *serviceerror.NamespaceAlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("register the namespace %s: %w", workflows.Namespace, err)
	}
	return nil
}

// Sizes of a worker; the numbers are of temporal.md's measurements in the design.
const (
	taskSlots    = 1000 // workflow tasks and local activities: a chain of local ones holds one
	stickyCache  = 2000 // workflows kept in memory, of the whole process
	eagerPerTask = 10
)

// NewWorker makes a worker of this process: workflows and activities registered, not
// started. slots is the number of regular activities at a time; stopWait is how long
// they may go on when it stops.
func NewWorker(c client.Client, a *activities.Activities, slots int, stopWait time.Duration) worker.Worker {
	worker.SetStickyWorkflowCacheSize(stickyCache)
	eager := eagerPerTask
	w := worker.New(c, workflows.TaskQueue, worker.Options{
		MaxConcurrentActivityExecutionSize:          slots,
		MaxConcurrentLocalActivityExecutionSize:     taskSlots,
		MaxConcurrentWorkflowTaskExecutionSize:      taskSlots,
		MaxConcurrentWorkflowTaskPollers:            8,
		MaxConcurrentActivityTaskPollers:            8,
		StickyScheduleToStartTimeout:                time.Second,
		MaxHeartbeatThrottleInterval:                time.Second,
		DefaultHeartbeatThrottleInterval:            time.Second,
		WorkerStopTimeout:                           stopWait,
		DisableRegistrationAliasing:                 true,
		MaxEagerActivityReservationsPerWorkflowTask: &eager,
	})
	w.RegisterWorkflowWithOptions(workflows.RunTool, workflow.RegisterOptions{Name: workflows.RunToolName})
	w.RegisterActivityWithOptions(a.Page, activity.RegisterOptions{Name: activities.PageName})
	w.RegisterActivityWithOptions(a.Select, activity.RegisterOptions{Name: activities.SelectName})
	w.RegisterActivityWithOptions(a.Finish, activity.RegisterOptions{Name: activities.FinishName})
	return w
}

// deliverySlots is how many callbacks are on their way at a time in a process: one that
// waits for its receiver costs little, and must not hold up the others.
const deliverySlots = 1000

// NewDeliverer makes a worker of this process for callbacks, not started. Its attempts may
// go on for stopWait when it stops.
func NewDeliverer(c client.Client, a *activities.Activities, stopWait time.Duration) worker.Worker {
	w := worker.New(c, workflows.DeliveryQueue, worker.Options{
		MaxConcurrentActivityExecutionSize:     deliverySlots,
		MaxConcurrentWorkflowTaskExecutionSize: deliverySlots,
		MaxConcurrentWorkflowTaskPollers:       4,
		MaxConcurrentActivityTaskPollers:       4,
		StickyScheduleToStartTimeout:           time.Second,
		MaxHeartbeatThrottleInterval:           time.Second,
		DefaultHeartbeatThrottleInterval:       time.Second,
		WorkerStopTimeout:                      stopWait,
		DisableRegistrationAliasing:            true,
	})
	w.RegisterWorkflowWithOptions(workflows.Deliver, workflow.RegisterOptions{Name: workflows.DeliverName})
	w.RegisterActivityWithOptions(a.Attempt, activity.RegisterOptions{Name: activities.AttemptName})
	return w
}
