// Package template splits texts that hold `<<…>>` into their parts, knows the
// expressions that need no JavaScript, and says how a value becomes text. It is
// pure: whether an expression parses is asked from its caller. It must not read
// data, evaluate anything or keep state.
package template

import (
	"fmt"
	"strings"
)

const (
	opening = "<<"
	closing = ">>"

	// maxAsked bounds the questions that one text may cost: a text of nothing but
	// `>>` has as many possible ends as bytes.
	maxAsked = 256
)

// Part is a piece of a text: literal text, or the source of an expression
// without its `<<` and `>>`.
type Part struct {
	Text   string // literal text; empty for an expression
	Expr   string // source of an expression; empty for literal text
	Offset int    // where Text or Expr begins in the whole text, in bytes
	IsExpr bool
}

// SyntaxError says that a template of a text has no end with which it parses.
type SyntaxError struct {
	Offset  int    // of the template's `<<` in the text, in bytes
	Place   string // the same as `line:column`, both from 1, the column in characters
	Message string // what is wrong with it, safe to show
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("the template at %s does not parse: %s", e.Place, e.Message)
}

// Parse splits a text into literal text and expressions, in order; adjacent
// parts never are both literal text, and an empty text has no parts.
//
// A template ends at the last `>>` before the next `<<` (or before the end of
// the text) with which its source parses; if there is none, at the first later
// one with which it does. A `<<` with no `>>` after it is text. When no end
// parses, the error is a *SyntaxError.
//
// check says what is wrong with a source, "" when it parses; its error ends
// Parse and is returned as it is. It is asked once for most templates and never
// for plain paths and bare names.
func Parse(text string, check func(source string) (problem string, err error)) ([]Part, error) {
	p := parser{text: text, check: check}
	var parts []Part
	pos := 0
	for pos < len(text) {
		at := strings.Index(text[pos:], opening)
		if at < 0 || !strings.Contains(text[pos+at+len(opening):], closing) {
			break
		}
		at += pos
		end, err := p.end(at)
		if err != nil {
			return nil, err
		}
		if at > pos {
			parts = append(parts, Part{Text: text[pos:at], Offset: pos})
		}
		from := at + len(opening)
		parts = append(parts, Part{Expr: text[from:end], Offset: from, IsExpr: true})
		pos = end + len(closing)
	}
	if pos < len(text) {
		parts = append(parts, Part{Text: text[pos:], Offset: pos})
	}
	return parts, nil
}

// parser finds the ends of the templates of one text.
type parser struct {
	text  string
	check func(string) (string, error)
	asked int
}

// end gives the offset of the `>>` that ends the template whose `<<` is at at.
func (p *parser) end(at int) (int, error) {
	from := at + len(opening)
	next := len(p.text)
	if i := strings.Index(p.text[from:], opening); i >= 0 {
		next = from + i
	}
	problem := ""
	try := func(end int) (bool, error) {
		said, err := p.ask(p.text[from:end])
		if problem == "" {
			problem = said
		}
		return said == "", err
	}
	for end := lastClose(p.text, from, next); end >= 0; end = lastClose(p.text, from, end+len(closing)-1) {
		if ok, err := try(end); ok || err != nil {
			return end, err
		}
	}
	// An end that straddles the next `<<` cannot be: the two share no character.
	for end := firstClose(p.text, next); end >= 0; end = firstClose(p.text, end+1) {
		if ok, err := try(end); ok || err != nil {
			return end, err
		}
	}
	return 0, &SyntaxError{Offset: at, Place: place(p.text, at), Message: problem}
}

// ask says what is wrong with a source, within the bound of questions.
func (p *parser) ask(source string) (string, error) {
	if strings.TrimSpace(source) == "" {
		return "it is empty", nil
	}
	if _, ok := PlainPath(source); ok {
		return "", nil
	}
	if p.asked++; p.asked > maxAsked {
		return fmt.Sprintf("the text has more than %d possible ends of templates: move the code into a transform step", maxAsked), nil
	}
	return p.check(source)
}

// lastClose is the offset of the last `>>` that lies within text[from:to], -1
// without one.
func lastClose(text string, from, to int) int {
	if to < from {
		return -1
	}
	if i := strings.LastIndex(text[from:to], closing); i >= 0 {
		return from + i
	}
	return -1
}

// firstClose is the offset of the first `>>` at or after from, -1 without one.
func firstClose(text string, from int) int {
	if i := strings.Index(text[from:], closing); i >= 0 {
		return from + i
	}
	return -1
}

// place gives `line:column` of an offset, both from 1.
func place(text string, offset int) string {
	before := text[:offset]
	line := strings.Count(before, "\n")
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	return fmt.Sprintf("%d:%d", line+1, column+1)
}
