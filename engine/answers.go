package engine

import (
	"context"
	"fmt"
	"strings"
)

// answers are what an Evaluator says about sources: whether they parse. Questions
// that are known beforehand are asked together.
type answers struct {
	ctx     context.Context // of the one call that the answers belong to
	ev      Evaluator
	lenient bool // a source over a limit counts as one that parses
	pending []Expression
	known   map[string]string // by answerKey: the problem, "" when the source parses
}

func newAnswers(ctx context.Context, ev Evaluator) *answers {
	return &answers{ctx: ctx, ev: ev, known: map[string]string{}}
}

func answerKey(source string, params []string) string {
	return strings.Join(params, ",") + "\x00" + source
}

// want notes a question.
func (a *answers) want(source string, params []string) {
	key := answerKey(source, params)
	if _, ok := a.known[key]; ok {
		return
	}
	a.known[key] = ""
	a.pending = append(a.pending, Expression{Source: source, Params: params})
}

// ask asks all questions noted.
func (a *answers) ask() error {
	if len(a.pending) == 0 {
		return nil
	}
	errs, err := a.ev.Check(a.ctx, a.pending)
	if err != nil {
		return fmt.Errorf("checking expressions: %w", err)
	}
	if len(errs) != len(a.pending) {
		return fmt.Errorf("checking expressions: %d answers to %d questions", len(errs), len(a.pending))
	}
	for i, e := range errs {
		if e != nil && (!e.Limit || !a.lenient) {
			a.known[answerKey(a.pending[i].Source, a.pending[i].Params)] = e.Message
		}
	}
	a.pending = nil
	return nil
}

// of gives the answer for one source.
func (a *answers) of(source string, params []string) (problem string, err error) {
	a.want(source, params)
	if err := a.ask(); err != nil {
		return "", err
	}
	return a.known[answerKey(source, params)], nil
}
