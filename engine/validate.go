package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"stepwell"
)

// Methods are the methods that a step may have.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

var (
	toolIDForm = regexp.MustCompile(`^[A-Za-z0-9._~-]{1,200}$`)
	stepIDForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)
)

// ValidToolID reports whether a text may be the id of a tool (or of a system).
func ValidToolID(id string) bool {
	return toolIDForm.MatchString(id) && id != "." && id != ".."
}

// ValidateTool is the check of a tool before it is saved. What is wrong with the
// tool is a *stepwell.Error of KindInvalid whose message counts steps from 1, as in
// `Step 2 (fetch): missing 'url'`; another error is ev's. An empty tool id is left
// to whoever makes ids. All expressions are parsed in one call of ev, and one more
// for each template whose end is in doubt.
func ValidateTool(ctx context.Context, ev Evaluator, t *stepwell.Tool) error {
	if t.ID != "" && !ValidToolID(t.ID) {
		return invalid("'id' must be 1 to %d characters of A-Z a-z 0-9 . _ ~ - and not . or ..", stepwell.MaxToolID)
	}
	if len(t.Steps) == 0 && strings.TrimSpace(t.OutputTransform) == "" {
		return invalid("A tool needs at least one step or an 'outputTransform'")
	}
	if err := validateSchemas(t); err != nil {
		return err
	}
	if err := validateSteps(t); err != nil {
		return err
	}
	if _, err := CompileFilters(t.ResponseFilters); err != nil {
		return invalid("%s", err.Error())
	}
	return validateExpressions(ctx, ev, t)
}

func invalid(format string, args ...any) error {
	return stepwell.Invalid("invalid_tool", format, args...)
}

func validateSchemas(t *stepwell.Tool) error {
	for _, s := range []struct {
		name string
		raw  json.RawMessage
	}{{"inputSchema", t.InputSchema}, {"outputSchema", t.OutputSchema}} {
		if _, err := compileOptional(s.raw); err != nil {
			return invalid("'%s': %s", s.name, err.Error())
		}
	}
	for _, key := range inputKeys(t.InputSchema) {
		if slices.Contains(stepwell.ReservedNames, key) {
			return invalid("'inputSchema': the input '%s' has a reserved name", key)
		}
	}
	return nil
}

// validateSteps checks everything but expressions.
func validateSteps(t *stepwell.Tool) error {
	ids := map[string]int{}
	inputs := inputKeys(t.InputSchema)
	for i := range t.Steps {
		s := &t.Steps[i]
		label := stepLabel(i, cut(s.ID, stepwell.MaxStepID))
		problem := stepProblem(s)
		if problem == "" {
			problem = stepIDProblem(s.ID, ids, inputs)
		}
		if problem != "" {
			return invalid("%s: %s", label, problem)
		}
		ids[s.ID] = i + 1
	}
	return nil
}

func stepIDProblem(id string, taken map[string]int, inputs []string) string {
	switch {
	case !stepIDForm.MatchString(id):
		return fmt.Sprintf("'id' must be 1 to %d characters of A-Z a-z 0-9 _ . -", stepwell.MaxStepID)
	case slices.Contains(stepwell.ReservedNames, id) || slices.Contains(stepwell.PaginationNames, id):
		return fmt.Sprintf("the id '%s' is reserved", id)
	case taken[id] > 0:
		return fmt.Sprintf("step %d has the same id '%s'", taken[id], id)
	case slices.Contains(inputs, id):
		return fmt.Sprintf("an input has the same name '%s'", id)
	}
	return ""
}

