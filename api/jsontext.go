package api

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"slices"
	"unicode/utf8"

	"stepwell"
)

// faultKind says in which way a body is not acceptable JSON.
type faultKind int

const (
	faultNone   faultKind = iota
	faultSyntax           // it is no JSON
	faultText             // JSON with U+0000, a lone surrogate or invalid UTF-8
	faultDepth            // more than stepwell.MaxJSONDepth levels
)

// fault is the first thing wrong with a body, and the byte where it is.
type fault struct {
	kind faultKind
	at   int
}

// smallObject is how many keys of an object are compared one by one before a hash
// table takes over.
const smallObject = 16

// member is one key of an object that is being read, by position in the body.
type member struct {
	start, end int32 // the key's text with its quotes
	next       int32 // where the next key starts; 0 for the last one read so far
}

// span is a part of the body to leave out.
type span struct{ start, end int }

// jsonText reads a JSON text once: is it JSON, is its text storable, how deep is
// it, and which members lose to a later one of the same name.
type jsonText struct {
	b       []byte
	i       int
	depth   int
	found   fault
	members []member // of all objects that are open, innermost last
	losers  []span
	seed    maphash.Seed
}

// checkJSON reads a body of less than 2 GiB. It gives the body without the members
// that a later member of the same name replaces; most bodies have none, and are
// given back as they are.
func checkJSON(b []byte) ([]byte, fault) {
	t := &jsonText{b: b, seed: bodySeed}
	t.space()
	if !t.value() {
		if t.found.kind == faultDepth {
			return nil, t.found
		}
		return nil, fault{faultSyntax, t.i}
	}
	t.space()
	if t.i != len(b) {
		return nil, fault{faultSyntax, t.i}
	}
	if t.found.kind != faultNone {
		return nil, t.found
	}
	return t.without(), fault{}
}

// bodySeed keeps callers from choosing keys that collide.
var bodySeed = maphash.MakeSeed()

func (t *jsonText) without() []byte {
	if len(t.losers) == 0 {
		return t.b
	}
	slices.SortFunc(t.losers, func(a, b span) int { return a.start - b.start })
	kept := make([]byte, 0, len(t.b))
	from := 0
	for _, s := range t.losers {
		if s.start < from { // inside a member that is left out itself
			continue
		}
		kept = append(kept, t.b[from:s.start]...)
		from = s.end
	}
	return append(kept, t.b[from:]...)
}

func (t *jsonText) note(kind faultKind, at int) {
	if t.found.kind == faultNone {
		t.found = fault{kind, at}
	}
}

func (t *jsonText) space() {
	for t.i < len(t.b) {
		switch t.b[t.i] {
		case ' ', '\t', '\n', '\r':
			t.i++
		default:
			return
		}
	}
}

// take moves past one byte if it is c.
func (t *jsonText) take(c byte) bool {
	if t.i < len(t.b) && t.b[t.i] == c {
		t.i++
		return true
	}
	return false
}

// value reads one value; false when it is no JSON or too deep.
func (t *jsonText) value() bool {
	if t.i >= len(t.b) {
		return false
	}
	switch c := t.b[t.i]; {
	case c == '{':
		return t.nested(t.object)
	case c == '[':
		return t.nested(t.array)
	case c == '"':
		return t.str()
	case c == 't':
		return t.word("true")
	case c == 'f':
		return t.word("false")
	case c == 'n':
		return t.word("null")
	default:
		return t.number()
	}
}

func (t *jsonText) nested(read func() bool) bool {
	if t.depth++; t.depth > stepwell.MaxJSONDepth {
		t.found = fault{faultDepth, t.i}
		return false
	}
	t.i++
	t.space()
	ok := read()
	t.depth--
	return ok
}

func (t *jsonText) array() bool {
	if t.take(']') {
		return true
	}
	for {
		if !t.value() {
			return false
		}
		t.space()
		if t.take(']') {
			return true
		}
		if !t.take(',') {
			return false
		}
		t.space()
	}
}

