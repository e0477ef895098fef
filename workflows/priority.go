package workflows

import (
	"go.temporal.io/sdk/temporal"

	"stepwell"
)

// Priorities of runs in Temporal's queues, 1 to 5, smaller ones first: somebody waits for
// a synchronous run; a chained one comes after those that somebody asked for.
const (
	prioritySync    = 2
	priorityAsync   = 3
	priorityChained = 4
)

// priority says in which order the tasks of a run leave a queue that is backed up: first
// by priority, then by turns among the organizations. Activities have their workflow's.
// Eager tasks are in no queue, so it decides nothing until a worker's slots are taken.
func priority(r *stepwell.Run) temporal.Priority {
	switch {
	case r.ParentRunID != "":
		return chainedPriority(r.OrgID)
	case r.Options.Async:
		return temporal.Priority{PriorityKey: priorityAsync, FairnessKey: r.OrgID}
	default:
		return temporal.Priority{PriorityKey: prioritySync, FairnessKey: r.OrgID}
	}
}

// chainedPriority is the priority of a chained run.
func chainedPriority(org string) temporal.Priority {
	return temporal.Priority{PriorityKey: priorityChained, FairnessKey: org}
}
