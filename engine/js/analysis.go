package js

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
)

// revealing are names with which code can look at a whole object without naming
// it; a source that holds one gets all data.
var revealing = map[string]bool{
	"arguments": true, "eval": true, "globalThis": true, "Reflect": true, "Proxy": true,
	"prototype": true, "__proto__": true, "getPrototypeOf": true, "setPrototypeOf": true,
	"defineProperty": true, "defineProperties": true, "__defineGetter__": true, "__defineSetter__": true,
}

// analysis walks over the syntax tree of a source once. It finds what the source
// can read of each parameter, in doubt more, the names that it holds, and what
// goja would run but run wrong.
//
// The rule for reading: a name of a parameter with static keys after it reads
// what stands at the end of the longest such chain, whole; of a chain that is
// called, what stands before its last key. A parameter's name anywhere else
// reads all of it. Names are compared without scopes: an inner variable of the
// same name only reads more.
type analysis struct {
	reach   []*paths
	params  map[string][]int // names of parameters in the source, and their indices
	names   map[string]bool  // identifiers and static keys
	depth   int
	tooDeep bool
	problem *problem
}

// problem is code that is refused.
type problem struct {
	message string
	at      file.Idx
}

func newAnalysis(params []string, input int) *analysis {
	a := &analysis{params: make(map[string][]int), names: make(map[string]bool)}
	for i, name := range params {
		a.reach = append(a.reach, &paths{})
		a.params[name] = []int{i}
	}
	a.params["$"] = append(a.params["$"], input)
	return a
}

// function learns the names that function text gives to its parameters.
func (a *analysis) function(value ast.Expression) {
	var list *ast.ParameterList
	switch fn := value.(type) {
	case *ast.FunctionLiteral:
		list = fn.ParameterList
	case *ast.ArrowFunctionLiteral:
		list = fn.ParameterList
	}
	for i, binding := range list.List {
		if i >= len(a.reach) {
			break
		}
		switch target := binding.Target.(type) {
		case *ast.Identifier:
			name := target.Name.String()
			a.params[name] = append(a.params[name], i)
		case *ast.ObjectPattern:
			a.pattern(target, []int{i}, nil)
		default:
			a.reach[i].add(nil)
		}
	}
	if list.Rest != nil {
		for i := len(list.List); i < len(a.reach); i++ {
			a.reach[i].add(nil)
		}
	}
}

// pattern records what a destructuring reads.
func (a *analysis) pattern(pattern *ast.ObjectPattern, params []int, base []string) {
	if pattern.Rest != nil || len(pattern.Properties) == 0 {
		a.read(params, base)
		return
	}
	for _, property := range pattern.Properties {
		switch p := property.(type) {
		case *ast.PropertyShort:
			a.read(params, extend(base, p.Name.Name.String()))
		case *ast.PropertyKeyed:
			key, ok := staticKey(p.Key)
			if !ok {
				a.read(params, base)
				continue
			}
			if inner, ok := p.Value.(*ast.ObjectPattern); ok {
				a.pattern(inner, params, extend(base, key))
			} else {
				a.read(params, extend(base, key))
			}
		default:
			a.read(params, base)
		}
	}
}

func (a *analysis) read(params []int, path []string) {
	for _, i := range params {
		a.reach[i].add(path)
	}
}

func (a *analysis) readAll() {
	for _, r := range a.reach {
		r.add(nil)
	}
}

func extend(path []string, key string) []string {
	return append(append([]string(nil), path...), key)
}

// visit walks over a node and everything under it.
func (a *analysis) visit(node any) {
	if a.depth++; a.depth > maxTree {
		a.tooDeep = true
	}
	defer func() { a.depth-- }()
	if a.tooDeep || a.problem != nil {
		return
	}
	switch n := node.(type) {
	case *ast.Identifier:
		a.identifier(n)
	case *ast.DotExpression:
		a.name(n.Identifier.Name.String())
		if !a.chain(n, 0) {
			a.visit(n.Left)
		}
	case *ast.BracketExpression:
		if !a.chain(n, 0) {
			a.visit(n.Left)
			a.visit(n.Member)
		}
	case *ast.CallExpression:
		a.callee(n.Callee)
		a.visitAll(n.ArgumentList)
	case *ast.NewExpression:
		a.callee(n.Callee)
		a.visitAll(n.ArgumentList)
	case *ast.TemplateLiteral:
		if n.Tag != nil {
			a.callee(n.Tag)
		}
		a.visitAll(n.Expressions)
	case *ast.Binding:
		a.binding(n)
	case *ast.PropertyShort:
		a.identifier(&n.Name)
		if n.Initializer != nil {
			a.visit(n.Initializer)
		}
	case *ast.StringLiteral:
		a.name(n.Value.String())
	case *ast.RegExpLiteral:
		a.regexp(n)
	case *ast.ThisExpression:
		a.name("globalThis")
	case *ast.WithStatement:
		a.readAll()
		a.children(node)
	default:
		a.children(node)
	}
}

