package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"stepwell"
)

// Values of response filters.
const (
	FilterKeys   = "KEYS"
	FilterValues = "VALUES"
	FilterBoth   = "BOTH"

	FilterRemove = "REMOVE"
	FilterMask   = "MASK"
	FilterFail   = "FAIL"

	FilterField = "FIELD"
	FilterItem  = "ITEM"
	FilterEntry = "ENTRY"

	// DefaultMask stands where a filter without a maskValue masks.
	DefaultMask = "[filtered]"
)

// Filters are the compiled, enabled response filters of a tool, in their order.
// They are immutable and safe for concurrent use.
type Filters struct {
	fail    []*filter // FAIL
	replace []*filter // REMOVE and MASK
}

type filter struct {
	label        string
	keys, values bool
	pattern      *regexp.Regexp
	remove       bool
	scope        string
	mask         string
	quoted       json.RawMessage // mask as JSON
}

// FilterError is a match of a filter whose action is FAIL. It names filter and path
// and holds no data.
type FilterError struct {
	Filter string // the filter's name, else its id, else its place from 1
	Path   string // for example `items[3].email`
}

func (e *FilterError) Error() string {
	return fmt.Sprintf("Response filter '%s' refuses the result: it matches at %s", e.Filter, e.Path)
}

// CompileFilters prepares response filters; disabled ones are checked and left out.
// The error names the filter and what is wrong with it.
func CompileFilters(defs []stepwell.ResponseFilter) (*Filters, error) {
	f := &Filters{}
	for i := range defs {
		c, err := compileFilter(&defs[i], i)
		if err != nil {
			return nil, err
		}
		switch {
		case defs[i].Enabled != nil && !*defs[i].Enabled:
		case defs[i].Action == FilterFail:
			f.fail = append(f.fail, c)
		default:
			f.replace = append(f.replace, c)
		}
	}
	return f, nil
}

func compileFilter(def *stepwell.ResponseFilter, index int) (*filter, error) {
	c := &filter{label: def.Name, scope: def.Scope, mask: def.MaskValue, remove: def.Action == FilterRemove}
	if c.label == "" {
		c.label = def.ID
	}
	if c.label == "" {
		c.label = strconv.Itoa(index + 1)
	}
	bad := func(format string, args ...any) (*filter, error) {
		return nil, &fieldError{"responseFilters", fmt.Sprintf("filter '%s': ", cut(c.label, 60)) + fmt.Sprintf(format, args...)}
	}
	switch def.Target {
	case FilterKeys, FilterValues, FilterBoth:
		c.keys, c.values = def.Target != FilterValues, def.Target != FilterKeys
	default:
		return bad("'target' must be KEYS, VALUES or BOTH")
	}
	switch def.Action {
	case FilterRemove, FilterMask, FilterFail:
	default:
		return bad("'action' must be REMOVE, MASK or FAIL")
	}
	switch def.Scope {
	case "":
		c.scope = FilterField
	case FilterField, FilterItem, FilterEntry:
	default:
		return bad("'scope' must be FIELD, ITEM or ENTRY")
	}
	if def.Pattern == "" {
		return bad("missing 'pattern'")
	}
	_, err := regexp.Compile(def.Pattern)
	if err == nil {
		c.pattern, err = regexp.Compile("(?i)" + def.Pattern)
	}
	if err != nil {
		return bad("'pattern' is no valid RE2 expression")
	}
	if c.mask == "" {
		c.mask = DefaultMask
	}
	c.quoted = quote(c.mask)
	return c, nil
}

// Empty reports whether Apply changes nothing.
func (f *Filters) Empty() bool { return len(f.fail) == 0 && len(f.replace) == 0 }

// Apply gives data with the filters applied. FAIL filters look at all of the data
// as it is, before the others; a match is a *FilterError. Without a match the
// result is data itself.
func (f *Filters) Apply(data json.RawMessage) (json.RawMessage, error) {
	root := bytes.TrimSpace(data) // the walkers trim what they find inside
	if len(f.fail) > 0 {
		w := walk{filters: f.fail, keys: map[string]int{}}
		if err := w.refuse(nil, root); err != nil {
			return nil, err
		}
	}
	if len(f.replace) == 0 {
		return data, nil
	}
	w := walk{filters: f.replace, keys: map[string]int{}}
	out, up := w.value(make([]byte, 0, len(data)), nil, root, 0)
	whole := up.entry
	if whole == nil {
		whole = up.item
	}
	switch {
	case whole == nil && up.removed: // the data itself is a scalar that a FIELD filter removes
		return emptyObj, nil
	case whole == nil && !w.changed:
		return data, nil
	case whole == nil:
		return out, nil
	case whole.remove:
		return emptyObj, nil
	}
	return whole.quoted, nil
}

// maxCachedKeys bounds the memory of the verdicts on keys in one Apply.
const maxCachedKeys = 10_000

// walk is one pass over data.
type walk struct {
	filters []*filter
	keys    map[string]int // by quoted key: the index of the first filter that matches it
	changed bool
	path    []byte // of the place, kept by refuse only
}

