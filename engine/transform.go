package engine

import (
	"context"
	"encoding/json"

	"stepwell"
)

// TransformResult is what transformCode or an outputTransform gave.
type TransformResult struct {
	Data    json.RawMessage // never nil: undefined is null
	Files   json.RawMessage // the value of `__files__`, taken out of Data; nil without one
	State   json.RawMessage // persistedState after the call; nil when it cannot have changed
	Console []string
	// Warnings are about what was left out of State: values that are no JSON.
	Warnings []string
}

// Transform runs the code of a transform step or of Tool.Output. What the code
// does wrong is a *StepError; its console output comes with that, too.
func (s *Step) Transform(ctx context.Context, ev Evaluator, scope Scope) (TransformResult, error) {
	if s.run == nil {
		return TransformResult{}, s.Errorf("has no code to run")
	}
	if s.run.path != nil {
		v, how, err := s.readCode(ctx, scope, s.run)
		if err != nil {
			return TransformResult{}, err
		}
		if how != readNeedsJS {
			return s.result(EvalResult{Value: v})
		}
	}
	results, err := s.call(ctx, ev, map[string]Scope{"sourceData": scope}, s.transform, []*code{s.run})
	if err != nil {
		if len(results) == 0 {
			return TransformResult{}, err
		}
		return TransformResult{Console: results[0].Console}, err
	}
	return s.result(results[0])
}

// result splits the files off. The evaluator's text is checked for depth only
// here: it is the one place where a result may be built deeper than its inputs.
func (s *Step) result(r EvalResult) (TransformResult, error) {
	t := TransformResult{Data: r.Value, State: r.State, Console: r.Console, Warnings: r.Warnings}
	if r.Undefined || len(t.Data) == 0 {
		t.Data = jsonNull
	}
	if deeperThan(t.Data, stepwell.MaxJSONDepth) {
		return TransformResult{}, s.Errorf("%s: its result is %s", s.run.field, errTooDeep.Error())
	}
	if files, ok := member(t.Data, "__files__"); ok {
		t.Files = files
		t.Data = without(t.Data, "__files__")
	}
	return t, nil
}

// without copies an object less one key.
func without(obj json.RawMessage, name string) json.RawMessage {
	out := []byte{'{'}
	eachMember(obj, func(k, v []byte) bool {
		if keyIs(k, name) {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), v...)
		return true
	})
	return append(out, '}')
}
