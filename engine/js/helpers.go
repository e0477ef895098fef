package js

import (
	"embed"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja_nodejs/buffer"
	"github.com/dop251/goja_nodejs/url"
)

//go:embed helpers/*.js
var helperFiles embed.FS

// helper is something that expressions have besides the language.
type helper struct {
	names   []string // what a source mentions that uses it
	install func(*session) error
}

// helpers are installed only when the source names them: there is no other way
// to reach a global than by its name, globalThis or this.
var helpers = []helper{
	{[]string{"Buffer", "crypto"}, (*session).installBuffer},
	{[]string{"crypto"}, (*session).installCrypto},
	{[]string{"URL", "URLSearchParams"}, (*session).installURL},
	{[]string{"atob", "btoa"}, (*session).installBase64},
	{[]string{"TextEncoder", "TextDecoder"}, (*session).installText},
	{[]string{"structuredClone"}, fromFile("structuredClone.js")},
	{[]string{"groupBy"}, fromFile("groupBy.js")},
	{[]string{"toLocaleString", "toLocaleDateString", "toLocaleTimeString"}, fromFile("locale.js")},
	{[]string{"RegExp", "constructor"}, fromFile("regexp.js")},
	{[]string{"console"}, (*session).installConsole},
}

// install gives the runtime the helpers that the program names.
func (s *session) install() error {
	all := s.program.names["globalThis"]
	for _, h := range helpers {
		wanted := all
		for _, name := range h.names {
			wanted = wanted || s.program.names[name]
		}
		if !wanted {
			continue
		}
		if err := h.install(s); err != nil {
			return fmt.Errorf("installing %s: %w", h.names[0], err)
		}
	}
	return nil
}

// global defines a global that code may replace but that no loop lists.
func (s *session) global(name string, value goja.Value) error {
	return s.vm.GlobalObject().DefineDataProperty(name, value, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE)
}

var compiledHelpers sync.Map // file name to *goja.Program

// runFile runs a helper written in JavaScript, whose value is a function, with
// native functions as its arguments.
func (s *session) runFile(name string, natives ...any) error {
	cached, ok := compiledHelpers.Load(name)
	if !ok {
		source, err := helperFiles.ReadFile("helpers/" + name)
		if err != nil {
			return err
		}
		tree, err := goja.Parse(name, string(source), parser.WithDisableSourceMaps)
		if err != nil {
			return err
		}
		compiled, err := goja.CompileAST(tree, true)
		if err != nil {
			return err
		}
		cached, _ = compiledHelpers.LoadOrStore(name, compiled)
	}
	v, err := s.vm.RunProgram(cached.(*goja.Program))
	if err != nil {
		return err
	}
	f, ok := goja.AssertFunction(v)
	if !ok {
		return fmt.Errorf("%s is no function", name)
	}
	args := make([]goja.Value, len(natives))
	for i, n := range natives {
		args[i] = s.vm.ToValue(n)
	}
	_, err = f(goja.Undefined(), args...)
	return err
}

func fromFile(name string) func(*session) error {
	return func(s *session) error { return s.runFile(name) }
}

// module runs the loader of a module of goja_nodejs and makes its exports global.
func (s *session) module(load func(*goja.Runtime, *goja.Object), names ...string) error {
	module := s.vm.NewObject()
	exports := s.vm.NewObject()
	if err := module.Set("exports", exports); err != nil {
		return err
	}
	load(s.vm, module)
	for _, name := range names {
		if err := s.global(name, exports.Get(name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) installBuffer() error {
	if err := s.module(buffer.Require, "Buffer"); err != nil {
		return err
	}
	return s.runFile("buffer.js")
}

func (s *session) installURL() error { return s.module(url.Require, "URL", "URLSearchParams") }

// installBase64 defines atob and btoa, which work on texts of Latin-1 characters.
func (s *session) installBase64() error {
	invalid := func(what string) goja.Value {
		return s.vm.NewTypeError("InvalidCharacterError: " + what)
	}
	btoa := func(call goja.FunctionCall) goja.Value {
		var b []byte
		for _, r := range call.Argument(0).String() {
			if r > 0xff {
				panic(invalid("btoa takes characters up to U+00FF only; encode with TextEncoder or Buffer first"))
			}
			b = append(b, byte(r))
		}
		return s.vm.ToValue(base64.StdEncoding.EncodeToString(b))
	}
	atob := func(call goja.FunctionCall) goja.Value {
		text := strings.Map(func(r rune) rune {
			if strings.ContainsRune("\t\n\f\r ", r) {
				return -1
			}
			return r
		}, call.Argument(0).String())
		if len(text)%4 == 0 {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "="), "=")
		}
		b, err := base64.RawStdEncoding.DecodeString(text)
		if err != nil {
			panic(invalid("the text is no base64"))
		}
		runes := make([]rune, len(b))
		for i, c := range b {
			runes[i] = rune(c)
		}
		return s.vm.ToValue(string(runes))
	}
	if err := s.global("btoa", s.vm.ToValue(btoa)); err != nil {
		return err
	}
	return s.global("atob", s.vm.ToValue(atob))
}

// installText defines TextEncoder and TextDecoder for UTF-8.
func (s *session) installText() error {
	encode := func(call goja.FunctionCall) goja.Value {
		return s.vm.ToValue(s.vm.NewArrayBuffer([]byte(strings.ToValidUTF8(call.Argument(0).String(), "\uFFFD"))))
	}
	decode := func(call goja.FunctionCall) goja.Value {
		b, ok := call.Argument(0).Export().(goja.ArrayBuffer)
		if !ok {
			return goja.Null()
		}
		from, to := call.Argument(1).ToInteger(), call.Argument(2).ToInteger()
		text := string(b.Bytes()[from:to])
		if !utf8.ValidString(text) {
			if call.Argument(3).ToBoolean() {
				return goja.Null()
			}
			text = strings.ToValidUTF8(text, "\uFFFD")
		}
		return s.vm.ToValue(text)
	}
	return s.runFile("text.js", encode, decode)
}

// installConsole defines console; what is logged becomes lines of the result.
func (s *session) installConsole() error {
	console := s.vm.NewObject()
	for _, level := range []string{"log", "info", "debug", "warn", "error", "trace", "dir", "table"} {
		prefix := ""
		if level == "warn" || level == "error" {
			prefix = level + ": "
		}
		write := func(call goja.FunctionCall) goja.Value {
			parts := make([]string, len(call.Arguments))
			for i, arg := range call.Arguments {
				parts[i] = s.shown(arg)
			}
			s.log(prefix + strings.Join(parts, " "))
			return goja.Undefined()
		}
		if err := console.Set(level, write); err != nil {
			return err
		}
	}
	return s.global("console", console)
}

// shown is how the console shows a value: texts as they are, errors by their
// message, anything else as JSON.
func (s *session) shown(v goja.Value) string {
	if obj, ok := v.(*goja.Object); ok {
		if obj.ClassName() == "Error" {
			return s.textOf(obj)
		}
		if text, ok, err := s.stringify(obj); ok && err == nil {
			return text
		}
	}
	return s.string(v)
}

// log adds a line to the console, within its bounds.
func (s *session) log(line string) {
	switch {
	case s.consoleUp:
	case len(s.console) >= maxConsole:
		s.consoleUp = true
		s.console = append(s.console, fmt.Sprintf("… more than %d lines", maxConsole))
	default:
		s.console = append(s.console, clip(line))
	}
}
