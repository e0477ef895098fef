package js

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// maxDataDepth bounds the nesting of data: twice the 1,000 levels that any JSON
// of the service may have, so that what wraps it has room.
const maxDataDepth = 2000

var errDataSyntax = errors.New("an argument is no JSON")

// decodeJSON makes fresh JavaScript values of JSON text. It exists beside
// goja's JSON.parse because that one takes twice as long, allocates four times as
// often (measured on a page of 18 KB), and loses lone surrogates.
func decodeJSON(vm *goja.Runtime, text string) (goja.Value, error) {
	d := decoder{vm: vm, text: text}
	d.space()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if d.space(); d.pos != len(d.text) {
		return nil, errDataSyntax
	}
	return v, nil
}

// decoder walks over one JSON text.
type decoder struct {
	vm    *goja.Runtime
	text  string
	pos   int
	items []any // elements of the open arrays, a stack
}

func (d *decoder) space() {
	for d.pos < len(d.text) {
		switch d.text[d.pos] {
		case ' ', '\t', '\r', '\n':
			d.pos++
		default:
			return
		}
	}
}

// next gives the byte at the position, 0 at the end.
func (d *decoder) next() byte {
	if d.pos < len(d.text) {
		return d.text[d.pos]
	}
	return 0
}

func (d *decoder) value(depth int) (goja.Value, error) {
	if depth > maxDataDepth {
		return nil, fmt.Errorf("an argument nests deeper than %d levels", maxDataDepth)
	}
	switch c := d.next(); {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		s, err := d.str()
		return s, err
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	}
	for _, w := range words {
		if strings.HasPrefix(d.text[d.pos:], w.text) {
			d.pos += len(w.text)
			return w.value, nil
		}
	}
	return nil, errDataSyntax
}

// words are the literals of JSON; their values belong to no runtime.
var words = []struct {
	text  string
	value goja.Value
}{
	{"true", goja.New().ToValue(true)},
	{"false", goja.New().ToValue(false)},
	{"null", goja.Null()},
}

func (d *decoder) object(depth int) (goja.Value, error) {
	obj := d.vm.NewObject()
	d.pos++
	for d.space(); d.next() != '}'; d.space() {
		key, err := d.rawString()
		if err != nil {
			return nil, err
		}
		if d.space(); d.next() != ':' {
			return nil, errDataSyntax
		}
		d.pos++
		d.space()
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if key == "__proto__" {
			err = obj.DefineDataProperty(key, v, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE)
		} else {
			err = obj.Set(key, v)
		}
		if err != nil {
			return nil, err
		}
		if d.space(); d.next() != ',' {
			break
		}
		d.pos++
	}
	if d.next() != '}' {
		return nil, errDataSyntax
	}
	d.pos++
	return obj, nil
}

func (d *decoder) array(depth int) (goja.Value, error) {
	base := len(d.items)
	d.pos++
	for d.space(); d.next() != ']'; d.space() {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		d.items = append(d.items, v)
		if d.space(); d.next() != ',' {
			break
		}
		d.pos++
	}
	if d.next() != ']' {
		return nil, errDataSyntax
	}
	d.pos++
	arr := d.vm.NewArray(d.items[base:]...)
	clear(d.items[base:])
	d.items = d.items[:base]
	return arr, nil
}

func (d *decoder) number() (goja.Value, error) {
	start := d.pos
	whole := true
	for ; d.pos < len(d.text); d.pos++ {
		c := d.text[d.pos]
		if c == '.' || c == 'e' || c == 'E' || c == '+' {
			whole = false
		} else if c != '-' && (c < '0' || c > '9') {
			break
		}
	}
	text := d.text[start:d.pos]
	if whole && len(text) < 16 && text != "-0" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return d.vm.ToValue(n), nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, errDataSyntax
	}
	return d.vm.ToValue(f), nil
}

// str reads a string as a JavaScript value; a lone surrogate stays one.
func (d *decoder) str() (goja.Value, error) {
	start := d.pos
	s, err := d.rawString()
	if err != nil {
		return nil, err
	}
	if raw := d.text[start:d.pos]; strings.Contains(s, "\uFFFD") && strings.Contains(raw, `\u`) {
		return goja.StringFromUTF16(unescape16(raw[1 : len(raw)-1])), nil
	}
	return d.vm.ToValue(s), nil
}

// rawString reads a string; a lone surrogate becomes U+FFFD.
func (d *decoder) rawString() (string, error) {
	if d.next() != '"' {
		return "", errDataSyntax
	}
	rest := d.text[d.pos+1:]
	end := strings.IndexByte(rest, '"')
	if end < 0 {
		return "", errDataSyntax
	}
	if strings.IndexByte(rest[:end], '\\') < 0 {
		d.pos += end + 2
		return rest[:end], nil
	}
	for i := strings.IndexByte(rest, '\\'); i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			raw := d.text[d.pos : d.pos+i+2]
			d.pos += i + 2
			var s string
			if err := json.Unmarshal([]byte(raw), &s); err != nil {
				return "", errDataSyntax
			}
			return s, nil
		}
	}
	return "", errDataSyntax
}

// unescape16 gives the UTF-16 units of the valid inside of a JSON string.
func unescape16(s string) []uint16 {
	var units []uint16
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			r, size := utf8.DecodeRuneInString(s[i:])
			units = utf16.AppendRune(units, r)
			i += size
			continue
		}
		if s[i+1] == 'u' {
			n, _ := strconv.ParseUint(s[i+2:i+6], 16, 16) // valid: json.Unmarshal took it
			units = append(units, uint16(n))
			i += 6
			continue
		}
		simple := map[byte]uint16{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
		if u, ok := simple[s[i+1]]; ok {
			units = append(units, u)
		} else {
			units = append(units, uint16(s[i+1]))
		}
		i += 2
	}
	return units
}
