package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"stepwell/internal/logging"
	"stepwell/workflows"
)

// The yardsticks: a workflow of one empty regular activity, and one of one empty local
// activity. What they lack (a request, stored rows, an API) is what stepwell adds.
const (
	rawQueue    = "bench-raw"
	rawRegular  = "RawRegular"
	rawLocal    = "RawLocal"
	rawActivity = "Empty"
)

// raw runs the yardsticks on the stack's Temporal, with a worker in this process that is
// set as stepwell's own. A caller is told in the process, without a poll, when the
// answer to the completion of its workflow is there: then its result is durable, as
// stepwell's is when it answers.
type raw struct {
	client client.Client
	worker worker.Worker
	prefix string
	count  atomic.Int64
	mu     sync.Mutex
	runs   map[string]*rawRun
}

type rawRun struct {
	early time.Time // the workflow's code returned; nothing of that is durable yet
	done  chan struct{}
}

func startRaw(address string, log *zap.Logger) (*raw, error) {
	r := &raw{runs: map[string]*rawRun{}, prefix: fmt.Sprintf("raw-%d-", time.Now().UnixNano())}
	var err error
	r.client, err = client.NewLazyClient(client.Options{
		HostPort: address, Namespace: workflows.Namespace, Logger: logging.Temporal(log),
		ConnectionOptions: client.ConnectionOptions{
			GrpcCompression: &client.GrpcCompressionNone{},
			DialOptions:     []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.watch)},
		},
	})
	if err != nil {
		return nil, err
	}
	eager := 10
	r.worker = worker.New(r.client, rawQueue, worker.Options{ // as internal/temporalsetup has it
		MaxConcurrentActivityExecutionSize:          200,
		MaxConcurrentLocalActivityExecutionSize:     1000,
		MaxConcurrentWorkflowTaskExecutionSize:      1000,
		MaxConcurrentWorkflowTaskPollers:            8,
		MaxConcurrentActivityTaskPollers:            8,
		StickyScheduleToStartTimeout:                time.Second,
		DisableRegistrationAliasing:                 true,
		MaxEagerActivityReservationsPerWorkflowTask: &eager,
	})
	r.worker.RegisterWorkflowWithOptions(r.regular, workflow.RegisterOptions{Name: rawRegular})
	r.worker.RegisterWorkflowWithOptions(r.local, workflow.RegisterOptions{Name: rawLocal})
	r.worker.RegisterActivityWithOptions(func(context.Context) error { return nil }, activity.RegisterOptions{Name: rawActivity})
	return r, r.worker.Start()
}

func (r *raw) close() {
	r.worker.Stop()
	r.client.Close()
}

func (r *raw) regular(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	return r.end(ctx, workflow.ExecuteActivity(ctx, rawActivity).Get(ctx, nil))
}

func (r *raw) local(ctx workflow.Context) (string, error) {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: 10 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	return r.end(ctx, workflow.ExecuteLocalActivity(ctx, rawActivity).Get(ctx, nil))
}

// end notes when the workflow's code is through. Its result is its id: watch reads it.
func (r *raw) end(ctx workflow.Context, err error) (string, error) {
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	r.mu.Lock()
	if run := r.runs[id]; run != nil {
		run.early = time.Now()
	}
	r.mu.Unlock()
	return id, err
}

// watch sees every call to Temporal and tells the callers of workflows that completed.
func (r *raw) watch(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	completed, ok := req.(*workflowservice.RespondWorkflowTaskCompletedRequest)
	if err != nil || !ok {
		return err
	}
	for _, c := range completed.GetCommands() {
		if c.GetCommandType() != enumspb.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION {
			continue
		}
		var id string
		payloads := c.GetCompleteWorkflowExecutionCommandAttributes().GetResult().GetPayloads()
		if len(payloads) == 1 && json.Unmarshal(payloads[0].GetData(), &id) == nil {
			r.tell(id)
		}
	}
	return err
}

func (r *raw) tell(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.runs[id]; run != nil {
		delete(r.runs, id)
		close(run.done)
	}
}

// run starts a yardstick and waits for its end. early is how long it took until its code
// was through, done until its end was durable.
func (r *raw) run(ctx context.Context, name string) (early, done time.Duration, err error) {
	id := r.prefix + fmt.Sprint(r.count.Add(1))
	run := &rawRun{done: make(chan struct{})}
	r.mu.Lock()
	r.runs[id] = run
	r.mu.Unlock()
	began := time.Now()
	_, err = r.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: rawQueue, WorkflowTaskTimeout: workflows.TaskTimeout, EnableEagerStart: true,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, name)
	if err != nil {
		return 0, 0, fmt.Errorf("start %s: %w", name, err)
	}
	select {
	case <-run.done:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	done = time.Since(began)
	return run.early.Sub(began), done, nil
}
