package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"stepwell"
)

// This file says what persistedState means: what a transform changed in it, when two
// values are equal, what fits into it, and what of it is hidden.

// ChangeState gives what stands differently in a state after a transform: keys whose
// JSON value is another one, and keys that are gone. Both states are objects.
func ChangeState(before, after json.RawMessage) *stepwell.StateChange {
	change := &stepwell.StateChange{}
	old := objectMap(before)
	var set []byte
	eachMember(after, func(k, v []byte) bool {
		key := unquote(k)
		was, there := old[key]
		delete(old, key)
		if !there || !EqualJSON(was, v) {
			set = append(append(append(append(set, ','), k...), ':'), v...)
		}
		return true
	})
	if set != nil {
		set[0] = '{'
		change.Set = append(set, '}')
	}
	if len(old) > 0 {
		change.Removed = slices.Sorted(maps.Keys(old))
	}
	return change
}

// ApplyState gives a state with a change made. Keys keep their places, new ones come last.
func ApplyState(state json.RawMessage, c *stepwell.StateChange) json.RawMessage {
	set := objectMap(c.Set)
	out := []byte{'{'}
	put := func(k, v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), v...)
	}
	eachMember(state, func(k, v []byte) bool {
		key := unquote(k)
		if value, ok := set[key]; ok {
			put(k, value)
			delete(set, key)
		} else if !slices.Contains(c.Removed, key) {
			put(k, v)
		}
		return true
	})
	eachMember(c.Set, func(k, v []byte) bool {
		if _, fresh := set[unquote(k)]; fresh {
			put(k, v)
		}
		return true
	})
	return append(out, '}')
}

// StateValues takes a state apart and makes its values compact. problem says what is over
// a limit, naming the key; it is empty when the state may be stored.
func StateValues(state json.RawMessage) (values map[string]json.RawMessage, problem string) {
	values = map[string]json.RawMessage{}
	eachMember(state, func(k, v []byte) bool {
		key := unquote(k)
		values[key] = compactJSON(nil, v)
		switch n := utf8.RuneCountInString(key); {
		case n == 0 || n > stepwell.MaxStateKey:
			problem = fmt.Sprintf("a key has %d characters, and may have 1 to %d", n, stepwell.MaxStateKey)
		case strings.ContainsRune(key, 0), strings.ContainsRune(key, utf8.RuneError) && strings.Contains(strings.ToLower(string(k)), `\ud`):
			problem = "a key holds U+0000 or half a surrogate pair"
		case len(values[key]) > stepwell.MaxStateValue:
			problem = fmt.Sprintf("the value of the key '%s' has %d bytes, and may have %d", key, len(values[key]), stepwell.MaxStateValue)
		}
		return problem == ""
	})
	if problem == "" && len(values) > stepwell.MaxStateKeys {
		problem = fmt.Sprintf("it has %d keys, and may have %d", len(values), stepwell.MaxStateKeys)
	}
	return values, problem
}

// compactJSON appends a value without white space, its texts in plain UTF-8; of duplicate
// keys the last value stands, at the place of the first.
func compactJSON(to, v []byte) []byte {
	switch kindOf(v) {
	case '{':
		last := objectMap(v)
		to = append(to, '{')
		eachMember(v, func(k, _ []byte) bool {
			value, fresh := last[unquote(k)]
			if !fresh {
				return true
			}
			delete(last, unquote(k))
			if to[len(to)-1] != '{' {
				to = append(to, ',')
			}
			to = compactJSON(append(compactText(to, k), ':'), value)
			return true
		})
		return append(to, '}')
	case '[':
		to = append(to, '[')
		eachElement(v, func(e []byte) bool {
			if to[len(to)-1] != '[' {
				to = append(to, ',')
			}
			to = compactJSON(to, e)
			return true
		})
		return append(to, ']')
	case '"':
		return compactText(to, v)
	}
	return append(to, strings.TrimSpace(string(v))...)
}

// compactText appends a text token in its shortest form. Half of a surrogate pair has no
// form but its escape.
func compactText(to, token []byte) []byte {
	text := unquote(token)
	if strings.ContainsRune(text, utf8.RuneError) {
		return append(to, token...)
	}
	return appendQuoted(to, text)
}

// EqualJSON reports whether two texts are the same JSON value: white space, the order of
// keys and the spelling of texts and numbers do not matter. Numbers are compared exactly.
func EqualJSON(a, b json.RawMessage) bool {
	kind := kindOf(a)
	if string(a) == string(b) {
		return true
	}
	if numeric(kind) && numeric(kindOf(b)) {
		return decimalOf(string(a)) == decimalOf(string(b))
	}
	if kind != kindOf(b) {
		return false
	}
	switch kind {
	case '{':
		left, right := objectMap(a), objectMap(b)
		if len(left) != len(right) {
			return false
		}
		for k, v := range left {
			if w, ok := right[k]; !ok || !EqualJSON(v, w) {
				return false
			}
		}
		return true
	case '[':
		left, right := elements(a), elements(b)
		return slices.EqualFunc(left, right, func(v, w json.RawMessage) bool { return EqualJSON(v, w) })
	case '"':
		return string(compactText(nil, a)) == string(compactText(nil, b))
	}
	return true // of true, false and null each letter begins only one
}

