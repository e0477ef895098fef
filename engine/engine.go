// Package engine says what a step means: it builds requests, reads answers,
// walks pages, selects, merges and filters. It is pure: it opens no connection,
// reads no clock and no store; JavaScript reaches it through Evaluator.
//
// A tool version is compiled once (CompileTool) and its Steps are then used by
// any number of goroutines. Data stays JSON text from end to end: it is sliced
// and spliced, and never decoded into Go values on the way of a page, so numbers
// keep every digit.
package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"stepwell"
)

// Scope is an object that expressions read lazily, by top-level key: sourceData,
// or the response and pageInfo of a stopCondition. Values are JSON text and must
// not be changed.
type Scope interface {
	// Keys lists the top-level keys.
	Keys() []string
	// Get gives the JSON text of one key; ok is false when there is none.
	Get(ctx context.Context, key string) (value json.RawMessage, ok bool, err error)
}

// MapScope is a Scope over values at hand.
type MapScope map[string]json.RawMessage

// Keys lists the keys, in no order.
func (m MapScope) Keys() []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// Get gives the value of a key.
func (m MapScope) Get(_ context.Context, key string) (json.RawMessage, bool, error) {
	v, ok := m[key]
	return v, ok, nil
}

// Expression is one piece of JavaScript: a function of Params, or the body of one
// (decisions, section 3: `$` and sourceData both name the input in a body).
type Expression struct {
	Source string
	Params []string // names of the arguments, for example {"sourceData"} or {"response", "pageInfo", "sourceData"}
	// State asks for the persistedState of the first argument after the call:
	// transforms may mutate it.
	State bool
}

// Limits bound one Evaluate call.
type Limits struct {
	Timeout time.Duration
	Memory  int64 // bytes
}

// EvalRequest is one round trip to an evaluator: all expressions of a step.
type EvalRequest struct {
	Expressions []Expression
	Args        map[string]Scope // by parameter name
	Limits      Limits
	Tenant      string // whose turn it takes when evaluators are busy: tenants take turns
}

// EvalResult is the outcome of one expression. Exactly one of Value, Undefined
// and Err is meaningful.
type EvalResult struct {
	Value     json.RawMessage // JSON text; a date is its ISO 8601 text, a BigInt its digits
	Undefined bool
	State     json.RawMessage // persistedState after the call, when asked for
	Err       *ExpressionError
	Console   []string
	Warnings  []string // about what was left out of State
}

// ExpressionError is an error that an expression itself made: a syntax error, a
// throw, a limit. Message is safe to show and names the place; it never holds data
// that the expression did not put into it.
type ExpressionError struct {
	Message string // for example `TypeError: Cannot read property 'x' of undefined at 1:24`
	Limit   bool   // a time, memory, size or nesting limit was met; Message names it
}

func (e *ExpressionError) Error() string { return e.Message }

// Evaluator runs JavaScript. An error return means that the evaluator itself
// could not work (the caller may try again); what an expression did wrong is in
// its result.
type Evaluator interface {
	Evaluate(ctx context.Context, req EvalRequest) ([]EvalResult, error)
	// Check parses expressions without running them; nil for each that parses.
	Check(ctx context.Context, exprs []Expression) ([]*ExpressionError, error)
	// Reads reports for each expression whether it can read a top-level key of its
	// sourceData; in doubt it can.
	Reads(ctx context.Context, exprs []Expression, key string) ([]bool, error)
}

// StepError is a failure of a step that its author or its upstream caused. Message
// is public. It holds no data but the beginning of a failed answer, which
// Answer.Mask went over, and what an expression put into an error of its own: so
// whoever stores or shows it masks the known secrets in it once more.
type StepError struct {
	Message string
}

func (e *StepError) Error() string { return e.Message }

// Request is a rendered HTTP request, ready to be sent.
type Request struct {
	Method string
	URL    string // absolute, http or https, without a fragment
	Header http.Header
	Body   []byte // nil when there is none
	// CredentialHeaders are the canonical names of the headers that carry a
	// credential, by their name or by what their template reads. Whoever follows
	// a redirect to another origin drops them.
	CredentialHeaders []string
}

// Answer is a received, decompressed HTTP answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	URL    string // after redirects
	// Mask hides known secrets in a text that an error will show; nil leaves it
	// as it is. It is applied before the text is cut, so that no half of a secret
	// stays behind.
	Mask func(string) string
}

// PageState is what a pull knows before it asks for a page. The zero value stands
// before the first page.
type PageState struct {
	Page         int             // the page to ask for, from 1 (0 counts as 1)
	Offset       int64           // records asked for so far, grows by the page size
	PageSize     int64           // records asked for in a page; Build sets it before the first page
	Cursor       json.RawMessage // nil before the first page
	NextURL      string          // nextUrl type: the address to ask for, absolute; empty for the first page
	NextCross    bool            // nextUrl type: the address is of another origin than the step's url, so credential headers are dropped
	Origin       string          // nextUrl type: scheme and host of the step's url; Build sets it before the first page
	TotalFetched int64           // items of the pages before
	ItemsHash    string          // of what the page before held: its items, the whole answer when it had none
	EqualPages   int             // how many pages in a row were equal to the one before
}

// The ways in which a pull ends.
const (
	EndedByStopCondition = "stopCondition"
	EndedByShortPage     = "shortPage"
	EndedByEmptyPage     = "emptyPage"
	EndedByNoNext        = "noNext"
)

// PageOutcome is what a received page means. It is stored with the page before
// the cursor moves.
type PageOutcome struct {
	Data    json.RawMessage // the decoded answer; nil when File is there and it is not of a pull
	File    *stepwell.File  // the answer is to be kept as this file, which has no key yet
	Count   int64           // items of this page
	Next    PageState       // the state for the next page; meaningless when Done
	Cursor  string          // a text that is equal for equal cursors or next addresses; empty when there is none: the caller keeps the set of those seen
	Done    bool
	EndedBy string // one of the EndedBy constants; empty unless Done of a paginated step
}
