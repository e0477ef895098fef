package api

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"stepwell"
	"stepwell/api/v1"
)

// object reads the fields of a JSON object by name and type. A field that is absent
// or null reads as the zero value. The first field of a wrong type is remembered by
// the reader that all objects of one body share; unknown fields are never looked at.
//
// The text must have passed checkJSON.
type object struct {
	path    string // of the object inside the body, with a dot at its end; empty for the body
	members []field
	reader  *reader
}

type field struct {
	key   string
	value json.RawMessage
}

// maxFields bounds what is read of one object or array that has fixed fields or is
// made of objects: memory for its parts grows with their number, not with the body.
// It does not bound inputs, which are never taken apart.
const maxFields = 10_000

// reader collects the first error of one body.
type reader struct{ err error }

func (r *reader) fail(path, must string) {
	if r.err == nil {
		r.err = stepwell.Invalid("invalid_field", "'%s' must be %s", path, must)
	}
}

// readObject reads the members of an object; ok is false when raw is none.
func (r *reader) readObject(raw json.RawMessage, path string) (o object, ok bool) {
	o = object{path: path, reader: r}
	if len(raw) == 0 || raw[0] != '{' {
		return o, false
	}
	eachMember(raw, func(key string, value json.RawMessage) bool {
		if len(o.members) == maxFields {
			r.fail(strings.TrimSuffix(path, "."), "an object of at most 10,000 fields")
			return false
		}
		o.members = append(o.members, field{key, value})
		return true
	})
	return o, true
}

// eachMember visits the members of an object in a checked text until visit says no.
func eachMember(raw json.RawMessage, visit func(key string, value json.RawMessage) (more bool)) {
	s := &jsonText{b: raw, i: 1}
	for {
		s.space()
		if s.i >= len(raw) || raw[s.i] != '"' {
			return
		}
		start := s.i
		s.skip()
		key := string(keyText(raw[start:s.i]))
		s.space()
		s.i++ // the colon
		s.space()
		start = s.i
		s.skip()
		if !visit(key, raw[start:s.i:s.i]) {
			return
		}
		s.space()
		if !s.take(',') {
			return
		}
	}
}

// skip moves past one value of a checked text, or to its end.
func (t *jsonText) skip() {
	open := 0
	for t.i < len(t.b) {
		switch t.b[t.i] {
		case '"':
			t.str()
		case '{', '[':
			open++
			t.i++
			continue
		case '}', ']':
			open--
			t.i++
		case ',', ':', ' ', '\t', '\n', '\r':
			t.i++
			continue
		default:
			for t.i < len(t.b) && !strings.ContainsRune(",:]} \t\n\r", rune(t.b[t.i])) {
				t.i++
			}
		}
		if open == 0 {
			return
		}
	}
}

// get gives the value of a field; nil when it is absent or null.
func (o object) get(name string) json.RawMessage {
	raw := o.find(name)
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// find gives the value of a field; nil when it is absent.
func (o object) find(name string) json.RawMessage {
	for i := range o.members {
		if o.members[i].key == name {
			return o.members[i].value
		}
	}
	return nil
}

func (o object) fail(name, must string) { o.reader.fail(o.path+name, must) }

// text reads a text.
func (o object) text(name string) string {
	raw := o.get(name)
	if raw == nil {
		return ""
	}
	s, ok := unquote(raw)
	if !ok {
		o.fail(name, "text")
	}
	return s
}

func unquote(raw json.RawMessage) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	return string(keyText(raw)), true
}

// boolean reads true or false; nil when absent.
func (o object) boolean(name string) *bool {
	raw := o.get(name)
	if raw == nil {
		return nil
	}
	b := string(raw) == "true"
	if !b && string(raw) != "false" {
		o.fail(name, "true or false")
	}
	return &b
}

// flag reads true or false; false when absent.
func (o object) flag(name string) bool {
	b := o.boolean(name)
	return b != nil && *b
}

// whole reads a whole number from low to high; 0 when absent.
func (o object) whole(name string, low, high int64) int64 {
	raw := o.get(name)
	if raw == nil {
		return 0
	}
	n, ok := wholeNumber(raw)
	if !ok || n < low || n > high {
		o.fail(name, wholeFrom(low, high))
		return 0
	}
	return n
}

