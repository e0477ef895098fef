package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// heartbeatTimeout is how long a regular activity may be silent before it is
// repeated; its wrapper heartbeats every second.
const heartbeatTimeout = 5 * time.Second

// localTimeout bounds a local activity, which by itself returns after 2 s.
const localTimeout = 10 * time.Second

// task is what is known of the current workflow task.
type task struct {
	started time.Time // workflow time
	locals  int       // local activities since
}

// useLocal decides which kind of activity comes next (design, "Which kind of
// activity"): local where a repetition is harmless and quick, regular for effects,
// slow pages, loops with concurrency, and from time to time to let the task complete.
func useLocal(s Settings, effects, parallel bool, lastTook time.Duration, t task, now time.Time) bool {
	return s.Activities == ActivitiesAuto && !effects && !parallel &&
		lastTook < s.SlowPage && t.locals < s.YieldCount && now.Sub(t.started) < s.YieldAfter
}

func localOptions(ctx workflow.Context) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: localTimeout,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

func regularOptions(ctx workflow.Context, s Settings, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: s.ActivityTimeout,
		HeartbeatTimeout:    heartbeatTimeout,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1}, // the workflow repeats, knowing why
		Summary:             summary,
	})
}

// repeatWait is how long the workflow waits before it repeats an activity that ended
// without an outcome: at once the first time (a worker died), then longer.
func repeatWait(repeats int) time.Duration {
	if repeats == 0 {
		return 0
	}
	return min(time.Second<<min(repeats-1, 10), 15*time.Second)
}