func numeric(kind byte) bool { return kind == '-' || kind >= '0' && kind <= '9' }

func elements(arr []byte) []json.RawMessage {
	var all []json.RawMessage
	eachElement(arr, func(e []byte) bool { all = append(all, e); return true })
	return all
}

// decimal is a number as sign, digits without zeros at either end, and the power of ten
// of the last one.
type decimal struct {
	negative bool
	digits   string
	exponent string
}

// decimalOf reads a JSON number exactly, whatever its size.
func decimalOf(number string) decimal {
	number = strings.TrimSpace(number)
	rest, negative := strings.CutPrefix(number, "-")
	mantissa, exponent := rest, ""
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa, exponent = rest[:i], rest[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return decimal{}
	}
	shift := len(digits) - len(trimmed) - len(fraction)
	return decimal{negative, trimmed, shifted(exponent, shift)}
}

// MaskState gives a value in which every text that is a secret reads as mask.
func MaskState(v json.RawMessage, secrets map[string]bool, mask string) json.RawMessage {
	if len(secrets) == 0 {
		return v
	}
	return mapTexts(v, nil, func(text string, token, _ json.RawMessage) json.RawMessage {
		if secrets[text] {
			return quote(mask)
		}
		return token
	})
}

// KeepMasked gives a value in which every text that is mask is replaced by what stands at
// its place in the stored value; without one there it stays.
func KeepMasked(v, stored json.RawMessage, mask string) json.RawMessage {
	return mapTexts(v, stored, func(text string, token, was json.RawMessage) json.RawMessage {
		if text == mask && was != nil {
			return was
		}
		return token
	})
}

// mapTexts replaces the texts of a value, keys apart. beside is a second value that is
// walked along, nil where it has nothing at the place.
func mapTexts(v, beside json.RawMessage, replace func(text string, token, beside json.RawMessage) json.RawMessage) json.RawMessage {
	switch kindOf(v) {
	case '"':
		return replace(unquote(v), v, beside)
	case '{':
		others := objectMap(beside)
		out := []byte{'{'}
		eachMember(v, func(k, value []byte) bool {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, k...), ':'), mapTexts(value, others[unquote(k)], replace)...)
			return true
		})
		return append(out, '}')
	case '[':
		others := elements(beside)
		out, i := []byte{'['}, 0
		eachElement(v, func(e []byte) bool {
			var other json.RawMessage
			if i < len(others) {
				other = others[i]
			}
			if i++; i > 1 {
				out = append(out, ',')
			}
			out = append(out, mapTexts(e, other, replace)...)
			return true
		})
		return append(out, ']')
	}
	return v
}

// shifted adds a small number to a decimal exponent of any length.
func shifted(exponent string, by int) string {
	n, ok := new(big.Int).SetString(strings.TrimPrefix(exponent, "+"), 10)
	if !ok {
		n = new(big.Int)
	}
	return n.Add(n, big.NewInt(int64(by))).String()
}

const stateKey = "persistedState"

// reachState finds out which expressions of a tool can reach persistedState: runs of a
// tool without any need no state at all.
func (t *Tool) reachState(ctx context.Context, ev Evaluator) error {
	steps := t.Steps
	if t.Output != nil {
		steps = append(slices.Clip(steps), t.Output)
	}
	var exprs []Expression
	var asked []*code
	var owners []*Step
	for _, s := range steps {
		for _, c := range s.codes() {
			if c.path == nil {
				exprs, asked, owners = append(exprs, c.expr), append(asked, c), append(owners, s)
				continue
			}
			c.expr.State = false // a path changes nothing
			s.readsState = s.readsState || c.path[0] == stateKey
		}
	}
	if len(exprs) > 0 {
		reads, err := ev.Reads(ctx, exprs, stateKey)
		if err != nil {
			return fmt.Errorf("analyzing expressions: %w", err)
		}
		for i, c := range asked {
			c.expr.State = c.expr.State && reads[i]
			owners[i].readsState = owners[i].readsState || reads[i]
		}
	}
	for _, s := range steps {
		t.ReadsState = t.ReadsState || s.readsState
	}
	return nil
}

// codes are all expressions of a step.
func (s *Step) codes() []*code {
	var all []*code
	for _, c := range []*code{s.selector, s.run, s.stop} {
		if c != nil {
			all = append(all, c)
		}
	}
	for _, f := range append(append([]field{s.url, s.body, s.sizeExpr}, s.query...), s.headers...) {
		all = f.codes(all)
	}
	return all
}

// ReadsState reports whether an expression of the step can reach persistedState.
func (s *Step) ReadsState() bool { return s.readsState }

// WritesState reports whether the step's code can change persistedState.
func (s *Step) WritesState() bool { return s.run != nil && s.run.expr.State }

// ChangedValues picks the values of the keys that a change sets.
func ChangedValues(values map[string]json.RawMessage, c *stepwell.StateChange) map[string]json.RawMessage {
	set := map[string]json.RawMessage{}
	for key := range objectMap(c.Set) {
		set[key] = values[key]
	}
	return set
}
