package js

import (
	"fmt"
	"math"
	"strings"

	"github.com/dop251/goja"
	"github.com/tidwall/gjson"
)

// stateKey is the key of the input whose object transforms may change.
const stateKey = "persistedState"

// stored is a key of the state before the call: as this runtime writes it, and as it came,
// which may have digits that a Number has not.
type stored struct{ text, raw string }

// snapshot keeps the JSON of each key of the state before the call. doc is the input that
// holds it.
func (s *session) snapshot(state *goja.Object, doc string) map[string]stored {
	before := make(map[string]stored)
	for _, key := range state.Keys() {
		if text, ok, err := s.stringify(state.Get(key)); ok && err == nil {
			before[key] = stored{text, text}
		}
	}
	gjson.Parse(doc).ForEach(func(name, object gjson.Result) bool {
		if name.String() != stateKey {
			return true
		}
		object.ForEach(func(key, value gjson.Result) bool {
			if was, ok := before[key.String()]; ok {
				before[key.String()] = stored{was.text, value.Raw}
			}
			return true
		})
		return true
	})
	return before
}

// state gives the JSON of the state after the call. Keys that are undefined are
// gone. A value that is no JSON changes nothing, and a warning names it.
func (s *session) state(state *goja.Object, before map[string]stored) []byte {
	var b strings.Builder
	b.WriteByte('{')
	for _, key := range state.Keys() {
		value := s.property(state, key)
		if goja.IsUndefined(value) {
			continue
		}
		text, problem := s.stateValue(key, value)
		if problem != "" {
			s.warn("persistedState." + problem + " is no JSON and is left out")
		}
		if text == "" || text == before[key].text {
			text = before[key].raw
		}
		if text == "" {
			continue
		}
		name, _, err := s.stringify(s.vm.ToValue(key))
		if err != nil {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(name + ":" + text)
	}
	b.WriteByte('}')
	return []byte(b.String())
}

// stateValue gives the JSON of one key, "" when it has none, and the path of the
// first thing in it that is no JSON. Inside an object such a thing is left out,
// in an array it is null.
func (s *session) stateValue(key string, value goja.Value) (text, problem string) {
	raw := s.bigIntReplacer()
	replacer := func(call goja.FunctionCall) goja.Value {
		v := call.Argument(1)
		if !isJSON(v) {
			if problem == "" {
				problem = key
				if at := call.Argument(0).String(); at != "" {
					problem = fmt.Sprintf("%s (at %s)", key, at)
				}
			}
			return goja.Undefined()
		}
		return raw(call)
	}
	out, err := s.stringer(goja.Undefined(), value, s.vm.ToValue(replacer))
	if err != nil {
		return "", key
	}
	if goja.IsUndefined(out) {
		return "", problem
	}
	return out.String(), problem
}

// isJSON reports whether a value alone has a JSON form; undefined counts as
// absent.
func isJSON(v goja.Value) bool {
	switch v := v.(type) {
	case *goja.Object:
		_, callable := goja.AssertFunction(v)
		return !callable
	case *goja.Symbol:
		return false
	}
	if goja.IsNumber(v) {
		f := v.ToFloat()
		return !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return true
}

// maxWarnings bounds the warnings of one call.
const maxWarnings = 10

func (s *session) warn(text string) {
	if len(s.warnings) < maxWarnings {
		s.warnings = append(s.warnings, clip(text))
	}
}
