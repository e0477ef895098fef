package js

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/parser"

	"stepwell/engine"
)

// sourceName is the file name of user code in stack traces; frames of other
// files are never shown.
const sourceName = "expression"

// inputName is the parameter that `$`, a path and a bare name refer to.
const inputName = "sourceData"

// constants are global names that are values, not keys of the input.
var constants = map[string]goja.Value{
	"undefined": goja.Undefined(), "NaN": goja.NaN(), "Infinity": goja.PositiveInf(),
}

// form says what the value of a compiled source is.
type form int

const (
	formValue    form = iota // the result
	formFunction             // a function of the parameters that gives the result
	formName                 // nothing was compiled: the result is a key of the input
)

// program is a source ready to run. It belongs to no runtime.
type program struct {
	form     form
	compiled *goja.Program // its value is a function of the parameters and `$`
	name     string        // of formName
	input    int           // the parameter that `$` names
	source   string
	lead     int      // bytes of our own before the source in its first line
	reach    []*paths // by parameter: what the source can read
	names    map[string]bool
}

// attempt is one way to read a source: what stands before and after it.
type attempt struct{ head, tail string }

// compile reads a source: function text, one expression, a path in the input, a
// bare name, or the body of a function, in this order.
func compile(source string, params []string) (*program, *engine.ExpressionError) {
	if nestsTooDeeply(source) {
		return nil, limitError(nestingMessage)
	}
	if strings.TrimSpace(source) == "" {
		return nil, &engine.ExpressionError{Message: "SyntaxError: the expression is empty"}
	}
	names := strings.Join(params, ",")
	if !slices.Contains(params, "$") {
		names += ",$"
	}
	var best *parseError
	for _, kind := range []string{"(function(", "(async function("} {
		if kind != "(function(" && !strings.Contains(source, "await") {
			continue
		}
		head := kind + names + "){"
		r := reader{source: source, head: head}
		fn, lead, err := r.expression()
		if err != nil {
			best = best.further(err, source)
			fn, lead, err = r.body()
		}
		if err == nil {
			p := &program{source: source, lead: lead, input: inputOf(params)}
			return p.finish(r.tree, fn, params)
		}
		best = best.further(err, source)
	}
	return nil, best.expression(source)
}

// inputOf is the index of the parameter that names the input.
func inputOf(params []string) int {
	return max(slices.Index(params, inputName), 0)
}

// reader tries the ways to read one source.
type reader struct {
	source string
	head   string // of the function around it
	tree   *ast.Program
}

// pathStart begins a path in the input, and no number and no spread.
var pathStart = regexp.MustCompile(`^\s*\??\.[\pL$_]`)

// expression reads the source as one expression, a path in the input included.
func (r *reader) expression() (*ast.FunctionLiteral, int, *parseError) {
	prefix := ""
	if pathStart.MatchString(r.source) {
		prefix = "$"
	}
	// Only between brackets is it certain that the source closes none of ours;
	// only between parentheses that it is one expression.
	a := attempt{r.head + "return (" + prefix, "\n)})"}
	fn, err := r.parse(attempt{r.head + "return [" + prefix, "\n]})"})
	if err != nil {
		if _, other := r.parse(a); other != nil && other.before(err) {
			err = other
		}
		return nil, 0, err
	}
	list, ok := returned(fn).(*ast.ArrayLiteral)
	if end := int(fn.Body.RightBrace) - 1; !ok || int(list.RightBracket) != end {
		return nil, 0, &parseError{message: "Unexpected token", line: 1, column: 1}
	}
	fn, err = r.parse(a)
	if err == nil && returned(fn) == nil {
		err = &parseError{message: "Unexpected token", line: 1, column: 1}
	}
	return fn, len(a.head), err
}

// returned is the argument of the one statement of a function.
func returned(fn *ast.FunctionLiteral) ast.Expression {
	if len(fn.Body.List) == 1 {
		if ret, ok := fn.Body.List[0].(*ast.ReturnStatement); ok {
			return ret.Argument
		}
	}
	return nil
}

// body reads the source as the body of a function. One expression needs no
// return; a function declaration alone is the function itself.
func (r *reader) body() (*ast.FunctionLiteral, int, *parseError) {
	a := attempt{r.head, "\n})"}
	fn, err := r.parse(a)
	if err != nil {
		return nil, 0, err
	}
	var statements []ast.Statement
	for _, s := range fn.Body.List {
		if _, empty := s.(*ast.EmptyStatement); !empty {
			statements = append(statements, s)
		}
	}
	switch len(statements) {
	case 0:
		return nil, 0, &parseError{message: "the expression is empty", line: 1, column: 1}
	case 1:
		switch s := statements[0].(type) {
		case *ast.ExpressionStatement:
			fn.Body.List = []ast.Statement{&ast.ReturnStatement{Return: s.Idx0(), Argument: s.Expression}}
		case *ast.FunctionDeclaration:
			fn.Body.List = []ast.Statement{&ast.ReturnStatement{Return: s.Idx0(), Argument: s.Function}}
		}
	}
	return fn, len(a.head), nil
}

// parse parses one attempt. The tree must be our function and nothing else, so
// that a source cannot close it and go on.
func (r *reader) parse(a attempt) (*ast.FunctionLiteral, *parseError) {
	text := a.head + r.source + a.tail
	tree, err := parser.ParseFile(nil, sourceName, text, 0, parser.WithDisableSourceMaps)
	if err != nil {
		return nil, newParseError(err, len(a.head))
	}
	if len(tree.Body) == 1 {
		if s, ok := tree.Body[0].(*ast.ExpressionStatement); ok {
			fn, ok := s.Expression.(*ast.FunctionLiteral)
			if last := file.Idx(len(text) - 1); ok && fn.Body.RightBrace == last {
				r.tree = tree
				return fn, nil
			}
		}
	}
	return nil, &parseError{message: "Unexpected token", line: 1, column: 1}
}

