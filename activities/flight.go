package activities

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"go.uber.org/zap"

	"stepwell"
)

// flights holds what is going on in this process: each key once. A second caller
// joins the first.
type flights struct {
	base  context.Context
	log   *zap.Logger
	mu    sync.Mutex
	byKey map[stepwell.PageKey]*flight
	wg    sync.WaitGroup
}

// flight is one piece of work. It outlives the activities that wait for it.
type flight struct {
	done   chan struct{}
	result any
	err    error
}

func newFlights(base context.Context, log *zap.Logger) *flights {
	return &flights{base: base, log: log, byKey: map[stepwell.PageKey]*flight{}}
}

// join gives the flight of a key, beginning it with work when there is none.
func (fs *flights) join(key stepwell.PageKey, work func(context.Context) (any, error)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.byKey[key]; f != nil {
		return f
	}
	f := &flight{done: make(chan struct{})}
	fs.byKey[key] = f
	fs.wg.Go(func() {
		f.result, f.err = guarded(fs.base, work)
		if f.err != nil && fs.base.Err() == nil {
			fs.log.Warn("an activity ended without an outcome and is repeated", zap.String("run", key.Run), zap.Int("step", key.Step),
				zap.Int("item", key.Item), zap.Int("page", key.Page), zap.Error(f.err))
		}
		fs.mu.Lock()
		delete(fs.byKey, key)
		fs.mu.Unlock()
		close(f.done)
	})
	return f
}

// guarded runs work and turns a panic into an error: it ends one activity, not the process.
func guarded(ctx context.Context, work func(context.Context) (any, error)) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return work(ctx)
}

// wait waits until nothing is in flight, or ctx ends.
func (fs *flights) wait(ctx context.Context) {
	idle := make(chan struct{})
	go func() {
		fs.wg.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
