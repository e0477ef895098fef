package js

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"stepwell/engine"
)

// unavailable are globals that other JavaScript environments have.
var unavailable = regexp.MustCompile(`^ReferenceError: (Intl|WeakRef|FinalizationRegistry|Atomics|SharedArrayBuffer|WebAssembly|` +
	`setTimeout|setInterval|setImmediate|fetch|XMLHttpRequest|require|module|exports|process|window|document) is not defined`)

// readable turns messages of goja into ones for the author of an expression.
func readable(message string) string {
	message = regexpNoise.ReplaceAllString(message, "SyntaxError: Invalid regular expression: $1")
	message = strings.ReplaceAll(message, "(?=)\\", "\\")
	message = strings.Replace(message, "Unexpected token ILLEGAL", "Unexpected character or unterminated text", 1)
	return message
}

// discreet turns the text of something thrown into one that shows no data, and
// tells about globals that expressions lack.
func discreet(message string) string {
	if m := unavailable.FindStringSubmatch(message); m != nil {
		return message + ": expressions have no " + m[1]
	}
	for _, r := range revealed {
		if r.pattern.MatchString(message) {
			return r.pattern.ReplaceAllString(message, r.instead)
		}
	}
	return message
}

// regexpNoise is what goja puts around the message of a regular expression engine.
var regexpNoise = regexp.MustCompile(`(?s)^SyntaxError: Invalid regular expression.*error parsing regexp: (.*?)\)*$`)

// revealed are texts in which goja shows a value, which may be data.
var revealed = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?s)^TypeError: Value is not an object: .*`), "TypeError: a value that is no object is called or used like one"},
	{regexp.MustCompile(`(?s)^TypeError: Expecting a function in instanceof check.*`), "TypeError: the right side of instanceof is no function"},
	{regexp.MustCompile(`(?s)^TypeError: Not a function: .*`), "TypeError: a value that is no function is called"},
	{regexp.MustCompile(`(?s)^TypeError: (Property '[^']*' of object ).* is not a function$`), "TypeError: a value that is no function is called"},
	{regexp.MustCompile(`(?s)^TypeError: .* is not a function$`), "TypeError: a value that is no function is called"},
	{regexp.MustCompile(`(?s)^TypeError: Receiver is not an object: .*`), "TypeError: a property is set on a value that is no object"},
	{regexp.MustCompile(`(?s)^(\w+Error): Cannot convert .* to a BigInt$`), "$1: a value cannot be converted to a BigInt"},
	{regexp.MustCompile(`(?s)^SyntaxError: (invalid character|Unexpected token|Unexpected end of JSON|unexpected end of JSON|invalid escape|json:).*`), "SyntaxError: a text that is no JSON is parsed"},
}

// thrown describes what a run of user code threw.
func (s *session) thrown(err error) *engine.ExpressionError {
	var overflow *goja.StackOverflowError
	if errors.As(err, &overflow) {
		return limitError(callsMessage)
	}
	var ex *goja.Exception
	if !errors.As(err, &ex) {
		return &engine.ExpressionError{Message: clip(err.Error())}
	}
	for _, frame := range ex.Stack() {
		pos := frame.Position()
		if frame.SrcName() == sourceName && pos.Line > 0 {
			return s.errorAt(s.textOf(ex.Value()), pos.Line, pos.Column)
		}
	}
	return s.errorAt(s.textOf(ex.Value()), 0, 0)
}

var stackPlace = regexp.MustCompile(`\b` + sourceName + `:(\d+):(\d+)\(`)

// rejected describes why a promise was rejected.
func (s *session) rejected(reason goja.Value) *engine.ExpressionError {
	if obj, ok := reason.(*goja.Object); ok {
		if stack, ok := s.property(obj, "stack").(goja.String); ok {
			if m := stackPlace.FindStringSubmatch(stack.String()); m != nil {
				line, _ := strconv.Atoi(m[1])
				column, _ := strconv.Atoi(m[2])
				return s.errorAt(s.textOf(reason), line, column)
			}
		}
	}
	return s.errorAt(s.textOf(reason), 0, 0)
}

// errorAt makes an error with a place in the user's source; line 0 is none.
func (s *session) errorAt(text string, line, column int) *engine.ExpressionError {
	return &engine.ExpressionError{Message: clip(discreet(readable(text))) + s.program.place(line, column)}
}

// textOf is the text of a thrown value: kind and message of an error, the text
// of a scalar, the JSON of anything else.
func (s *session) textOf(v goja.Value) string {
	obj, ok := v.(*goja.Object)
	if !ok {
		return "Error: " + v.String()
	}
	name, message := s.property(obj, "name"), s.property(obj, "message")
	if message != nil && !goja.IsUndefined(message) {
		kind := "Error"
		if str, ok := name.(goja.String); ok {
			kind = str.String()
		}
		return strings.TrimSuffix(kind+": "+s.string(message), ": ")
	}
	if text, ok, _ := s.stringify(obj); ok {
		return "Error: " + text
	}
	return "Error: a thrown value without a message"
}

// property reads a property, which may run user code and throw.
func (s *session) property(obj *goja.Object, name string) (v goja.Value) {
	if ex := s.vm.Try(func() { v = obj.Get(name) }); ex != nil {
		return goja.Undefined()
	}
	return v
}

// string converts a value to text, which may run user code and throw.
func (s *session) string(v goja.Value) (text string) {
	if ex := s.vm.Try(func() { text = v.String() }); ex != nil {
		return ""
	}
	return text
}
