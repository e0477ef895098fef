package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/fault"
)

// chosen is what is known of a step's stored selection: its head and the last chunks
// that were read.
type chosen struct {
	loop   bool
	total  int
	chunks [2]chunk // items in flight may lie on both sides of a border
}

// chunk is a stored part of a selection.
type chunk struct {
	first int
	items []json.RawMessage
}

// item gives an item if it is in one of the chunks.
func (c *chosen) item(i int) (item json.RawMessage, ok bool) {
	for _, part := range c.chunks {
		if i >= part.first && i < part.first+len(part.items) {
			return part.items[i-part.first], true
		}
	}
	return nil, false
}

// selectItems runs the dataSelector of a step and stores what it chose, once.
func (a *Activities) selectItems(ctx context.Context, req SelectRequest) (SelectResult, error) {
	s, err := a.sessions.open(ctx, req.Org, req.Run)
	if err != nil {
		return SelectResult{}, err
	}
	defer s.release()
	if s.isEnded() {
		return SelectResult{Outcome: Gone}, nil
	}
	if head, err := a.Store.Selection(ctx, req.Org, req.Run, req.Step); err != nil || head != nil {
		s.notEmpty()
		return s.selected(req.Step, head), err
	}
	stored, err := a.choose(ctx, s, req.Step)
	if err != nil {
		return SelectResult{}, err
	}
	var saved bool
	fault.Point(fault.SelectUnsaved)
	err = a.persist(ctx, s, func() (err error) {
		if saved, err = a.Store.SaveSelection(ctx, req.Org, req.Run, req.Step, stored); err == nil {
			err = fault.Error(fault.SelectSaved)
		}
		return err
	})
	var bad *engine.StepError
	if errors.As(err, &bad) {
		stored = failedSelection(s.public(bad.Message))
		saved, err = a.Store.SaveSelection(ctx, req.Org, req.Run, req.Step, stored)
	}
	if err != nil {
		return SelectResult{}, err
	}
	fault.Point(fault.SelectSaved)
	if saved {
		return s.selected(req.Step, stored), nil
	}
	head, err := a.Store.Selection(ctx, req.Org, req.Run, req.Step)
	if err != nil || head != nil {
		s.notEmpty()
		return s.selected(req.Step, head), err
	}
	s.finish()
	return SelectResult{Outcome: Gone}, nil
}

// failedSelection is the choice of a dataSelector that fails: one plain item, whose only
// page is the failure.
func failedSelection(reason string) *stepwell.Selection {
	return &stepwell.Selection{Items: []json.RawMessage{[]byte("{}")}, Total: 1, Error: reason}
}

// choose runs the dataSelector of a step.
func (a *Activities) choose(ctx context.Context, s *session, step int) (*stepwell.Selection, error) {
	var sel engine.Selection
	bad, err := s.tool.broken, error(nil)
	if bad == nil {
		var scope engine.Scope
		if scope, err = s.scope(ctx, step, 0, nil, false); err == nil {
			sel, err = s.tool.compiled.Steps[step].Select(s.ctx, a.Evaluator, scope)
		}
	}
	switch {
	case bad != nil || errors.As(err, &bad):
		return failedSelection(s.public(bad.Message)), nil
	case err != nil:
		return nil, err
	case !sel.Loop:
		return &stepwell.Selection{Items: []json.RawMessage{sel.Item}, Total: 1}, nil
	}
	return &stepwell.Selection{Loop: true, Items: sel.Items, Total: len(sel.Items)}, nil
}

// notEmpty notes that another worker, or this one before it forgot, may have stored pages.
func (s *session) notEmpty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty = false
}

// selected remembers the head of a selection and answers with it.
func (s *session) selected(step int, head *stepwell.Selection) SelectResult {
	if head == nil {
		return SelectResult{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chosen[step] == nil {
		s.chosen[step] = &chosen{loop: head.Loop, total: head.Total}
	}
	if head.Error != "" {
		return SelectResult{Outcome: Failed}
	}
	return SelectResult{Outcome: Done, Loop: head.Loop, Total: head.Total}
}

// loops reports whether a step is known to be a loop in this run.
func (s *session) loops(step int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chosen[step] == nil || s.chosen[step].loop
}

// item gives one selected item of a step.
func (s *session) item(ctx context.Context, step, item int) (json.RawMessage, error) {
	if value, ok := s.chosenItem(step, item); ok {
		return value, nil
	}
	// Many items of a loop begin at once: the first one reads for all.
	s.choosing.Lock()
	defer s.choosing.Unlock()
	if value, ok := s.chosenItem(step, item); ok {
		return value, nil
	}
	store := s.all.a.Store
	if s.chosenOf(step) == nil {
		head, err := store.Selection(ctx, s.key.org, s.key.run, step)
		if err != nil {
			return nil, err
		}
		if head == nil {
			return nil, fmt.Errorf("the selection of step %d is missing", step)
		}
		s.selected(step, head)
	}
	var first int
	var items []json.RawMessage
	err := s.all.a.persist(ctx, s, func() (err error) {
		first, items, err = store.SelectionItems(ctx, s.key.org, s.key.run, step, item)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	c := s.chosen[step]
	c.chunks = [2]chunk{{first, items}, c.chunks[0]}
	s.mu.Unlock()
	if value, ok := s.chosenItem(step, item); ok {
		return value, nil
	}
	return nil, fmt.Errorf("item %d of step %d is missing", item, step)
}

func (s *session) chosenOf(step int) *chosen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chosen[step]
}

func (s *session) chosenItem(step, item int) (json.RawMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.chosen[step]; c != nil {
		return c.item(item)
	}
	return nil, false
}