func wholeFrom(low, high int64) string {
	return "a whole number from " + strconv.FormatInt(low, 10) + " to " + strconv.FormatInt(high, 10)
}

// wholeNumber reads a JSON number without a fraction: 5, 5.0 and 5e0 are equal.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// rawObject reads an object as it is written; nil when absent.
func (o object) rawObject(name string) json.RawMessage {
	raw := o.get(name)
	if raw != nil && raw[0] != '{' {
		o.fail(name, "an object")
		return nil
	}
	return raw
}

// object reads an object; ok is false when it is absent or none.
func (o object) object(name string) (object, bool) {
	raw := o.rawObject(name)
	if raw == nil {
		return object{reader: o.reader}, false
	}
	return o.reader.readObject(raw, o.path+name+".")
}

// elements reads an array; nil when absent, empty when empty.
func (o object) elements(name string) []json.RawMessage {
	raw := o.get(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		o.fail(name, "an array")
		return nil
	}
	all := []json.RawMessage{}
	s := &jsonText{b: raw, i: 1}
	for {
		s.space()
		if s.i >= len(raw) || raw[s.i] == ']' {
			return all
		}
		start := s.i
		s.skip()
		if len(all) == maxFields {
			o.fail(name, "an array of at most 10,000 elements")
			return nil
		}
		all = append(all, raw[start:s.i:s.i])
		s.space()
		if !s.take(',') {
			return all
		}
	}
}

// objects reads an array of objects with read.
func objects[T any](o object, name string, read func(object) T) []T {
	elements := o.elements(name)
	if elements == nil {
		return nil
	}
	all := make([]T, 0, len(elements))
	for i, raw := range elements {
		path := o.path + name + "[" + strconv.Itoa(i) + "]"
		element, ok := o.reader.readObject(raw, path+".")
		if !ok {
			o.reader.fail(path, "an object")
		}
		if o.reader.err != nil {
			return nil
		}
		all = append(all, read(element))
	}
	return all
}

// texts reads an array of texts; nil when absent.
func (o object) texts(name string) []string {
	elements := o.elements(name)
	if elements == nil {
		return nil
	}
	all := make([]string, 0, len(elements))
	for _, raw := range elements {
		s, ok := unquote(raw)
		if !ok {
			o.fail(name, "an array of texts")
			return nil
		}
		all = append(all, s)
	}
	return all
}

// scalars reads an object whose values are texts, numbers, booleans or arrays of
// these; members that are null are left out.
func (o object) scalars(name string) map[string]json.RawMessage {
	inner, ok := o.object(name)
	if !ok || len(inner.members) == 0 {
		return nil
	}
	all := make(map[string]json.RawMessage, len(inner.members))
	for _, m := range inner.members {
		if string(m.value) == "null" {
			continue
		}
		if !scalar(m.value) && !inner.scalarArray(m.key) {
			inner.fail(m.key, "text, a number, true, false or an array of these")
			return nil
		}
		all[m.key] = m.value
	}
	return all
}

func scalar(raw json.RawMessage) bool {
	return raw[0] != '{' && raw[0] != '[' && raw[0] != 'n'
}

func (o object) scalarArray(name string) bool {
	raw := o.get(name)
	if raw[0] != '[' {
		return false
	}
	for _, e := range o.elements(name) {
		if !scalar(e) && string(e) != "null" {
			return false
		}
	}
	return true
}

// time reads an RFC 3339 time; zero when absent.
func (o object) time(name string) v1.Time {
	raw := o.get(name)
	if raw == nil {
		return v1.Time{}
	}
	if s, ok := unquote(raw); ok {
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return v1.Time{Time: t}
		}
	}
	o.fail(name, mustBeTime)
	return v1.Time{}
}

const mustBeTime = "a date and time such as 2030-01-02T03:04:05Z"

// optional reads a field of a PUT or PATCH body with one of the readers above.
func optional[T any](o object, name string, read func(string) T) v1.Optional[T] {
	raw := o.find(name)
	switch {
	case raw == nil:
		return v1.Optional[T]{}
	case string(raw) == "null":
		return v1.Null[T]()
	default:
		return v1.Some(read(name))
	}
}
