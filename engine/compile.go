package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"stepwell"
	"stepwell/engine/template"
)

// Default limits of expressions. Source: the interface's decisions, section 3.
var (
	DefaultTemplateLimits  = Limits{Timeout: time.Second, Memory: 512 << 20}    // templates, selectors, stop conditions
	DefaultTransformLimits = Limits{Timeout: 60 * time.Second, Memory: 1 << 30} // transformCode, outputTransform
)

// Compiler prepares tools. Zero limits mean the defaults.
type Compiler struct {
	Evaluator Evaluator // asked (Check) where templates end when their text leaves it open
	Template  Limits    // of one Evaluate call for templates, selectors and conditions
	Transform Limits    // of one transform
	Tenant    string    // of the tool: see EvalRequest
}

// Tool is a compiled tool version. It is immutable and safe for concurrent use.
type Tool struct {
	Steps        []*Step
	Output       *Step    // runs the outputTransform; nil without one
	Filters      *Filters // never nil
	InputSchema  *Schema  // nil without one
	OutputSchema *Schema  // nil without one
	ReadsState   bool     // an expression can reach persistedState
}

// Step is a compiled step. It is immutable and safe for concurrent use.
type Step struct {
	def       *stepwell.Step
	label     string          // how errors name the step: `Step 2 (fetch)`; empty for the outputTransform
	declared  map[string]bool // input names that inputSchema declares
	template  Limits
	transform Limits
	tenant    string

	url        field
	query      []field
	headers    []field
	body       field
	selector   *code
	run        *code // transformCode or outputTransform
	stop       *code
	size       int64 // pageSize when it is a literal, else 0
	sizeExpr   field
	readsState bool    // some expression can reach persistedState
	items      *dotted // nil without itemsPath
	cursor     *dotted // nil: the Link header
}

// field is a text of a step that may hold templates.
type field struct {
	name       string // for errors: `url`, `headers.Accept`
	key        string // of a header or query value
	pieces     []piece
	list       []field         // a literal array: one value for each
	literal    json.RawMessage // a literal number, boolean or null
	credential bool            // a header that carries a credential
}

type piece struct {
	text string
	code *code // nil for literal text
}

// code is one expression of a step.
type code struct {
	field string // where it stands, for errors
	at    int    // byte offset in the field's text, -1 when the field is all code
	src   string
	expr  Expression
	bare  bool
	path  []string // read in Go; nil: needs the evaluator
}

// single reports whether the field is one template alone, which keeps its type.
func (f *field) single() *code {
	if len(f.pieces) == 1 {
		return f.pieces[0].code
	}
	return nil
}

// codes appends the expressions of the field.
func (f *field) codes(to []*code) []*code {
	for i := range f.pieces {
		if c := f.pieces[i].code; c != nil {
			to = append(to, c)
		}
	}
	for i := range f.list {
		to = f.list[i].codes(to)
	}
	return to
}

var (
	sourceParams = []string{"sourceData"}
	stopParams   = []string{"response", "pageInfo", "sourceData"}
)

// CompileStep prepares the step of a tool at an index with the default limits. It
// may ask ev (Check) for the ends of templates. Its error is a *StepError when the
// step is wrong, else what ev answered.
func CompileStep(ctx context.Context, ev Evaluator, tool *stepwell.Tool, index int) (*Step, error) {
	return Compiler{Evaluator: ev}.Step(ctx, tool, index)
}

// CompileTool prepares a whole tool with the default limits.
func CompileTool(ctx context.Context, ev Evaluator, tool *stepwell.Tool) (*Tool, error) {
	return Compiler{Evaluator: ev}.Tool(ctx, tool)
}

