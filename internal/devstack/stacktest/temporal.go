package stacktest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"stepwell/internal/devstack"
)

// FailingWorkflow starts a workflow whose task has failed so many times in a row and is
// pending again, as it is when its code cannot go on. No worker ever takes it: its queue
// is its own.
func FailingWorkflow(t testing.TB, stack *devstack.Stack, id string, failures int) {
	t.Helper()
	conn, err := grpc.NewClient(stack.TemporalAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	service := workflowservice.NewWorkflowServiceClient(conn)
	queue := &taskqueue.TaskQueue{Name: "failing " + id}
	if _, err := service.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{Namespace: Namespace, RequestId: uuid.NewString(),
		WorkflowId: id, WorkflowType: &commonpb.WorkflowType{Name: "Failing"}, TaskQueue: queue}); err != nil {
		t.Fatal("start a workflow: ", err)
	}
	for range failures {
		task, err := service.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{Namespace: Namespace, TaskQueue: queue, Identity: "stacktest"})
		if err == nil {
			_, err = service.RespondWorkflowTaskFailed(ctx, &workflowservice.RespondWorkflowTaskFailedRequest{Namespace: Namespace, TaskToken: task.GetTaskToken(),
				Cause: enumspb.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE, Identity: "stacktest"})
		}
		if err != nil {
			t.Fatal("fail a workflow task: ", err)
		}
	}
}

// bare is a Temporal to which nobody has come yet.
type bare struct {
	workflowservice.UnimplementedWorkflowServiceServer
}

func (bare) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (bare) DescribeNamespace(_ context.Context, r *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	return nil, serviceerror.ToStatus(serviceerror.NewNamespaceNotFound(r.GetNamespace())).Err()
}

// BareTemporal starts a Temporal that has no namespace, and can nothing else, and gives
// its address. It ends with the test.
func BareTemporal(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal("start a bare Temporal: ", err)
	}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, bare{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }() // ends with the server
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error("end a bare Temporal: ", err)
		}
	})
	return listener.Addr().String()
}
