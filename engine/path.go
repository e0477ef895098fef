package engine

import (
	"encoding/json"
	"strings"
)

// dotted is a compiled cursorPath or itemsPath: a literal key first, then a
// dotted path in which numbers index arrays.
type dotted struct {
	whole string // as written, without a leading `$.`
}

func parseDotted(path string) dotted {
	path = strings.TrimSpace(path)
	if path == "$" {
		return dotted{}
	}
	return dotted{whole: strings.TrimPrefix(path, "$.")}
}

// read gives the value at the path, as far as data has it. At each object the
// rest of the path is tried as one key first, so keys with dots can be named.
func (d dotted) read(data json.RawMessage) (json.RawMessage, bool) {
	rest := d.whole
	for rest != "" {
		switch kindOf(data) {
		case '{':
			if v, ok := member(data, rest); ok {
				return v, true
			}
			head, tail, more := strings.Cut(rest, ".")
			v, ok := member(data, head)
			if !ok || !more {
				return nil, false
			}
			data, rest = v, tail
		case '[':
			head, tail, _ := strings.Cut(rest, ".")
			i, ok := arrayIndex(head)
			if !ok {
				return nil, false
			}
			if data, ok = element(data, i); !ok {
				return nil, false
			}
			rest = tail
		default:
			return nil, false
		}
	}
	return data, true
}

// plainRead is what reading a plain path in Go came to.
type plainRead int

const (
	readValue     plainRead = iota
	readUndefined           // JavaScript would give undefined
	readThrows              // JavaScript would throw: a property of null or undefined
	readNeedsJS             // a property of a text, a number or a boolean, or a named one of an array
)

// readPlain follows the segments after the first from value. thrown is what
// JavaScript would throw, when the result is readThrows.
func readPlain(value json.RawMessage, segments []string) (v json.RawMessage, how plainRead, thrown string) {
	for i, seg := range segments {
		next, how := property(value, seg)
		switch {
		case how == readValue:
			value = next
		case how == readUndefined && i+1 < len(segments):
			return nil, readThrows, cannotRead(segments[i+1], "undefined")
		case how == readThrows:
			return nil, readThrows, cannotRead(seg, "null")
		default:
			return nil, how, ""
		}
	}
	return value, readValue, ""
}

func cannotRead(name, of string) string {
	return "TypeError: Cannot read property '" + name + "' of " + of
}

// property reads value[name] as JavaScript does, as long as that needs no
// prototype; template.PlainPath leaves out the names that every object inherits.
func property(value json.RawMessage, name string) (json.RawMessage, plainRead) {
	switch kindOf(value) {
	case '{':
		if v, ok := member(value, name); ok {
			return v, readValue
		}
		return nil, readUndefined
	case '[':
		if i, ok := arrayIndex(name); ok {
			if v, ok := element(value, i); ok {
				return v, readValue
			}
			return nil, readUndefined
		}
		return nil, readNeedsJS
	case 'n', 0:
		return nil, readThrows
	}
	return nil, readNeedsJS
}