// finish turns the parsed wrapper into a program.
func (p *program) finish(tree *ast.Program, fn *ast.FunctionLiteral, params []string) (*program, *engine.ExpressionError) {
	value := returned(fn)
	if id, ok := value.(*ast.Identifier); ok {
		if name := id.Name.String(); name != "$" && !slices.Contains(params, name) {
			p.form, p.name = formName, name
			p.reach = make([]*paths, len(params))
			for i := range p.reach {
				p.reach[i] = &paths{}
			}
			p.reach[p.input].add([]string{name})
			return p, nil
		}
	}
	switch value.(type) {
	case *ast.FunctionLiteral, *ast.ArrowFunctionLiteral:
		p.form = formFunction
	}
	a := newAnalysis(params, p.input)
	if p.form == formFunction {
		a.function(value)
	}
	a.visit(fn.Body)
	if a.tooDeep {
		return nil, limitError(treeMessage)
	}
	if a.problem != nil {
		return nil, p.located(a.problem.message, tree.File.Position(int(a.problem.at)-1))
	}
	p.reach, p.names = a.reach, a.names
	compiled, err := goja.CompileAST(tree, false)
	if err != nil {
		var ce *goja.CompilerSyntaxError
		if errors.As(err, &ce) && ce.File != nil {
			return nil, p.located(withKind(ce.Message), ce.File.Position(ce.Offset))
		}
		return nil, &engine.ExpressionError{Message: clip(err.Error())}
	}
	p.compiled = compiled
	return p, nil
}

// located makes an error with a place in the user's source.
func (p *program) located(message string, pos file.Position) *engine.ExpressionError {
	return &engine.ExpressionError{Message: clip(readable(message)) + p.place(pos.Line, pos.Column)}
}

// place shows a place of the wrapped source, whose columns count bytes, as ` at
// line:column` of the user's source; nothing for a place that is not in it.
func (p *program) place(line, column int) string {
	if line == 1 {
		column -= p.lead
	}
	if line < 1 || column < 1 {
		return ""
	}
	return fmt.Sprintf(" at %d:%d", line, characters(p.source, line, column))
}

// characters turns a column in bytes into one in characters.
func characters(source string, line, column int) int {
	lines := strings.SplitN(source, "\n", line+1)
	if line > len(lines) || column-1 > len(lines[line-1]) {
		return column
	}
	return utf8.RuneCountInString(lines[line-1][:column-1]) + 1
}

// withKind gives a compiler's message the kind that some of them lack.
func withKind(message string) string {
	return "SyntaxError: " + strings.TrimPrefix(message, "SyntaxError: ")
}

// parseError is a syntax error at a place of the user's source.
type parseError struct {
	message      string
	line, column int
}

func newParseError(err error, lead int) *parseError {
	var list parser.ErrorList
	if !errors.As(err, &list) || len(list) == 0 {
		return &parseError{message: clip(err.Error()), line: 1, column: 1}
	}
	e := &parseError{message: list[0].Message, line: list[0].Position.Line, column: list[0].Position.Column}
	if e.line == 1 {
		e.column = max(e.column-lead, 1)
	}
	return e
}

// further is whichever of two errors is further into the source: the way that
// got further is the one that was meant. A source that closes what it did not
// open gets to our own text as a body, but no further.
func (e *parseError) further(other *parseError, source string) *parseError {
	switch {
	case e == nil:
		return other
	case other.pastEnd(source) && strings.Contains(closers, strings.TrimPrefix(e.message, "Unexpected token ")):
		return e
	case e.before(other):
		return other
	}
	return e
}

// before reports whether e is at an earlier place than other.
func (e *parseError) before(other *parseError) bool {
	return e.line < other.line || e.line == other.line && e.column < other.column
}

const closers = "}|)|]"

// pastEnd reports whether the error is in what we put behind the source.
func (e *parseError) pastEnd(source string) bool { return e.line > strings.Count(source, "\n")+1 }

var unavailableSyntax = []struct {
	pattern *regexp.Regexp
	message string
}{
	{regexp.MustCompile(`\bfor\s+await\b`), "`for await` is not available"},
	{regexp.MustCompile(`\basync(\s+function)?\s*\*`), "async generators are not available"},
	{regexp.MustCompile(`\bimport\b`), "`import` is not available"},
}

// expression turns the error into one to show.
func (e *parseError) expression(source string) *engine.ExpressionError {
	message := e.message
	for _, u := range unavailableSyntax {
		if u.pattern.MatchString(source) {
			message = u.message
			break
		}
	}
	if e.pastEnd(source) {
		lines := strings.Split(source, "\n")
		message, e.line, e.column = "Unexpected end of input", len(lines), len(lines[len(lines)-1])+1
	}
	text := clip(readable("SyntaxError: " + message))
	return &engine.ExpressionError{Message: fmt.Sprintf("%s at %d:%d", text, e.line, characters(source, e.line, e.column))}
}

// clip bounds a text that an error shows.
func clip(s string) string {
	if len(s) <= maxLine {
		return s
	}
	return strings.ToValidUTF8(s[:maxLine], "") + "…"
}
