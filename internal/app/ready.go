package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stepwell/api"
	"stepwell/engine"
	"stepwell/engine/js"
	"stepwell/store"
	"stepwell/workflows"
)

const (
	readyFor     = time.Second     // for which what was seen is good: anybody may ask
	readyTimeout = 3 * time.Second // for one look at everything
)

// readiness looks at what the process depends on, for everybody who asks at a time once.
type readiness struct {
	looks []look
	mu    sync.Mutex // held while looking: who asks meanwhile waits for the same answer
	at    time.Time
	last  []api.Check
}

// look is one thing to look at.
type look struct {
	name     string
	required bool
	do       func(context.Context) error
}

func newReadiness(s *store.Store, w *workflows.Client, e engine.Evaluator) *readiness {
	return &readiness{looks: []look{
		{"postgres", true, s.Ping},
		{"temporal", false, w.Ready}, // without it runs are accepted and wait
		{"evaluators", true, func(ctx context.Context) error { return evaluates(ctx, e) }},
	}}
}

// Evaluates starts an evaluator of its own and has it compute something.
func Evaluates(ctx context.Context) error {
	pool, err := js.NewPool(js.Options{Size: 1})
	if err != nil {
		return err
	}
	defer pool.Close()
	return evaluates(ctx, pool)
}

// evaluates has an evaluator child compute something.
func evaluates(ctx context.Context, e engine.Evaluator) error {
	results, err := e.Evaluate(ctx, engine.EvalRequest{
		Expressions: []engine.Expression{{Source: "(sourceData) => 6 * 7", Params: []string{"sourceData"}}},
		Args:        map[string]engine.Scope{"sourceData": engine.MapScope{}}})
	if err != nil {
		return err
	}
	if results[0].Err != nil {
		return results[0].Err
	}
	if got := string(results[0].Value); got != "42" {
		return fmt.Errorf("6 * 7 is %.20s", got)
	}
	return nil
}

// checks gives the state of everything, at most readyFor old.
func (r *readiness) checks(ctx context.Context) []api.Check {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < readyFor {
		return r.last
	}
	// Not the caller's context: the answer is for others, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	found := make([]api.Check, len(r.looks))
	var wg sync.WaitGroup
	for i, l := range r.looks {
		wg.Go(func() { found[i] = api.Check{Name: l.name, Required: l.required, Err: l.do(ctx)} })
	}
	wg.Wait()
	r.last, r.at = found, time.Now()
	return found
}
