package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"stepwell"
	"stepwell/engine"
)

// maxStateChange bounds what one transform may change in the state: some times what fits
// into a state, and little enough for a row.
const maxStateChange = 16 << 20

// runState is persistedState of a run as this process knows it. It is a function of stored
// rows alone: what the run read at its start, and what the transforms before a place
// changed, which is stored with their pages. So it is the same in every process, and a
// transform that is repeated does not count twice.
type runState struct {
	mu       sync.Mutex
	read     *stepwell.State // nil when the tool cannot reach it
	now      json.RawMessage // with all changes before upTo
	upTo     [2]int          // step and item
	warnings []string        // of those changes
}

// startState reads the state at the start of a run that can use it, or as it was read
// then. The run has ended when there is none.
func (s *session) startState(ctx context.Context) error {
	if s.tool.broken != nil || !s.tool.compiled.ReadsState {
		return nil
	}
	state, err := s.all.a.Store.StartState(ctx, s.key.org, s.key.run)
	if err != nil {
		return err
	}
	if state == nil {
		s.finish()
		return nil
	}
	s.state.read, s.state.now = state, state.Values
	return nil
}

// findWriters notes which of a tool's code can change the state.
func (t *tool) findWriters() {
	for i, s := range t.compiled.Steps {
		if s.WritesState() {
			t.writers = append(t.writers, i)
		}
	}
	t.writes = len(t.writers) > 0 || t.compiled.Output != nil && t.compiled.Output.WritesState()
}

// stateBefore gives persistedState as an item of a step sees it.
func (s *session) stateBefore(ctx context.Context, step, item int) (json.RawMessage, error) {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.read == nil {
		return nil, nil
	}
	want := [2]int{step, item}
	if slices.Compare(want[:], st.upTo[:]) < 0 { // a workflow task that begins again
		st.now, st.upTo, st.warnings = st.read.Values, [2]int{}, nil
	}
	if steps := s.unseen(st.upTo, want); len(steps) > 0 {
		err := s.all.a.Store.StateChanges(ctx, s.key.org, s.key.run, steps, st.upTo, want, func(step, item int, c *stepwell.StateChange) {
			st.apply(step, item, c)
		})
		if err != nil {
			return nil, err // what was applied is noted
		}
	}
	st.upTo = want
	return st.now, nil
}

// unseen are the steps that may have stored changes between two places.
func (s *session) unseen(from, to [2]int) []int {
	return slices.DeleteFunc(slices.Clone(s.tool.writers), func(step int) bool {
		first := 0
		if step == from[0] {
			first = from[1]
		}
		end := to[1]
		if step < to[0] {
			end = 1
			if s.tool.def.Steps[step].DataSelector != "" {
				end = first + 1 // how many items there are is in the rows
			}
		}
		return step < from[0] || step > to[0] || first >= end
	})
}

// apply makes the change of one item; the caller holds the lock.
func (st *runState) apply(step, item int, c *stepwell.StateChange) {
	if !c.Empty() {
		st.now = engine.ApplyState(st.now, c)
		st.warnings = append(st.warnings, c.Warnings...)
	}
	st.upTo = [2]int{step, item + 1}
}

// stateSaved notes the change of an item that this process has just stored.
func (s *session) stateSaved(step, item int, c *stepwell.StateChange) {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.read != nil && st.upTo == [2]int{step, item} {
		st.apply(step, item, c)
	}
}

// stateChange is what a transform changed in the state that it saw.
func (s *session) stateChange(ctx context.Context, code *engine.Step, step, item int, out engine.TransformResult) (*stepwell.StateChange, error) {
	if !code.WritesState() || out.State == nil {
		return nil, nil
	}
	before, err := s.stateBefore(ctx, step, item)
	if err != nil {
		return nil, err
	}
	change := engine.ChangeState(before, out.State)
	if len(change.Set) > maxStateChange {
		return nil, code.Errorf("persistedState: the change has %d bytes, and may have %d", len(change.Set), maxStateChange)
	}
	for _, text := range out.Warnings {
		change.Warnings = append(change.Warnings, s.public(text))
	}
	return change, nil
}

// stateWrite is what the run writes back when it succeeds: the keys that differ from what
// it read. A state over a limit is not written at all.
func (s *session) stateWrite(ctx context.Context, f *stepwell.Finish) error {
	if s.state.read == nil {
		return nil
	}
	f.State = &stepwell.StateWrite{Seq: s.state.read.Seq}
	now, err := s.stateBefore(ctx, len(s.tool.def.Steps), 0)
	if err != nil {
		return err
	}
	s.state.mu.Lock()
	f.Warnings = append(f.Warnings, s.state.warnings...)
	s.state.mu.Unlock()
	if c := f.Result.State; !c.Empty() {
		now = engine.ApplyState(now, c)
		f.Warnings = append(f.Warnings, c.Warnings...)
	}
	change := engine.ChangeState(s.state.read.Values, now)
	if change.Empty() {
		return nil
	}
	values, problem := engine.StateValues(now)
	if problem != "" {
		f.Warnings = append(f.Warnings, s.public(fmt.Sprintf("The run's changes to the state were discarded: the state would be over a limit: %s", problem)))
		return nil
	}
	f.State.Set, f.State.Removed = engine.ChangedValues(values, change), change.Removed
	return nil
}
