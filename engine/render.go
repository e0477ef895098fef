package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"stepwell/engine/template"
)

// values are the results of a step's expressions. An absent value is undefined.
type values map[*code]json.RawMessage

// evaluate gives the values of expressions: plain paths and bare names are read
// in Go, all others go to the evaluator in one call. The first expression that
// fails makes the error, a *StepError.
func (s *Step) evaluate(ctx context.Context, ev Evaluator, scope Scope, limits Limits, codes []*code) (values, error) {
	vals := make(values, len(codes))
	var rest []*code
	for _, c := range codes {
		if c.path == nil {
			rest = append(rest, c)
			continue
		}
		v, how, err := s.readCode(ctx, scope, c)
		if err != nil {
			return nil, err
		}
		switch how {
		case readValue:
			vals[c] = v
		case readNeedsJS:
			rest = append(rest, c)
		}
	}
	results, err := s.call(ctx, ev, map[string]Scope{"sourceData": scope}, limits, rest)
	if err != nil {
		return nil, err
	}
	for i, c := range rest {
		if !results[i].Undefined {
			vals[c] = results[i].Value
		}
	}
	return vals, nil
}

// call evaluates codes in one round trip. When one of them fails the results come with
// the error.
func (s *Step) call(ctx context.Context, ev Evaluator, args map[string]Scope, limits Limits, codes []*code) ([]EvalResult, error) {
	if len(codes) == 0 {
		return nil, nil
	}
	exprs := make([]Expression, len(codes))
	for i, c := range codes {
		exprs[i] = c.expr
	}
	results, err := ev.Evaluate(ctx, EvalRequest{Expressions: exprs, Args: args, Limits: limits, Tenant: s.tenant})
	if err != nil {
		return nil, fmt.Errorf("evaluating %s of %s: %w", codes[0].field, s.label, err)
	}
	if len(results) != len(codes) {
		return nil, fmt.Errorf("evaluating %s: %d results for %d expressions", s.label, len(results), len(codes))
	}
	for i, r := range results {
		if r.Err != nil {
			return results, s.codeError(codes[i], r.Err.Message)
		}
	}
	return results, nil
}

// readCode reads a plain path or a bare name.
func (s *Step) readCode(ctx context.Context, scope Scope, c *code) (json.RawMessage, plainRead, error) {
	v, ok, err := scope.Get(ctx, c.path[0])
	if err != nil {
		return nil, 0, fmt.Errorf("reading %q for %s: %w", c.path[0], s.label, err)
	}
	if !ok {
		switch {
		case c.bare && s.declared[c.path[0]]:
			return jsonNull, readValue, nil
		case c.bare:
			return nil, 0, s.codeError(c, fmt.Sprintf("'%s' is not known: no input, step result, credential or variable has this name", c.path[0]))
		case len(c.path) > 1:
			return nil, 0, s.codeError(c, cannotRead(c.path[1], "undefined"))
		}
		return nil, readUndefined, nil
	}
	v, how, thrown := readPlain(v, c.path[1:])
	if how == readThrows {
		return nil, 0, s.codeError(c, thrown)
	}
	return v, how, nil
}

// maxShown bounds, in characters, how much of an expression an error shows.
const maxShown = 120

// codeError is the failure of an expression: field, place, message, source.
func (s *Step) codeError(c *code, message string) *StepError {
	if c.at < 0 {
		return s.Errorf("%s: %s, in %s", c.field, message, shown(c.src))
	}
	return s.Errorf("%s: %s, in <<%s>> at character %d", c.field, message, shown(c.src), c.at-1)
}

// shown is an expression cut for an error, on one line.
func shown(src string) string { return cut(strings.Join(strings.Fields(src), " "), maxShown) }

// cut keeps the first n characters of a text.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	count := 0
	for i := range text {
		if count == n {
			return text[:i] + "…"
		}
		count++
	}
	return text
}

// text renders a field as text.
func (f *field) text(vals values) string {
	if len(f.pieces) == 1 && f.pieces[0].code == nil {
		return f.pieces[0].text
	}
	var b strings.Builder
	for _, p := range f.pieces {
		if p.code == nil {
			b.WriteString(p.text)
			continue
		}
		v, ok := vals[p.code]
		b.WriteString(template.Text(v, !ok))
	}
	return b.String()
}

// texts renders a header or query value: one text for each time that its name is
// sent. What comes out empty, undefined or null is dropped.
func (f *field) texts(vals values) []string {
	switch {
	case f.list != nil:
		var all []string
		for i := range f.list {
			all = append(all, f.list[i].texts(vals)...)
		}
		return all
	case f.literal != nil:
		return spread(f.literal)
	}
	if c := f.single(); c != nil {
		return spread(vals[c])
	}
	if text := f.text(vals); text != "" {
		return []string{text}
	}
	return nil
}

// spread gives the texts of a value: those of its elements when it is an array.
func spread(v json.RawMessage) []string {
	if isNull(v) {
		return nil
	}
	if kindOf(v) == '[' {
		var all []string
		eachElement(v, func(e []byte) bool {
			if text := template.Text(e, false); text != "" && !isNull(e) {
				all = append(all, text)
			}
			return true
		})
		return all
	}
	if text := template.Text(v, false); text != "" {
		return []string{text}
	}
	return nil
}
