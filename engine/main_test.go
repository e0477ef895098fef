package engine_test

import (
	"context"
	"testing"

	"stepwell/engine"
)

// noJS fails a test that reaches the evaluator.
type noJS struct{ t *testing.T }

func (n noJS) Evaluate(_ context.Context, req engine.EvalRequest) ([]engine.EvalResult, error) {
	n.t.Errorf("went to the evaluator: %+v", req.Expressions)
	return make([]engine.EvalResult, len(req.Expressions)), nil
}

func (n noJS) Check(_ context.Context, exprs []engine.Expression) ([]*engine.ExpressionError, error) {
	n.t.Errorf("asked the evaluator about %+v", exprs)
	return make([]*engine.ExpressionError, len(exprs)), nil
}

func evaluator(t *testing.T) engine.Evaluator { return noJS{t} }
