package js

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stepwell/engine"
)

// evalCase is a case of testdata/*.json. Exactly one of Want, Undefined and Error
// says how it ends; Error is the whole message.
type evalCase struct {
	Name      string
	Source    string
	Params    []string                   // default sourceData
	Data      map[string]json.RawMessage // of sourceData; default the file's
	Args      map[string]map[string]json.RawMessage
	State     bool
	Want      json.RawMessage
	WantState json.RawMessage
	Undefined bool
	Error     string
	Limit     bool
	Console   []string
	Warnings  []string
	Check     bool // the error is found without running it
}

type caseFile struct {
	Data  map[string]json.RawMessage
	Cases []evalCase
}

func loadCases(t testing.TB) map[string]caseFile {
	t.Helper()
	names, err := filepath.Glob("testdata/*.json")
	if err != nil || len(names) == 0 {
		t.Fatal("no cases", err)
	}
	files := make(map[string]caseFile)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var f caseFile
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range f.Cases {
			c := &f.Cases[i]
			if c.Params == nil {
				c.Params = []string{inputName}
			}
			if c.Args == nil {
				c.Args = make(map[string]map[string]json.RawMessage)
			}
			if c.Data == nil {
				c.Data = f.Data
			}
			c.Args[inputName] = c.Data
			if c.Name == "" {
				c.Name = c.Source
			}
		}
		files[strings.TrimSuffix(filepath.Base(name), ".json")] = f
	}
	return files
}

func (c evalCase) request() engine.EvalRequest {
	args := make(map[string]engine.Scope)
	for name, data := range c.Args {
		args[name] = engine.MapScope(data)
	}
	return engine.EvalRequest{
		Expressions: []engine.Expression{{Source: c.Source, Params: c.Params, State: c.State}},
		Args:        args,
	}
}

func TestCases(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	for file, f := range loadCases(t) {
		for _, c := range f.Cases {
			t.Run(file+"/"+c.Name, func(t *testing.T) {
				results, err := p.Evaluate(context.Background(), c.request())
				if err != nil {
					t.Fatal(err)
				}
				c.compare(t, results[0])
				checked, err := p.Check(context.Background(), c.request().Expressions)
				if err != nil {
					t.Fatal(err)
				}
				if found := checked[0] != nil; found != c.Check || found && checked[0].Message != c.Error {
					t.Errorf("Check says %v", checked[0])
				}
			})
		}
	}
}

func (c evalCase) compare(t *testing.T, got engine.EvalResult) {
	t.Helper()
	describe := func(r engine.EvalResult) string {
		s := fmt.Sprintf("value %s, undefined %v, state %s, console %q, warnings %q", compact(r.Value), r.Undefined, compact(r.State), r.Console, r.Warnings)
		if r.Err != nil {
			s += fmt.Sprintf(", error %q, limit %v", r.Err.Message, r.Err.Limit)
		}
		return s
	}
	want := engine.EvalResult{Value: c.Want, Undefined: c.Undefined, State: c.WantState, Console: c.Console, Warnings: c.Warnings}
	if c.Error != "" {
		want.Err = &engine.ExpressionError{Message: c.Error, Limit: c.Limit}
	}
	if describe(got) != describe(want) || !slices.Equal(got.Console, want.Console) {
		t.Errorf("%s\n got %s\nwant %s", c.Source, describe(got), describe(want))
	}
}

func compact(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(raw); err != nil {
		return "broken: " + string(raw)
	}
	return strings.TrimSpace(b.String())
}
