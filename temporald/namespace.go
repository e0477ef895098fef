package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The namespace that stepwell's workers use, and how long closed runs stay in
// it. Stepwell keeps results itself; Temporal's history serves for inspection,
// and for the refusal of used workflow ids.
const (
	namespaceName      = "stepwell"
	namespaceRetention = 72 * time.Hour
)

// waitUntilUsable registers the namespace when it is missing and returns when
// the frontend at address answers for it from every history shard.
func waitUntilUsable(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(typedErrors))
	if err != nil {
		return fmt.Errorf("reach the frontend: %w", err)
	}
	defer func() { _ = conn.Close() }()
	frontend := workflowservice.NewWorkflowServiceClient(conn)

	var id string
	err = retry(ctx, func(ctx context.Context) error {
		id, err = ensureNamespace(ctx, frontend)
		return err
	})
	if err != nil {
		return fmt.Errorf("register namespace %s: %w", namespaceName, err)
	}
	for shard := int32(1); shard <= historyShards; shard++ {
		workflowID := idInShard(id, shard)
		err := retry(ctx, func(ctx context.Context) error {
			_, err := frontend.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
				Namespace: namespaceName,
				Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID},
			})
			var notFound *serviceerror.NotFound
			if errors.As(err, &notFound) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("reach history shard %d: %w", shard, err)
		}
	}
	return nil
}

// ensureNamespace registers the namespace, unless it exists, and gives its id.
// It does not ask first: the server would remember for a second that there is
// none.
func ensureNamespace(ctx context.Context, frontend workflowservice.WorkflowServiceClient) (string, error) {
	_, err := frontend.RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        namespaceName,
		Description:                      "Runs and deliveries of stepwell",
		WorkflowExecutionRetentionPeriod: durationpb.New(namespaceRetention),
	})
	var exists *serviceerror.NamespaceAlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return "", err
	}
	found, err := frontend.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespaceName})
	return found.GetNamespaceInfo().GetId(), err
}

// idInShard finds a workflow id that lives in a shard; shards count from 1.
func idInShard(namespaceID string, shard int32) string {
	for i := 0; ; i++ {
		id := fmt.Sprintf("ready-%d", i)
		if common.WorkflowIDToHistoryShard(namespaceID, id, historyShards) == shard {
			return id
		}
	}
}

// retry repeats f, a call of some milliseconds, until it succeeds or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := f(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// typedErrors turns gRPC statuses into the error types of serviceerror.
func typedErrors(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	return serviceerror.FromStatus(serviceerror.ToStatus(err))
}