func (t *jsonText) object() bool {
	if t.take('}') {
		return true
	}
	first := len(t.members)
	var index map[uint64]int32 // latest member by hash of its key, for large objects
	for {
		start := t.i
		if t.i >= len(t.b) || t.b[t.i] != '"' || !t.str() {
			return false
		}
		index = t.member(first, start, index)
		t.space()
		if !t.take(':') {
			return false
		}
		t.space()
		if !t.value() {
			return false
		}
		t.space()
		if t.take('}') {
			t.members = t.members[:first]
			return true
		}
		if !t.take(',') {
			return false
		}
		t.space()
	}
}

// member notes the key between start and the current place, and which earlier
// member of the object (from first on) it replaces.
func (t *jsonText) member(first, start int, index map[uint64]int32) map[uint64]int32 {
	if n := len(t.members); n > first {
		t.members[n-1].next = int32(start)
	}
	m := member{start: int32(start), end: int32(t.i)}
	key := keyText(t.b[start:t.i])
	siblings := t.members[first:]
	earlier := -1
	switch {
	case index != nil:
		h := maphash.Bytes(t.seed, key)
		if j, ok := index[h]; ok && bytes.Equal(t.keyOf(siblings[j]), key) {
			earlier = int(j)
		}
		index[h] = int32(len(siblings))
	case len(siblings) < smallObject:
		for j := len(siblings) - 1; j >= 0 && earlier < 0; j-- {
			if bytes.Equal(t.keyOf(siblings[j]), key) {
				earlier = j
			}
		}
	default:
		index = make(map[uint64]int32, 4*smallObject)
		for j, s := range siblings {
			index[maphash.Bytes(t.seed, t.keyOf(s))] = int32(j)
		}
		return t.member(first, start, index)
	}
	if earlier >= 0 {
		t.losers = append(t.losers, span{int(siblings[earlier].start), int(siblings[earlier].next)})
	}
	t.members = append(t.members, m)
	return index
}

func (t *jsonText) keyOf(m member) []byte { return keyText(t.b[m.start:m.end]) }

// keyText is the text of a quoted key.
func keyText(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return inner
	}
	return []byte(s)
}

func (t *jsonText) word(w string) bool {
	if !bytes.HasPrefix(t.b[t.i:], []byte(w)) {
		return false
	}
	t.i += len(w)
	return true
}

func (t *jsonText) digits() bool {
	from := t.i
	for t.i < len(t.b) && t.b[t.i] >= '0' && t.b[t.i] <= '9' {
		t.i++
	}
	return t.i > from
}

func (t *jsonText) number() bool {
	t.take('-')
	if !t.take('0') && !t.digits() {
		return false
	}
	if t.take('.') && !t.digits() {
		return false
	}
	if t.take('e') || t.take('E') {
		if !t.take('+') {
			t.take('-')
		}
		return t.digits()
	}
	return true
}

func (t *jsonText) str() bool {
	for t.i++; t.i < len(t.b); {
		switch c := t.b[t.i]; {
		case c == '"':
			t.i++
			return true
		case c == '\\':
			if !t.escape() {
				return false
			}
		case c < 0x20:
			return false
		case c < utf8.RuneSelf:
			t.i++
		default:
			r, n := utf8.DecodeRune(t.b[t.i:])
			if r == utf8.RuneError && n == 1 {
				t.note(faultText, t.i)
			}
			t.i += n
		}
	}
	return false
}

// escape reads a backslash and what belongs to it.
func (t *jsonText) escape() bool {
	at := t.i
	if t.i+1 >= len(t.b) {
		return false
	}
	switch t.b[t.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		t.i += 2
		return true
	case 'u':
	default:
		return false
	}
	r, ok := t.unit(t.i)
	if !ok {
		return false
	}
	t.i += 6
	switch {
	case r == 0, r >= 0xDC00 && r <= 0xDFFF:
		t.note(faultText, at)
	case r >= 0xD800 && r <= 0xDBFF:
		low, ok := t.unit(t.i)
		if !ok || low < 0xDC00 || low > 0xDFFF {
			t.note(faultText, at)
			return true
		}
		t.i += 6
	}
	return true
}

// unit reads \uXXXX at a place, without moving.
func (t *jsonText) unit(at int) (r rune, ok bool) {
	if at+6 > len(t.b) || t.b[at] != '\\' || t.b[at+1] != 'u' {
		return 0, false
	}
	for _, c := range t.b[at+2 : at+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
