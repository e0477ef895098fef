package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"stepwell"
)

// This file reads JSON text without decoding it. Its walkers take text that
// checkJSON has accepted; on other text they stop early and never panic.

var (
	errNotJSON = errors.New("not valid JSON")
	errTooDeep = fmt.Errorf("JSON nested more than %d levels deep", stepwell.MaxJSONDepth)
	jsonNull   = json.RawMessage("null")
	emptyObj   = json.RawMessage("{}")
	emptyArr   = json.RawMessage("[]")
)

// checkJSON accepts one JSON value of at most stepwell.MaxJSONDepth levels. The
// depth is checked first: the validator recurses.
func checkJSON(b []byte) error {
	// With few opening brackets there is no depth to look for: two scans at memory speed.
	deep := bytes.Count(b, []byte("{"))+bytes.Count(b, []byte("[")) > stepwell.MaxJSONDepth
	if deep && deeperThan(b, stepwell.MaxJSONDepth) {
		return errTooDeep
	}
	if !gjson.ValidBytes(b) {
		return errNotJSON
	}
	return nil
}

// structural marks the bytes that matter between the values of a container.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

func deeperThan(b []byte, limit int) bool {
	depth := 0
	for i := 0; i < len(b); i++ {
		if !structural[b[i]] {
			continue
		}
		switch b[i] {
		case '"':
			i = stringEnd(b, i) - 1
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// kindOf is the first byte of a value: { [ " t f n, a digit or a minus; 0 when empty.
func kindOf(v []byte) byte {
	if i := skipSpace(v, 0); i < len(v) {
		return v[i]
	}
	return 0
}

func isNull(v []byte) bool { k := kindOf(v); return k == 'n' || k == 0 }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// shortString is how far stringEnd looks byte by byte: most strings end before a
// vector search has begun to pay.
const shortString = 24

// stringEnd is the index after the closing quote of the string that opens at i.
func stringEnd(b []byte, i int) int {
	j := i + 1
	for end := min(len(b), j+shortString); j < end; j++ {
		switch b[j] {
		case '"':
			return j + 1
		case '\\':
			j++
		}
	}
	for j < len(b) {
		k := bytes.IndexByte(b[j:], '"')
		if k < 0 {
			break
		}
		k += j
		slashes := 0
		for p := k - 1; p >= j && b[p] == '\\'; p-- {
			slashes++
		}
		j = k + 1
		if slashes%2 == 0 {
			return j
		}
	}
	return len(b)
}

// valueEnd is the index after the value that begins at i.
func valueEnd(b []byte, i int) int {
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		depth := 0
		for ; i < len(b); i++ {
			if !structural[b[i]] {
				continue
			}
			switch b[i] {
			case '"':
				i = stringEnd(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return len(b)
	}
	for i < len(b) {
		switch b[i] {
		case ',', ']', '}', ' ', '\n', '\r', '\t', ':':
			return i
		}
		i++
	}
	return i
}

// eachMember walks over an object. key is the quoted token as it stands.
func eachMember(obj []byte, yield func(key, value []byte) bool) {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return
	}
	for i = skipSpace(obj, i+1); i < len(obj) && obj[i] == '"'; {
		k := stringEnd(obj, i)
		key := obj[i:k]
		i = skipSpace(obj, k)
		if i >= len(obj) || obj[i] != ':' {
			return
		}
		i = skipSpace(obj, i+1)
		end := valueEnd(obj, i)
		if end == i || !yield(key, obj[i:end:end]) {
			return
		}
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ',' {
			return
		}
		i = skipSpace(obj, i+1)
	}
}

// eachElement walks over an array.
func eachElement(arr []byte, yield func(value []byte) bool) {
	i := skipSpace(arr, 0)
	if i >= len(arr) || arr[i] != '[' {
		return
	}
	for i = skipSpace(arr, i+1); i < len(arr) && arr[i] != ']'; {
		end := valueEnd(arr, i)
		if end == i || !yield(arr[i:end:end]) {
			return
		}
		i = skipSpace(arr, end)
		if i >= len(arr) || arr[i] != ',' {
			return
		}
		i = skipSpace(arr, i+1)
	}
}

func countElements(arr []byte) int64 {
	var n int64
	eachElement(arr, func([]byte) bool { n++; return true })
	return n
}

// keyIs compares a quoted key token with a name.
func keyIs(token []byte, name string) bool {
	if len(token) < 2 {
		return false
	}
	if bytes.IndexByte(token, '\\') < 0 {
		return string(token[1:len(token)-1]) == name
	}
	return unquote(token) == name
}

// unquote gives the text of a string token.
func unquote(token []byte) string {
	if len(token) >= 2 && bytes.IndexByte(token, '\\') < 0 {
		return string(token[1 : len(token)-1])
	}
	var s string
	if err := json.Unmarshal(token, &s); err != nil {
		return ""
	}
	return s
}

// member is the value of an object's key; of duplicates the last.
func member(obj []byte, name string) (value json.RawMessage, ok bool) {
	eachMember(obj, func(k, v []byte) bool {
		if keyIs(k, name) {
			value, ok = v, true
		}
		return true
	})
	return value, ok
}

// element is the value at an index of an array.
func element(arr []byte, index int) (value json.RawMessage, ok bool) {
	i := 0
	eachElement(arr, func(v []byte) bool {
		if i == index {
			value, ok = v, true
		}
		i++
		return !ok
	})
	return value, ok
}

// objectMap reads the members of an object; of duplicates the last.
func objectMap(obj []byte) MapScope {
	m := MapScope{}
	eachMember(obj, func(k, v []byte) bool { m[unquote(k)] = v; return true })
	return m
}

// quote is the JSON text of a string. Unlike encoding/json it leaves <, > and &
// alone; invalid UTF-8 becomes U+FFFD.
func quote(s string) json.RawMessage {
	return appendQuoted(make([]byte, 0, len(s)+2), s)
}

func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// arrayIndex reads a canonical array index: digits without a leading zero.
func arrayIndex(s string) (int, bool) {
	if s == "" || len(s) > 9 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
