package template

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// inputNames are the names that the input has in every expression.
var inputNames = []string{"$", "sourceData"}

// notNames are identifiers by their letters that are words or constants of the
// language.
var notNames = strings.Fields(`
	await break case catch class const continue debugger default delete do else enum export extends
	false finally for function if implements import in instanceof interface let new null package private
	protected public return static super switch this throw true try typeof var void while with yield
	undefined NaN Infinity arguments eval`)

// inherited are properties that JavaScript finds on values without a key of
// that name: reading them takes JavaScript.
var inherited = strings.Fields(`
	length constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf
	__proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__`)

// Bare reports whether a source is the name of one top-level key, and which.
func Bare(source string) (name string, ok bool) {
	s := scanner{rest: source}
	name, ok = s.identifier()
	if !ok || !s.done() || slices.Contains(notNames, name) || slices.Contains(inputNames, name) {
		return "", false
	}
	return name, true
}

// PlainPath reports whether a source only reads one path of its input, and
// which: `(sourceData) => sourceData.a.b`, `s => s['x y'].b[0]`, `$.a.b`,
// `.a.b`, or a bare name. It can then be read without JavaScript, which keeps
// exact numbers: own keys of objects and elements of arrays. Where a parent on
// the way is missing or is neither object nor array, JavaScript must decide.
// The path is never empty.
func PlainPath(source string) (path []string, ok bool) {
	if name, ok := Bare(source); ok {
		return []string{name}, true
	}
	s := scanner{rest: source}
	if !s.root() {
		return nil, false
	}
	for !s.done() {
		key, ok := s.key()
		if !ok || slices.Contains(inherited, key) {
			return nil, false
		}
		path = append(path, key)
	}
	return path, len(path) > 0
}

// scanner reads the few tokens of plain paths. White space between tokens has
// no meaning to it.
type scanner struct{ rest string }

// root reads what stands before the first key: the head of an arrow function
// and its parameter, a name of the input, or nothing before a dot.
func (s *scanner) root() bool {
	if s.skip(); strings.HasPrefix(s.rest, ".") {
		return true
	}
	parens := s.punct("(")
	name, ok := s.identifier()
	if !ok || parens && !s.punct(")") {
		return false
	}
	// The language allows no line end before an arrow.
	if after := strings.TrimLeft(s.rest, " \t"); !strings.HasPrefix(after, "=>") {
		return !parens && slices.Contains(inputNames, name)
	}
	s.punct("=>")
	again, ok := s.identifier()
	return ok && again == name && !slices.Contains(notNames, name)
}

// key reads `.name`, `['name']` or `[0]`.
func (s *scanner) key() (string, bool) {
	if s.punct(".") {
		return s.identifier()
	}
	if !s.punct("[") {
		return "", false
	}
	s.skip()
	if s.rest == "" {
		return "", false
	}
	var key string
	if quote := s.rest[:1]; quote == `'` || quote == `"` {
		end := strings.Index(s.rest[1:], quote)
		if end < 0 || strings.ContainsAny(s.rest[1:1+end], "\\\n\r") {
			return "", false
		}
		key, s.rest = s.rest[1:1+end], s.rest[end+2:]
	} else {
		digits := len(s.rest) - len(strings.TrimLeft(s.rest, "0123456789"))
		key, s.rest = s.rest[:digits], s.rest[digits:]
		if key == "" || len(key) > 9 || key[0] == '0' && key != "0" {
			return "", false
		}
	}
	return key, s.punct("]")
}

// identifier reads an identifier or a word.
func (s *scanner) identifier() (string, bool) {
	s.skip()
	end := strings.IndexFunc(s.rest, func(r rune) bool {
		return r != '$' && r != '_' && (r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	})
	if end < 0 {
		end = len(s.rest)
	}
	name := s.rest[:end]
	if first, _ := utf8.DecodeRuneInString(name); name == "" || unicode.IsDigit(first) {
		return "", false
	}
	s.rest = s.rest[end:]
	return name, true
}

// punct reads one given token.
func (s *scanner) punct(token string) bool {
	s.skip()
	rest, ok := strings.CutPrefix(s.rest, token)
	if ok {
		s.rest = rest
	}
	return ok
}

// done reports whether nothing is left.
func (s *scanner) done() bool {
	s.skip()
	return s.rest == ""
}

func (s *scanner) skip() { s.rest = strings.TrimLeft(s.rest, " \t\r\n") }
