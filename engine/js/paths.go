package js

import (
	"sort"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

const (
	maxPaths     = 200 // paths of one parameter; a source with more gets all of it
	maxPathDepth = 16  // keys of a path; a longer one is cut, which sends more
)

// paths says which parts of a value are read: a tree of keys, each leaf of which
// is read whole. The zero value reads nothing.
type paths struct {
	whole bool
	keys  map[string]*paths
	count int // of the calls of add that changed something
}

// add marks what stands at the end of a path as read whole. An empty path is
// everything.
func (p *paths) add(path []string) {
	if len(path) > maxPathDepth {
		path = path[:maxPathDepth]
	}
	if p.count++; p.count > maxPaths {
		path = nil
	}
	at := p
	for _, key := range path {
		if at.whole {
			return
		}
		next := at.keys[key]
		if next == nil {
			next = &paths{}
			if at.keys == nil {
				at.keys = make(map[string]*paths)
			}
			at.keys[key] = next
		}
		at = next
	}
	at.whole, at.keys = true, nil
}

// list gives every path, in order; nil and false when everything is read.
func (p *paths) list() (all [][]string, some bool) {
	if p.whole {
		return nil, false
	}
	var walk func(at *paths, prefix []string)
	walk = func(at *paths, prefix []string) {
		if at.whole {
			all = append(all, append([]string(nil), prefix...))
			return
		}
		for _, key := range at.sorted() {
			walk(at.keys[key], append(prefix, key))
		}
	}
	walk(p, nil)
	return all, true
}

func (p *paths) sorted() []string {
	keys := make([]string, 0, len(p.keys))
	for k := range p.keys {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// signature is a text that is equal for equal paths.
func (p *paths) signature() string {
	if p.whole {
		return "*"
	}
	var b strings.Builder
	b.WriteByte('{')
	for _, key := range p.sorted() {
		b.WriteString(key)
		b.WriteByte(0)
		b.WriteString(p.keys[key].signature())
	}
	b.WriteByte('}')
	return b.String()
}

// prune appends the parts of a JSON value that are read. Objects lose the keys
// that are not; arrays and scalars are kept whole.
func (p *paths) prune(to []byte, value []byte) []byte {
	return p.pruneResult(to, gjson.Parse(unsafe.String(unsafe.SliceData(value), len(value))))
}

func (p *paths) pruneResult(to []byte, value gjson.Result) []byte {
	if p.whole || !value.IsObject() {
		return append(to, value.Raw...)
	}
	to = append(to, '{')
	first := true
	value.ForEach(func(key, element gjson.Result) bool {
		next := p.keys[key.Str]
		if next == nil {
			return true
		}
		if !first {
			to = append(to, ',')
		}
		first = false
		to = append(to, key.Raw...)
		to = append(to, ':')
		to = next.pruneResult(to, element)
		return true
	})
	return append(to, '}')
}

// appendQuoted appends a text as JSON.
func appendQuoted(to []byte, s string) []byte { return gjson.AppendJSONString(to, s) }
