package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"math"
)

// Merge joins the pages of a pull in order. Arrays are concatenated; objects are
// merged deeply: nested arrays are concatenated, but one equal to the page
// before's is kept once; the last scalar wins, and null never replaces an array or
// object. No page gives null, one page itself. Pages must be valid JSON; the memory of
// one is not used after the next is asked for.
//
// It fails with the error of pages, or with a *StepError when a page holds
// something else where the pages before had items: these would be lost.
func Merge(pages iter.Seq2[json.RawMessage, error]) (json.RawMessage, error) {
	var b bytes.Buffer
	m := merger{w: &b, pages: pages, keep: math.MaxInt}
	if err := m.run(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// keptArray bounds, in bytes, a nested array that MergeTo holds in memory.
const keptArray = 1 << 20

// MergeTo is Merge into a writer, for results that do not fit into memory. Pages
// that are arrays are written as they come. Of objects, what is not a large array is
// in memory once; for each array over 1 MiB the pages are walked once more, so
// ranging over pages again must give the same ones.
func MergeTo(w io.Writer, pages iter.Seq2[json.RawMessage, error]) error {
	m := merger{w: w, pages: pages, keep: keptArray}
	return m.run()
}

// merger holds the state of one merge.
type merger struct {
	w      io.Writer
	pages  iter.Seq2[json.RawMessage, error]
	keep   int   // bytes of a nested array that are held in memory
	page   int   // pages added
	root   *node // nil before the first page, and while arrays are streamed
	stream bool  // the merged value is an array, whose elements go to w at once
	wrote  bool  // an element was written
}

// node is the merged value at one place.
type node struct {
	kind     byte
	scalar   json.RawMessage  // of kinds other than { and [
	elements []byte           // of an array, separated by commas; nil when there are too many
	size     int              // bytes of all elements
	last     print            // of the array that came last
	page     int              // the page that last gave this place a value
	keys     []string         // of an object, as quoted tokens, in the order of their first sight
	children map[string]*node // by the same tokens
	mark     int              // the page whose members are being collected
	slot     int              // where among these
}

func (m *merger) run() error {
	for page, err := range m.pages {
		if err != nil {
			return err
		}
		if err := m.add(page); err != nil {
			return err
		}
	}
	return m.finish()
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
	sep := comma
	if !m.wrote {
		sep = opening
	}
	m.wrote = true
	return m.put(sep, in)
}

// inside is what stands between the brackets of an array, without space around it.
func inside(array json.RawMessage) []byte {
	array = bytes.TrimSpace(array)
	return bytes.TrimSpace(array[1 : len(array)-1])
}

func (m *merger) finish() error {
	switch {
	case m.stream && m.wrote:
		return m.put(closing)
	case m.stream:
		return m.put(emptyArr)
	case m.root == nil:
		return m.put(jsonNull)
	}
	return m.write(m.root, nil)
}

var comma, opening, closing = []byte{','}, []byte{'['}, []byte{']'}

func (m *merger) put(texts ...[]byte) error {
	for _, text := range texts {
		if _, err := m.w.Write(text); err != nil {
			return fmt.Errorf("merging pages: %w", err)
		}
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
		now := printOf(v)
		same := before == m.page-1 && n.last == now
		n.last = now
		if in := inside(v); len(in) > 0 && !same {
			if n.size += len(in) + 1; n.size > m.keep {
				n.elements = nil
			} else {
				n.elements = append(append(n.elements, comma...), in...)
			}
		}
	case '{':
		return m.mergeObject(n, v)
	default:
		n.scalar = bytes.Clone(v)
	}
	return nil
}

// print tells arrays apart without keeping the pages that they stand in: by length and a
// hash that nobody can aim at, since its seed is this process's own.
type print struct {
	size int
	hash uint64
}

var printSeed = maphash.MakeSeed()

func printOf(v []byte) print { return print{len(v), maphash.Bytes(printSeed, v)} }

// holdsItems reports whether there is a non-empty array in the value.
func (n *node) holdsItems() bool {
	if n.size > 0 {
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

// write writes the merged value of the place that path leads to.
func (m *merger) write(n *node, path []string) error {
	switch n.kind {
	case '[':
		if n.size > m.keep {
			return m.writeAgain(path, n.size)
		}
		return m.put(opening, bytes.TrimPrefix(n.elements, comma), closing)
	case '{':
		sep := "{"
		for _, key := range n.keys {
			if err := m.put([]byte(sep + key + ":")); err != nil {
				return err
			}
			if err := m.write(n.children[key], append(path, key)); err != nil {
				return err
			}
			sep = ","
		}
		if sep == "{" {
			return m.put(emptyObj)
		}
		return m.put([]byte{'}'})
	}
	return m.put(n.scalar)
}

// writeAgain walks the pages once more for the elements of one array.
func (m *merger) writeAgain(path []string, size int) error {
	sep, written := opening, 0
	var last print
	for page, err := range m.pages {
		if err != nil {
			return err
		}
		v := page
		for _, key := range path {
			v, _ = member(v, unquote([]byte(key)))
		}
		if kindOf(v) != '[' {
			last = print{}
			continue
		}
		now := printOf(v)
		same := last == now
		last = now
		if in := inside(v); len(in) > 0 && !same {
			written += len(in) + 1
			if err := m.put(sep, in); err != nil {
				return err
			}
			sep = comma
		}
	}
	if written != size {
		return errors.New("merging pages: the pages changed between two walks over them")
	}
	return m.put(closing)
}
