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
// by priority, then by turns among the organizations. Activities have their workflow's. Eager tasks are in no queue: this
// decides only when a worker's slots are taken.
func priority(r *stepwell.Run) temporal.Priority {
	p := temporal.Priority{PriorityKey: prioritySync, FairnessKey: r.OrgID}
	switch {
	case r.ParentRunID != "":
		p.PriorityKey = priorityChained
	case r.Options.Async:
		p.PriorityKey = priorityAsync
	}
	return p
}