// stepProblem names the first thing that is wrong with a step by itself.
func stepProblem(s *stepwell.Step) string {
	cfg := &s.Config
	switch {
	case s.ID == "":
		return "missing 'id'"
	case cfg.Type != "" && cfg.Type != stepwell.StepTypeRequest && cfg.Type != stepwell.StepTypeTransform:
		return fmt.Sprintf("unknown 'type' '%s': use request or transform", cut(cfg.Type, 40))
	case s.IsTransform() && strings.TrimSpace(cfg.TransformCode) == "":
		return "missing 'transformCode'"
	case !s.IsTransform() && strings.TrimSpace(cfg.URL) == "":
		return "missing 'url'"
	case !slices.Contains(Methods, s.Method()):
		return fmt.Sprintf("unknown 'method' '%s': use one of %s", cut(cfg.Method, 40), strings.Join(Methods, ", "))
	case s.Method() == "HEAD" && cfg.Body != "":
		return "a HEAD request has no 'body'"
	case s.FailureBehavior != "" && s.FailureBehavior != stepwell.FailureFail && s.FailureBehavior != stepwell.FailureContinue:
		return fmt.Sprintf("unknown 'failureBehavior' '%s': use fail or continue", cut(s.FailureBehavior, 40))
	case s.Concurrency < 0 || s.Concurrency > stepwell.MaxConcurrency:
		return fmt.Sprintf("'concurrency' must be 1 to %d", stepwell.MaxConcurrency)
	}
	if cfg.Pagination != nil {
		return paginationProblem(cfg.Pagination)
	}
	return ""
}

func paginationProblem(p *stepwell.Pagination) string {
	switch p.Type {
	case stepwell.PaginationOffset, stepwell.PaginationPage, stepwell.PaginationCursor, stepwell.PaginationNextURL, stepwell.PaginationDisabled:
	case "":
		return "missing 'pagination.type'"
	default:
		return fmt.Sprintf("unknown 'pagination.type' '%s': use offsetBased, pageBased, cursorBased, nextUrl or disabled", cut(p.Type, 40))
	}
	if p.MaxPages < 0 {
		return "'pagination.maxPages' must be a positive number"
	}
	return ""
}

// validateExpressions parses every expression of the tool. Reading the steps once
// tells which sources there are; these go to ev together; then the steps are read
// again with its answers. A source over a limit is no syntax error, and limits are
// the installation's: the run says it.
func validateExpressions(ctx context.Context, ev Evaluator, t *stepwell.Tool) error {
	asked := newAnswers(ctx, ev)
	asked.lenient = true
	all := &parser{asked: asked, collect: true}
	eachStep(t, func(s *Step) { _ = s.compile(all) })
	output := all.function("outputTransform", t.OutputTransform, sourceParams)
	for _, c := range all.all {
		if c.path == nil {
			asked.want(c.src, c.expr.Params)
		}
	}
	if err := asked.ask(); err != nil {
		return err
	}
	var bad error
	eachStep(t, func(s *Step) {
		if bad == nil {
			bad = s.check(asked)
		}
	})
	if bad == nil && output != nil {
		bad = checkCode(output, asked)
	}
	var wrong *fieldError
	if errors.As(bad, &wrong) {
		return invalid("%s", wrong.Error())
	}
	return bad
}

func eachStep(t *stepwell.Tool, do func(*Step)) {
	c := Compiler{}
	for i := range t.Steps {
		do(c.step(t, &t.Steps[i], stepLabel(i, t.Steps[i].ID)))
	}
}

// check reads the step with what ev answered; its error names the step.
func (s *Step) check(asked *answers) error {
	p := &parser{asked: asked}
	err := s.compile(p)
	for _, c := range p.all {
		if err == nil {
			err = checkCode(c, asked)
		}
	}
	var wrong *fieldError
	if errors.As(err, &wrong) {
		return &fieldError{s.label, err.Error()}
	}
	return err
}

// checkCode tells whether code that is a whole field parses.
func checkCode(c *code, asked *answers) error {
	if c.path != nil {
		return nil
	}
	problem, err := asked.of(c.src, c.expr.Params)
	if err != nil {
		return err
	}
	if problem != "" {
		return badField(c.field, "%s", problem)
	}
	return nil
}
