package engine

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"stepwell"
)

// maxFills bounds the work of one ApplyDefaults: schemas can refer to themselves in
// ways that double it with every level.
const maxFills = 1_000_000

// ApplyDefaults fills the defaults that the schema gives for absent properties into
// inputs, an object (nil counts as {}): at its top, and inside objects and arrays of
// objects that are there or are filled in. It follows $ref inside the schema and allOf. A present
// null is a value. The result is inputs itself when nothing is missing; the error
// says that the schema takes too much work.
func (s *Schema) ApplyDefaults(inputs json.RawMessage) (json.RawMessage, error) {
	if len(inputs) == 0 {
		inputs = emptyObj
	}
	f := filler{schema: s, left: maxFills}
	filled := f.fill(s.raw, inputs, 0)
	if f.left <= 0 {
		return nil, plainError("the schema is too intricate to fill its defaults in")
	}
	return filled, nil
}

type filler struct {
	schema *Schema
	left   int // calls of fill that remain
}

// fill gives a value with the defaults of one schema filled in.
func (f *filler) fill(schema, value json.RawMessage, depth int) json.RawMessage {
	f.left--
	if f.left <= 0 || depth > stepwell.MaxJSONDepth || kindOf(schema) != '{' {
		return value
	}
	if ref, ok := member(schema, "$ref"); ok {
		value = f.fill(f.schema.resolve(unquote(ref)), value, depth+1)
	}
	if all, ok := member(schema, "allOf"); ok {
		eachElement(all, func(sub []byte) bool {
			value = f.fill(sub, value, depth+1)
			return true
		})
	}
	switch kindOf(value) {
	case '{':
		if props, ok := member(schema, "properties"); ok {
			return f.object(objectMap(props), value, depth)
		}
	case '[':
		if items, ok := member(schema, "items"); ok && kindOf(items) == '{' {
			return f.array(items, value, depth)
		}
	}
	return value
}

// object fills the members that are there, and appends those that are missing in
// the order of their names.
func (f *filler) object(props MapScope, value json.RawMessage, depth int) json.RawMessage {
	out, changed := []byte{'{'}, false
	put := func(k, v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, k...), ':'), v...)
	}
	eachMember(value, func(k, v []byte) bool {
		name := unquote(k)
		filled := v
		if sub, ok := props[name]; ok {
			filled = f.fill(sub, v, depth+1)
			changed = changed || !bytes.Equal(filled, v)
			props[name] = nil
		}
		put(k, filled)
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if def, ok := f.schema.defaultOf(props[name], depth); ok {
			put(quote(name), f.fill(props[name], def, depth+1))
			changed = true
		}
	}
	if !changed {
		return value
	}
	return append(out, '}')
}

func (f *filler) array(items, value json.RawMessage, depth int) json.RawMessage {
	out, changed := []byte{'['}, false
	eachElement(value, func(e []byte) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		filled := f.fill(items, e, depth+1)
		changed = changed || !bytes.Equal(filled, e)
		out = append(out, filled...)
		return true
	})
	if !changed {
		return value
	}
	return append(out, ']')
}

// defaultOf is the default of a schema, its own or that of what its $ref names.
func (s *Schema) defaultOf(schema json.RawMessage, depth int) (json.RawMessage, bool) {
	for ; depth <= stepwell.MaxJSONDepth && kindOf(schema) == '{'; depth++ {
		if def, ok := member(schema, "default"); ok {
			return def, true
		}
		ref, ok := member(schema, "$ref")
		if !ok {
			break
		}
		schema = s.resolve(unquote(ref))
	}
	return nil, false
}

// resolve finds what a JSON Pointer reference (`#/…`) names; nil for other forms.
func (s *Schema) resolve(ref string) json.RawMessage {
	if ref == "#" {
		return s.raw
	}
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := s.raw
	for _, part := range strings.Split(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if kindOf(at) == '[' {
			i, ok := arrayIndex(part)
			if !ok {
				return nil
			}
			at, _ = element(at, i)
			continue
		}
		at, _ = member(at, part)
	}
	return at
}