// match gives the first filter that matches a node: its key (a quoted token, nil
// when it has none) or its scalar value.
func (w *walk) match(key, value []byte) (f *filter, byKey bool) {
	at := len(w.filters)
	if key != nil {
		at = w.matchKey(key)
	}
	kind := kindOf(value)
	if kind != '{' && kind != '[' && kind != 'n' {
		text := scalarText(value)
		for _, f := range w.filters[:at] {
			if f.values && f.pattern.Match(text) {
				return f, false
			}
		}
	}
	if at < len(w.filters) {
		return w.filters[at], true
	}
	return nil, false
}

func (w *walk) matchKey(key []byte) int {
	if i, ok := w.keys[string(key)]; ok {
		return i
	}
	found := len(w.filters)
	text := scalarText(key)
	for i, f := range w.filters {
		if f.keys && f.pattern.Match(text) {
			found = i
			break
		}
	}
	if len(w.keys) < maxCachedKeys {
		w.keys[string(key)] = found
	}
	return found
}

// scalarText is the text that a pattern is tried on.
func scalarText(v []byte) []byte {
	if len(v) < 2 || v[0] != '"' {
		return v
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	return []byte(unquote(v))
}

// upward is what a node asks of what encloses it.
type upward struct {
	removed bool    // the node is to be left out; nothing of it was written
	item    *filter // acts on the nearest enclosing array element
	entry   *filter // acts on the outermost one
}

// add keeps the first of each, in the order of the document.
func (u *upward) add(v upward) {
	if u.item == nil {
		u.item = v.item
	}
	if u.entry == nil {
		u.entry = v.entry
	}
}

// value writes a node as the filters leave it. arrays counts the arrays around it.
// What lies inside a removed or masked node can still act on an enclosing element.
func (w *walk) value(out []byte, key, v []byte, arrays int) ([]byte, upward) {
	f, byKey := w.match(key, v)
	var up upward
	field := f != nil && f.scope == FilterField
	if f != nil && !field {
		if f.scope == FilterItem {
			up.item = f
		} else {
			up.entry = f
		}
	}
	start := len(out)
	var inner upward
	switch kindOf(v) {
	case '{':
		out, inner = w.object(out, v, arrays)
	case '[':
		out, inner = w.array(out, v, arrays)
	default:
		out = append(out, v...)
	}
	up.add(inner)
	if field {
		w.changed = true
		out = out[:start]
		if f.remove {
			up.removed = true
		} else {
			out = append(out, f.masked(v, byKey)...)
		}
	}
	return out, up
}

// masked is what stands in place of a node under MASK FIELD.
func (f *filter) masked(v []byte, byKey bool) []byte {
	if byKey || kindOf(v) != '"' {
		return f.quoted
	}
	return quote(f.pattern.ReplaceAllLiteralString(unquote(v), f.mask))
}

func (w *walk) object(out []byte, obj []byte, arrays int) ([]byte, upward) {
	var up upward
	out = append(out, '{')
	first := len(out)
	eachMember(obj, func(k, v []byte) bool {
		start := len(out)
		if start > first {
			out = append(out, ',')
		}
		out = append(append(out, k...), ':')
		var child upward
		out, child = w.value(out, k, v, arrays)
		up.add(child)
		if child.removed {
			out = out[:start]
		}
		return true
	})
	return append(out, '}'), up
}

func (w *walk) array(out []byte, arr []byte, arrays int) ([]byte, upward) {
	var up upward
	out = append(out, '[')
	first := len(out)
	eachElement(arr, func(v []byte) bool {
		start := len(out)
		if start > first {
			out = append(out, ',')
		}
		begin := len(out)
		var child upward
		out, child = w.value(out, nil, v, arrays+1)
		act := child.item
		if arrays > 0 {
			up.add(upward{entry: child.entry})
		} else if child.entry != nil {
			act = child.entry
		}
		switch {
		case act != nil:
			w.changed = true
			if out = out[:begin]; act.remove {
				out = out[:start]
			} else {
				out = append(out, act.quoted...)
			}
		case child.removed:
			out = out[:start]
		}
		return true
	})
	return append(out, ']'), up
}

// refuse looks for a match of a FAIL filter.
func (w *walk) refuse(key, v []byte) (err error) {
	if f, _ := w.match(key, v); f != nil {
		path := cut(string(bytes.TrimPrefix(w.path, []byte("."))), 200)
		if path == "" {
			path = "its top"
		}
		return &FilterError{Filter: cut(f.label, 60), Path: path}
	}
	depth := len(w.path)
	eachMember(v, func(k, v []byte) bool {
		w.path = appendKey(w.path[:depth], k)
		err = w.refuse(k, v)
		return err == nil
	})
	i := 0
	eachElement(v, func(v []byte) bool {
		w.path = append(strconv.AppendInt(append(w.path[:depth], '['), int64(i), 10), ']')
		i++
		err = w.refuse(nil, v)
		return err == nil
	})
	w.path = w.path[:depth]
	return err
}

// appendKey appends `.name`, or `["odd name"]`.
func appendKey(path, key []byte) []byte {
	for _, c := range key[1 : len(key)-1] {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return append(append(append(path, '['), key...), ']')
		}
	}
	return append(append(path, '.'), key[1:len(key)-1]...)
}
