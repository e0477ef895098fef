package js

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"

	"stepwell/engine"
)

// session is one evaluation of one expression, in a runtime of its own: nothing
// that it changes is seen by another.
type session struct {
	vm        *goja.Runtime
	program   *program
	json      *goja.Object
	stringer  goja.Callable // JSON.stringify
	console   []string
	consoleUp bool // the console is full
	warnings  []string
}

// arguments are the data of one expression.
type arguments struct {
	names []string
	docs  []string // JSON text by parameter; "" for nothing
	state bool     // give persistedState back
}

// evaluate runs a program. A panic is goja's own, out of its depth in user code.
func evaluate(p *program, args arguments) (result engine.EvalResult) {
	s := &session{vm: goja.New(), program: p}
	defer func() {
		if r := recover(); r != nil {
			result = engine.EvalResult{Err: panicked(r)}
		}
		result.Console, result.Warnings = s.console, s.warnings
	}()
	s.vm.SetMaxCallStackSize(maxCalls)
	s.vm.SetParserOptions(refusal(parser.Option(nil), s.vm))
	s.json = s.vm.Get("JSON").ToObject(s.vm)
	s.stringer, _ = goja.AssertFunction(s.json.Get("stringify"))
	if err := s.install(); err != nil {
		return engine.EvalResult{Err: &engine.ExpressionError{Message: err.Error()}}
	}
	values := make([]goja.Value, len(args.docs), len(args.docs)+1)
	for i, doc := range args.docs {
		values[i] = goja.Undefined()
		if doc == "" {
			continue
		}
		v, err := decodeJSON(s.vm, doc)
		if err != nil {
			return engine.EvalResult{Err: &engine.ExpressionError{Message: err.Error()}}
		}
		values[i] = v
	}
	return s.run(values, args)
}

// refusal is a parser option that refuses to parse. goja applies it to what it
// parses at run time: eval, and the constructors of functions.
func refusal[F ~func(T), T any](_ F, vm *goja.Runtime) F {
	return func(T) { panic(vm.NewTypeError("code in texts is not available: no eval and no Function")) }
}

// panicked describes a panic that goja let through.
func panicked(r any) *engine.ExpressionError {
	if err, ok := r.(runtime.Error); ok && (strings.Contains(err.Error(), "len out of range") || strings.Contains(err.Error(), "cap out of range")) {
		return limitError("needed more memory than there is: the limit of an expression")
	}
	if ex, ok := r.(*goja.Exception); ok {
		return &engine.ExpressionError{Message: clip(ex.Value().String())}
	}
	return &engine.ExpressionError{Message: "the JavaScript engine cannot run this expression"}
}

// run calls the program and reads its result.
func (s *session) run(values []goja.Value, args arguments) engine.EvalResult {
	var state *goja.Object
	if input, ok := values[s.program.input].(*goja.Object); ok && args.state {
		state, _ = input.Get(stateKey).(*goja.Object)
	}
	var before map[string]stored
	if state != nil {
		before = s.snapshot(state, args.docs[s.program.input])
	}
	value, failed := s.call(values)
	if failed != nil {
		return engine.EvalResult{Err: failed}
	}
	result := s.result(value)
	if result.Err == nil && state != nil {
		result.State = s.state(state, before)
	}
	return result
}

// call runs the program to its end, promises included.
func (s *session) call(values []goja.Value) (goja.Value, *engine.ExpressionError) {
	input := values[s.program.input]
	if s.program.form == formName {
		return s.bare(input)
	}
	wrapper, err := s.vm.RunProgram(s.program.compiled)
	if err != nil {
		return nil, s.thrown(err)
	}
	value, failed := s.invoke(wrapper, append(values, input))
	if failed == nil && s.program.form == formFunction {
		value, failed = s.invoke(value, values)
	}
	return value, failed
}

// bare looks a top-level key up.
func (s *session) bare(input goja.Value) (goja.Value, *engine.ExpressionError) {
	name := s.program.name
	if obj, ok := input.(*goja.Object); ok && slices.Contains(obj.Keys(), name) {
		return obj.Get(name), nil
	}
	if v, ok := constants[name]; ok {
		return v, nil
	}
	return nil, &engine.ExpressionError{Message: fmt.Sprintf("ReferenceError: %s is not defined: sourceData has no such key", name)}
}

var promiseType = reflect.TypeFor[*goja.Promise]()

// invoke calls a function and awaits its promise.
func (s *session) invoke(fn goja.Value, args []goja.Value) (goja.Value, *engine.ExpressionError) {
	f, ok := goja.AssertFunction(fn)
	if !ok {
		return nil, &engine.ExpressionError{Message: "TypeError: the expression is no function"}
	}
	value, err := f(goja.Undefined(), args...)
	if err != nil {
		return nil, s.thrown(err)
	}
	// To export anything but a promise would copy it.
	obj, ok := value.(*goja.Object)
	if !ok || obj.ExportType() != promiseType {
		return value, nil
	}
	promise, ok := obj.Export().(*goja.Promise)
	if !ok {
		return value, nil
	}
	switch promise.State() {
	case goja.PromiseStateFulfilled:
		return promise.Result(), nil
	case goja.PromiseStateRejected:
		return nil, s.rejected(promise.Result())
	}
	return nil, &engine.ExpressionError{Message: "Error: the promise of the expression is never settled"}
}

// result turns a value into what goes back.
func (s *session) result(v goja.Value) engine.EvalResult {
	text, ok, err := s.stringify(v)
	switch {
	case err != nil && strings.Contains(err.Error(), "circular structure"):
		return engine.EvalResult{Err: &engine.ExpressionError{Message: "TypeError: the result refers to itself and has no JSON form"}}
	case err != nil:
		return engine.EvalResult{Err: s.thrown(err)}
	case !ok:
		return engine.EvalResult{Undefined: true}
	case len(text) > maxResult:
		return engine.EvalResult{Err: limitError(resultMessage)}
	}
	return engine.EvalResult{Value: unsafe.Slice(unsafe.StringData(text), len(text))} // nobody changes it
}

// stringify gives the JSON of a value; ok is false for what has none: undefined,
// functions, symbols.
func (s *session) stringify(v goja.Value) (text string, ok bool, err error) {
	out, err := s.stringer(goja.Undefined(), v)
	var ex *goja.Exception
	if errors.As(err, &ex) && strings.Contains(ex.Error(), "serialize a BigInt") {
		out, err = s.stringer(goja.Undefined(), v, s.vm.ToValue(s.bigIntReplacer()))
	}
	if err != nil || goja.IsUndefined(out) {
		return "", false, err
	}
	return out.String(), true, nil
}

// bigIntReplacer makes JSON.stringify write a BigInt as its digits.
func (s *session) bigIntReplacer() func(goja.FunctionCall) goja.Value {
	raw, _ := goja.AssertFunction(s.json.Get("rawJSON"))
	return func(call goja.FunctionCall) goja.Value {
		v := call.Argument(1)
		if !goja.IsBigInt(v) {
			return v
		}
		out, err := raw(goja.Undefined(), s.vm.ToValue(v.String()))
		if err != nil {
			panic(err)
		}
		return out
	}
}