func (a *analysis) visitAll(list []ast.Expression) {
	for _, e := range list {
		if e != nil {
			a.visit(e)
		}
	}
}

// binding visits a declaration. The declared name itself is no use of it.
func (a *analysis) binding(b *ast.Binding) {
	pattern, destructured := b.Target.(*ast.ObjectPattern)
	if params, path, ok := a.resolve(b.Initializer); destructured && ok {
		a.pattern(pattern, params, path)
	} else if b.Initializer != nil {
		a.visit(b.Initializer)
	}
	if _, plain := b.Target.(*ast.Identifier); !plain {
		a.visit(b.Target)
	}
}

// identifier records a name that stands alone.
func (a *analysis) identifier(id *ast.Identifier) {
	name := id.Name.String()
	a.name(name)
	a.read(a.params[name], nil)
}

// name records a name, whatever it is the name of.
func (a *analysis) name(name string) {
	a.names[name] = true
	if revealing[name] {
		a.readAll()
	}
}

// callee visits what is called: a method sees the object before its name.
func (a *analysis) callee(e ast.Expression) {
	if !a.chain(e, 1) {
		a.visit(e)
	}
}

// chain records a chain of static keys on a parameter, without its last drop
// keys; false when the expression is none.
func (a *analysis) chain(e ast.Expression, drop int) bool {
	params, path, ok := a.resolve(e)
	if !ok {
		return false
	}
	for _, key := range path {
		a.name(key)
	}
	a.read(params, path[:max(len(path)-drop, 0)])
	return true
}

// resolve takes a chain of static keys on a parameter apart.
func (a *analysis) resolve(e ast.Expression) (params []int, path []string, ok bool) {
	for {
		switch n := e.(type) {
		case *ast.OptionalChain:
			e = n.Expression
		case *ast.Optional:
			e = n.Expression
		case *ast.DotExpression:
			path = append(path, n.Identifier.Name.String())
			e = n.Left
		case *ast.BracketExpression:
			key, ok := staticKey(n.Member)
			if !ok {
				return nil, nil, false
			}
			path = append(path, key)
			e = n.Left
		case *ast.Identifier:
			params = a.params[n.Name.String()]
			for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
				path[i], path[j] = path[j], path[i]
			}
			return params, path, params != nil
		default:
			return nil, nil, false
		}
	}
}

// staticKey is the key that a literal names.
func staticKey(e ast.Expression) (string, bool) {
	switch n := e.(type) {
	case *ast.StringLiteral:
		return n.Value.String(), true
	case *ast.NumberLiteral:
		if i, ok := n.Value.(int64); ok {
			return strconv.FormatInt(i, 10), true
		}
	}
	return "", false
}

var unicodeProperty = regexp.MustCompile(`^(?:[^\\]|\\[^pP])*\\[pP]\{`)

// regexp makes `\p{…}` work or refuses it: goja takes it for the letter p unless
// something else in the pattern sends it to the engine that knows it.
func (a *analysis) regexp(n *ast.RegExpLiteral) {
	if !unicodeProperty.MatchString(n.Pattern) {
		return
	}
	if !strings.Contains(n.Flags, "u") {
		a.problem = &problem{`SyntaxError: \p{…} needs the u flag`, n.Idx}
		return
	}
	n.Pattern = "(?=)" + n.Pattern
}

var nodeType = reflect.TypeFor[ast.Node]()

// children visits everything that a node holds.
func (a *analysis) children(node any) {
	v := reflect.ValueOf(node)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		a.fields(v)
	}
}

func (a *analysis) fields(v reflect.Value) {
	for i := range v.NumField() {
		// Declarations are listed a second time at their function.
		if v.Type().Field(i).Name != "DeclarationList" {
			a.value(v.Field(i))
		}
	}
}

func (a *analysis) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			a.value(v.Index(i))
		}
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() && v.Type().Implements(nodeType) {
			a.visit(v.Interface())
		}
	case reflect.Struct:
		if v.CanAddr() && v.Addr().Type().Implements(nodeType) {
			a.visit(v.Addr().Interface())
		}
	}
}
