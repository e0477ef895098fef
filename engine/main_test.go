package engine_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"stepwell/engine"
	"stepwell/engine/js"
)

var pool *js.Pool

// TestMain serves as the evaluator's child when it is started as one.
func TestMain(m *testing.M) {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	var err error
	if pool, err = js.NewPool(js.Options{Size: 2}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	pool.Close()
	os.Exit(code)
}

// counter is the pool, counting calls.
type counter struct {
	mu                 sync.Mutex
	evaluated, checked int // calls
}

func (c *counter) Evaluate(ctx context.Context, req engine.EvalRequest) ([]engine.EvalResult, error) {
	c.mu.Lock()
	c.evaluated++
	c.mu.Unlock()
	return pool.Evaluate(ctx, req)
}

func (c *counter) Reads(ctx context.Context, exprs []engine.Expression, key string) ([]bool, error) {
	return pool.Reads(ctx, exprs, key)
}

func (c *counter) Check(ctx context.Context, exprs []engine.Expression) ([]*engine.ExpressionError, error) {
	c.mu.Lock()
	c.checked++
	c.mu.Unlock()
	return pool.Check(ctx, exprs)
}