// Tool prepares a whole tool.
func (c Compiler) Tool(ctx context.Context, def *stepwell.Tool) (*Tool, error) {
	t := &Tool{}
	for i := range def.Steps {
		s, err := c.Step(ctx, def, i)
		if err != nil {
			return nil, err
		}
		t.Steps = append(t.Steps, s)
	}
	if def.OutputTransform != "" {
		t.Output = c.step(def, &stepwell.Step{Config: stepwell.StepConfig{Type: stepwell.StepTypeTransform}}, "")
		t.Output.run = wholeCode("outputTransform", def.OutputTransform, sourceParams)
		t.Output.run.expr.State = true
	}
	var err error
	if t.Filters, err = CompileFilters(def.ResponseFilters); err != nil {
		return nil, err
	}
	if t.InputSchema, err = compileOptional(def.InputSchema); err != nil {
		return nil, fmt.Errorf("inputSchema: %w", err)
	}
	if t.OutputSchema, err = compileOptional(def.OutputSchema); err != nil {
		return nil, fmt.Errorf("outputSchema: %w", err)
	}
	return t, t.reachState(ctx, c.Evaluator)
}

// Step prepares the step of a tool at an index.
func (c Compiler) Step(ctx context.Context, tool *stepwell.Tool, index int) (*Step, error) {
	def := &tool.Steps[index]
	s := c.step(tool, def, stepLabel(index, def.ID))
	asked := newAnswers(ctx, c.Evaluator)
	_ = s.compile(&parser{asked: asked, collect: true})
	err := asked.ask()
	if err == nil {
		err = s.compile(&parser{asked: asked})
	}
	var bad *fieldError
	switch {
	case errors.As(err, &bad):
		return nil, s.Errorf("%s", bad.Error())
	case err != nil:
		return nil, fmt.Errorf("compiling %s: %w", s.label, err)
	}
	return s, nil
}

func (c Compiler) step(tool *stepwell.Tool, def *stepwell.Step, label string) *Step {
	s := &Step{def: def, label: label, template: c.Template, transform: c.Transform, tenant: c.Tenant, declared: map[string]bool{}}
	if s.template == (Limits{}) {
		s.template = DefaultTemplateLimits
	}
	if s.transform == (Limits{}) {
		s.transform = DefaultTransformLimits
	}
	for _, name := range inputKeys(tool.InputSchema) {
		s.declared[name] = true
	}
	return s
}

func stepLabel(index int, id string) string {
	if id == "" {
		return fmt.Sprintf("Step %d", index+1)
	}
	return fmt.Sprintf("Step %d (%s)", index+1, id)
}

// inputKeys are the properties that an inputSchema declares at its top.
func inputKeys(schema json.RawMessage) []string {
	var keys []string
	props, _ := member(schema, "properties")
	eachMember(props, func(k, _ []byte) bool { keys = append(keys, unquote(k)); return true })
	return keys
}

// Errorf makes the error of a step: its message begins with the step's place and
// id, as in `Step 2 (fetch): …`.
func (s *Step) Errorf(format string, args ...any) *StepError {
	message := fmt.Sprintf(format, args...)
	if s.label != "" {
		message = s.label + ": " + message
	}
	return &StepError{Message: message}
}

// Definition is the step as it was saved; it must not be changed.
func (s *Step) Definition() *stepwell.Step { return s.def }

// fieldError says what is wrong with a field of a step or tool.
type fieldError struct{ field, problem string }

func (e *fieldError) Error() string { return e.field + ": " + e.problem }

func badField(field, format string, args ...any) error {
	return &fieldError{field, fmt.Sprintf(format, args...)}
}

// compile reads the step's definition into fields and expressions. It goes on
// after an error, because a collecting parser has to see every source.
func (s *Step) compile(p *parser) error {
	cfg := &s.def.Config
	s.selector = p.function("dataSelector", s.def.DataSelector, sourceParams)
	if s.def.IsTransform() {
		s.run = p.function("transformCode", cfg.TransformCode, sourceParams)
		if s.run != nil {
			s.run.expr.State = true
		}
		return p.err
	}
	s.url = p.text("url", cfg.URL)
	s.query = p.values("queryParams", cfg.QueryParams)
	s.headers = p.values("headers", cfg.Headers)
	for i := range s.headers {
		h := &s.headers[i]
		if !validHeaderName(h.key) {
			p.fail(badField(h.name, "%q is no name of a header", h.key))
		}
		h.key = http.CanonicalHeaderKey(h.key)
		h.credential = s.carriesCredential(h)
	}
	s.body = p.text("body", cfg.Body)
	if pg := cfg.Pagination; s.def.Paginated() {
		s.compilePagination(p, pg)
	}
	return p.err
}

