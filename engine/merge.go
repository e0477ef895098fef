package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// Merge joins the pages of a pull in order. Arrays are concatenated; objects are
// merged deeply: nested arrays are concatenated, but one equal to the page
// before's is kept once; the last scalar wins, and null never replaces an array or
// object. No page gives null, one page itself. Pages must be valid JSON.
//
// It fails with the error of pages, or with a *StepError when a page holds
// something else where the pages before had a non-empty array: items would be lost.
func Merge(pages iter.Seq2[json.RawMessage, error]) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := MergeTo(&b, pages); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// MergeTo is Merge into a writer. Pages that are arrays are written as they come
// and none is kept; of objects the merged value is in memory once.
func MergeTo(w io.Writer, pages iter.Seq2[json.RawMessage, error]) error {
	m := merger{w: w}
	for page, err := range pages {
		if err != nil {
			return err
		}
		if err := m.add(page); err != nil {
			return err
		}
	}
	return m.finish()
}

// merger holds the state of one merge.
type merger struct {
	w      io.Writer
	page   int   // pages added
	root   *node // nil before the first page, and while arrays are streamed
	stream bool  // the merged value is an array, whose elements go to w at once
	wrote  bool  // an element was written
}

// node is the merged value at one place.
type node struct {
	kind     byte
	scalar   json.RawMessage  // of kinds other than { and [; memory of its page
	elements []byte           // of an array, separated by commas
	last     json.RawMessage  // the array that came last; memory of its page
	page     int              // the page that last gave this place a value
	keys     []string         // of an object, as quoted tokens, in the order of their first sight
	children map[string]*node // by the same tokens
	mark     int              // the page whose members are being collected
	slot     int              // where among these
}

func (m *merger) add(page json.RawMessage) error {
	m.page++
	kind := kindOf(page)
	if m.stream {
		switch {
		case kind == '[':
			return m.writeElements(page)
		case isNull(page):
			return nil
		case m.wrote:
			return m.clash("its top", kind)
		}
		m.stream = false // only empty arrays so far
	}
	if kind == '[' && (m.root == nil || !m.root.holdsItems()) {
		m.root, m.stream = nil, true
		return m.writeElements(page)
	}
	if m.root == nil {
		m.root = &node{}
	}
	return m.merge(m.root, page, "its top")
}

// writeElements appends the inside of an array to the output.
func (m *merger) writeElements(page json.RawMessage) error {
	in := inside(page)
	if len(in) == 0 {
		return nil
	}
	sep := []byte{','}
	if !m.wrote {
		sep[0] = '['
	}
	m.wrote = true
	if _, err := m.w.Write(sep); err != nil {
		return fmt.Errorf("merging pages: %w", err)
	}
	if _, err := m.w.Write(in); err != nil {
		return fmt.Errorf("merging pages: %w", err)
	}
	return nil
}

// inside is what stands between the brackets of an array, without space around it.
func inside(array json.RawMessage) []byte {
	array = bytes.TrimSpace(array)
	return bytes.TrimSpace(array[1 : len(array)-1])
}

func (m *merger) finish() error {
	var out []byte
	switch {
	case m.stream && m.wrote:
		out = []byte{']'}
	case m.stream:
		out = emptyArr
	case m.root == nil:
		out = jsonNull
	default:
		return m.root.write(m.w)
	}
	if _, err := m.w.Write(out); err != nil {
		return fmt.Errorf("merging pages: %w", err)
	}
	return nil
}

// merge puts a value into its place.
func (m *merger) merge(n *node, v json.RawMessage, place string) error {
	kind := kindOf(v)
	if n.kind != kind {
		if kind == 'n' && (n.kind == '{' || n.kind == '[') {
			return nil
		}
		if n.holdsItems() {
			return m.clash(place, kind)
		}
		*n = node{kind: kind, mark: n.mark, slot: n.slot}
	}
	before := n.page
	n.page = m.page
	switch kind {
	case '[':
		same := before == m.page-1 && bytes.Equal(n.last, v)
		n.last = v
		if in := inside(v); len(in) > 0 && !same {
			if len(n.elements) > 0 {
				n.elements = append(n.elements, ',')
			}
			n.elements = append(n.elements, in...)
		}
	case '{':
		return m.mergeObject(n, v)
	default:
		n.scalar = v
	}
	return nil
}

// holdsItems reports whether there is a non-empty array in the value.
func (n *node) holdsItems() bool {
	if len(n.elements) > 0 {
		return true
	}
	for _, child := range n.children {
		if child.holdsItems() {
			return true
		}
	}
	return false
}

func (m *merger) mergeObject(n *node, v json.RawMessage) error {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	type entry struct {
		place *node
		key   string
		value json.RawMessage
	}
	var entries []entry
	eachMember(v, func(k, value []byte) bool {
		if bytes.IndexByte(k, '\\') >= 0 {
			k = quote(unquote(k)) // one spelling for each key
		}
		child := n.children[string(k)]
		if child == nil {
			child = &node{}
			n.children[string(k)] = child
			n.keys = append(n.keys, string(k))
		}
		if child.mark == m.page { // of duplicate keys the last wins
			entries[child.slot].value = value
			return true
		}
		child.mark, child.slot = m.page, len(entries)
		entries = append(entries, entry{child, string(k), value})
		return true
	})
	for _, e := range entries {
		if err := m.merge(e.place, e.value, e.key); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) clash(place string, kind byte) error {
	what := map[byte]string{'{': "an object", '[': "an array", '"': "a text", 't': "a boolean", 'f': "a boolean"}[kind]
	if what == "" {
		what = "a number"
	}
	return &StepError{Message: fmt.Sprintf("pagination: page %d has %s at %s where the pages before have items of another shape: merging them would lose these", m.page, what, cut(place, 60))}
}

// write gives the merged value.
func (n *node) write(w io.Writer) error {
	e := &errWriter{w: w}
	n.writeTo(e)
	if e.err != nil {
		return fmt.Errorf("merging pages: %w", e.err)
	}
	return nil
}

func (n *node) writeTo(w *errWriter) {
	switch n.kind {
	case '[':
		w.text("[")
		w.bytes(n.elements)
		w.text("]")
	case '{':
		for i, key := range n.keys {
			if i == 0 {
				w.text("{")
			} else {
				w.text(",")
			}
			w.text(key)
			w.text(":")
			n.children[key].writeTo(w)
		}
		if len(n.keys) == 0 {
			w.text("{")
		}
		w.text("}")
	default:
		w.bytes(n.scalar)
	}
}

// errWriter remembers the first error.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) bytes(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

func (e *errWriter) text(s string) { e.bytes([]byte(s)) }
