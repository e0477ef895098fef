package service

import (
	"testing"
	"time"

	"stepwell"
	"stepwell/store"
)

// TestQueued: a run is in the queue when it is quiet, nothing of it is in flight, and the
// next thing is certainly a request.
func TestQueued(t *testing.T) {
	t.Parallel()
	request, loop := stepwell.Step{ID: "r"}, stepwell.Step{ID: "l", DataSelector: "() => [1]"}
	transform := stepwell.Step{ID: "t", Config: stepwell.StepConfig{Type: stepwell.StepTypeTransform}}
	at := func(step, done int) []stepwell.StepSummary {
		return []stepwell.StepSummary{{Step: step, Done: done, Pages: 1}}
	}
	cases := []struct {
		name   string
		steps  []stepwell.Step
		stored store.RunProgress
		queued bool
	}{
		{"not begun", []stepwell.Step{request}, store.RunProgress{Quiet: time.Minute}, true},
		{"just recorded", []stepwell.Step{request}, store.RunProgress{Quiet: time.Second}, false},
		{"in flight", []stepwell.Step{request}, store.RunProgress{Quiet: time.Minute, Claimed: true}, false},
		{"a transform at first", []stepwell.Step{transform}, store.RunProgress{Quiet: time.Minute}, false},
		{"no steps", nil, store.RunProgress{Quiet: time.Minute}, false},
		{"in a pull", []stepwell.Step{request, transform}, store.RunProgress{Quiet: time.Minute, Steps: at(0, 0)}, true},
		{"before a request", []stepwell.Step{transform, request}, store.RunProgress{Quiet: time.Minute, Steps: at(0, 1)}, true},
		{"before a transform", []stepwell.Step{request, transform}, store.RunProgress{Quiet: time.Minute, Steps: at(0, 1)}, false},
		{"at the end", []stepwell.Step{request}, store.RunProgress{Quiet: time.Minute, Steps: at(0, 1)}, false},
		{"in a loop before a request", []stepwell.Step{loop, request}, store.RunProgress{Quiet: time.Minute, Steps: at(0, 3)}, true},
		{"in a loop before a transform", []stepwell.Step{loop, transform}, store.RunProgress{Quiet: time.Minute, Steps: at(0, 3)}, false},
	}
	for _, c := range cases {
		p := progressOf(&stepwell.Tool{Steps: c.steps}, &c.stored)
		if got := p.WaitingFor != nil && p.WaitingFor.Reason == queued; got != c.queued {
			t.Errorf("%s: queued is %v", c.name, got)
		}
	}
	waiting := &stepwell.Waiting{Reason: "429", Until: time.Now().Add(time.Hour)}
	if p := progressOf(&stepwell.Tool{Steps: []stepwell.Step{request}}, &store.RunProgress{Quiet: time.Minute, Waiting: waiting}); p.WaitingFor != waiting {
		t.Errorf("a run that waits for its upstream waits for %+v", p.WaitingFor)
	}
}