func (s *Step) compilePagination(p *parser, pg *stepwell.Pagination) {
	s.stop = p.function("pagination.stopCondition", pg.StopCondition, stopParams)
	if pg.ItemsPath != "" {
		d := parseDotted(pg.ItemsPath)
		s.items = &d
	}
	switch {
	case pg.CursorPath != "":
		d := parseDotted(pg.CursorPath)
		s.cursor = &d
	case pg.Type == stepwell.PaginationCursor:
		s.cursor = &dotted{whole: "next_cursor"}
	}
	const name = "pagination.pageSize"
	switch kindOf(pg.PageSize) {
	case 0, 'n':
		s.size = stepwell.DefaultPageSize
	case '"':
		text := strings.TrimSpace(unquote(pg.PageSize))
		s.sizeExpr = p.text(name, text)
		if text == "" {
			s.size = stepwell.DefaultPageSize
		} else if len(s.sizeExpr.codes(nil)) == 0 {
			s.size = p.pageSize(name, text)
		}
	default:
		s.size = p.pageSize(name, string(pg.PageSize))
	}
}

func (p *parser) pageSize(name, text string) int64 {
	n, ok := parsePageSize(text)
	if !ok {
		p.fail(badField(name, "must be a positive whole number"))
	}
	return n
}

// maxPageSize keeps offsets far from overflow: 100,000 pages of it fit an int64.
const maxPageSize = 1_000_000_000

func parsePageSize(text string) (int64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || f < 1 || f > maxPageSize || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// parser turns texts of a step into fields, and remembers the first error.
type parser struct {
	asked   *answers
	collect bool    // take every source for one that parses, and note what to ask
	all     []*code // every field that is code as a whole, for ValidateTool
	err     error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// function reads a field that is code as a whole; nil when it is empty.
func (p *parser) function(name, src string, params []string) *code {
	if strings.TrimSpace(src) == "" {
		return nil
	}
	c := wholeCode(name, src, params)
	p.all = append(p.all, c)
	return c
}

func wholeCode(name, src string, params []string) *code {
	c := newCode(name, -1, src)
	c.expr.Params = params
	if len(params) > 1 { // a plain path of one of several arguments is the evaluator's
		c.bare, c.path = false, nil
	}
	return c
}

func newCode(name string, at int, src string) *code {
	c := &code{field: name, at: at, src: src, expr: Expression{Source: src, Params: sourceParams}}
	if key, ok := template.Bare(src); ok {
		c.bare, c.path = true, []string{key}
	} else if path, ok := template.PlainPath(src); ok {
		c.path = path
	}
	return c
}

// text reads a field that may hold templates.
func (p *parser) text(name, text string) field {
	f := field{name: name}
	parts, err := template.Parse(text, p.check)
	if err != nil {
		var bad *template.SyntaxError
		if errors.As(err, &bad) {
			err = badField(name, "%s", bad.Error())
		}
		p.fail(err)
		return f
	}
	for _, part := range parts {
		if !part.IsExpr {
			f.pieces = append(f.pieces, piece{text: part.Text})
			continue
		}
		f.pieces = append(f.pieces, piece{code: newCode(name, part.Offset, part.Expr)})
	}
	return f
}

// check tells what is wrong with the source of a template, "" when it parses.
func (p *parser) check(source string) (string, error) {
	if p.collect {
		p.asked.want(source, sourceParams)
		return "", nil
	}
	return p.asked.of(source, sourceParams)
}

// values reads headers or query values: text with templates, numbers, booleans,
// or arrays of these, in the order of their names.
func (p *parser) values(name string, values map[string]json.RawMessage) []field {
	fields := make([]field, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		f := p.value(name+"."+key, values[key])
		f.key = key
		fields = append(fields, f)
	}
	return fields
}

func (p *parser) value(name string, v json.RawMessage) field {
	switch kindOf(v) {
	case '"':
		return p.text(name, unquote(v))
	case '[':
		f := field{name: name, list: []field{}}
		eachElement(v, func(e []byte) bool { f.list = append(f.list, p.value(name, e)); return true })
		return f
	}
	return field{name: name, literal: v}
}
