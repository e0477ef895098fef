package devstack_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

const benchQueue = "bench"

func noop(context.Context) error { return nil }

func oneLocal(ctx workflow.Context) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: time.Second})
	return workflow.ExecuteLocalActivity(ctx, noop).Get(ctx, nil)
}

func oneRegular(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Second})
	return workflow.ExecuteActivity(ctx, noop).Get(ctx, nil)
}

// BenchmarkWorkflow measures whole workflows of one activity, started eagerly
// by the process that holds the worker, on databases that wait for the disk.
func BenchmarkWorkflow(b *testing.B) {
	stack, err := devstack.Start(b.Context(), devstack.Options{DataDir: b.TempDir(), Temporald: stacktest.Binary(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := stack.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	c, err := client.DialContext(b.Context(), client.Options{
		HostPort: stack.TemporalAddress(), Namespace: stacktest.Namespace, Logger: silent{},
		ConnectionOptions: client.ConnectionOptions{GrpcCompression: &client.GrpcCompressionNone{}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	w := worker.New(c, benchQueue, worker.Options{MaxConcurrentWorkflowTaskExecutionSize: 1000})
	w.RegisterWorkflow(oneLocal)
	w.RegisterWorkflow(oneRegular)
	w.RegisterActivity(noop)
	if err := w.Start(); err != nil {
		b.Fatal(err)
	}
	defer w.Stop()

	once := func(b *testing.B, flow any) {
		run, err := c.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{
			ID: rand.Text(), TaskQueue: benchQueue, EnableEagerStart: true, WorkflowTaskTimeout: 5 * time.Second,
		}, flow)
		if err == nil {
			err = run.Get(b.Context(), nil)
		}
		if err != nil {
			b.Error(err)
		}
	}
	for name, flow := range map[string]any{"local": oneLocal, "regular": oneRegular} {
		b.Run(name+"/alone", func(b *testing.B) {
			for b.Loop() {
				once(b, flow)
			}
		})
		b.Run(name+"/16 at once", func(b *testing.B) {
			b.SetParallelism(4) // times the four processors of the machine it was written on
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					once(b, flow)
				}
			})
		})
	}
}

// silent drops the SDK's log.
type silent struct{}

var _ log.Logger = silent{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
