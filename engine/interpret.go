package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"stepwell"
)

// maxEqualPages is how many equal pages in a row a pull with a stopCondition may
// see. Source: the interface's decisions, section 3.
const maxEqualPages = 10

// Interpret says what an answer means. st is the state with which its request was
// built, nil for a step without pagination; scope is as for Build. seenCursor
// tells whether an earlier page of the pull already led to a cursor (see
// PageOutcome.Cursor); nil means that none did. Only a stopCondition costs a call
// of ev.
//
// Everything that the upstream or the step does wrong is a *StepError: a status
// other than 2xx, a body that does not decode, an unreadable page, a contradiction,
// a stuck upstream. An attachment, a body of no known format, and every answer of a step
// with outputFile is a File.
func (s *Step) Interpret(ctx context.Context, ev Evaluator, scope Scope, st *PageState, seenCursor func(string) bool, a *Answer) (*PageOutcome, error) {
	if err := s.CheckStatus(a); err != nil {
		return nil, err
	}
	if st == nil && s.def.OutputFile {
		return &PageOutcome{File: s.fileOf(a), Done: true}, nil
	}
	data, err := Decode(a)
	switch {
	case errors.Is(err, ErrFile) && st == nil:
		return &PageOutcome{File: s.fileOf(a), Done: true}, nil
	case errors.Is(err, ErrFile):
		return nil, s.Errorf("pagination: the answer is a file, which has no items and no next page")
	case err != nil:
		return nil, s.Errorf("%s %s: %s", s.def.Method(), shownURL(a), err.Error())
	case st == nil:
		return &PageOutcome{Data: data, Done: true}, nil
	}
	out, err := s.interpretPage(ctx, ev, scope, st, seenCursor, a, data)
	if err == nil && s.def.OutputFile {
		out.File = s.fileOf(a)
	}
	return out, err
}

// interpretPage is Interpret for a decoded page of a pull.
func (s *Step) interpretPage(ctx context.Context, ev Evaluator, scope Scope, st *PageState, seenCursor func(string) bool, a *Answer, data json.RawMessage) (*PageOutcome, error) {
	if st.PageSize == 0 { // another process built the request
		size, err := s.pageSize(ctx, ev, scope, st)
		if err != nil {
			return nil, err
		}
		known := *st
		known.PageSize = size
		st = &known
	}
	p := s.readPage(data, st)
	out := &PageOutcome{Data: data, Count: p.count, Next: p.next(st)}
	if err := s.follow(a, p, st, out); err != nil {
		return nil, err
	}
	if s.stop != nil {
		stop, err := s.stops(ctx, ev, scope, st, a, out)
		if err != nil {
			return nil, err
		}
		if stop {
			out.end(EndedByStopCondition)
			return out, nil
		}
	}
	if err := s.stuck(p, out, seenCursor, a); err != nil {
		return nil, err
	}
	if err := s.naturalEnd(p, st, out); err != nil {
		return nil, err
	}
	return out, nil
}

func (o *PageOutcome) end(by string) { o.Done, o.EndedBy = true, by }

// MaxPages is how many pages the step may fetch: fromOptions when positive (the
// run's options.maxPages), else the step's own, else the default.
func (s *Step) MaxPages(fromOptions int) int {
	if fromOptions > 0 {
		return fromOptions
	}
	if pg := s.def.Config.Pagination; pg != nil && pg.MaxPages > 0 {
		return pg.MaxPages
	}
	return stepwell.DefaultMaxPages
}

// TruncatedError is the failure of a pull that reached its cap of pages before its
// end. The pages are kept; a rerun with a higher cap goes on after them.
func (s *Step) TruncatedError(maxPages int) *StepError {
	return s.Errorf("truncated after %d pages: the upstream has more. Rerun with a higher options.maxPages, or raise pagination.maxPages", maxPages)
}

// CheckStatus gives a *StepError unless the status is 2xx. It names method, URL
// without its query, status and the first stepwell.MaxErrorBodyChars characters of
// the answer. Interpret calls it itself.
func (s *Step) CheckStatus(a *Answer) error {
	if a.Status >= 200 && a.Status <= 299 {
		return nil
	}
	body := strings.ToValidUTF8(string(a.Body[:min(len(a.Body), 64<<10)]), "\uFFFD")
	if a.Mask != nil {
		body = a.Mask(body)
	}
	body = strings.TrimSpace(cut(body, stepwell.MaxErrorBodyChars))
	msg := fmt.Sprintf("%s %s answered %d", s.def.Method(), shownURL(a), a.Status)
	if text := http.StatusText(a.Status); text != "" {
		msg += " " + text
	}
	if body != "" {
		msg += ": " + body
	}
	return s.Errorf("%s", msg)
}

// shownURL is the address without query, fragment and user.
func shownURL(a *Answer) string {
	u, err := url.Parse(a.URL)
	if err != nil {
		return "the upstream"
	}
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment, u.User = "", false, "", "", nil
	text := u.String()
	if a.Mask != nil {
		text = a.Mask(text)
	}
	return cut(text, 500)
}

// page is what a decoded answer holds for a pull.
type page struct {
	data    json.RawMessage
	items   json.RawMessage // the array of items; nil when there are none
	known   bool            // the items are known, though maybe none
	problem string          // why they are not
	count   int64
	hash    string
	equal   int // pages in a row that are equal to the one before
}

func (s *Step) readPage(data json.RawMessage, st *PageState) *page {
	p := &page{data: data}
	p.items, p.known, p.problem = s.findItems(data)
	p.count = countElements(p.items)
	if p.count > 0 {
		p.hash = "i" + hash(p.items)
	} else {
		p.hash = "d" + hash(data)
	}
	if p.hash == st.ItemsHash {
		p.equal = st.EqualPages + 1
	}
	return p
}

// hash is not for secrecy or against forgery: an upstream that makes two pages
// collide harms its own run only.
func hash(b []byte) string { return strconv.FormatUint(xxhash.Sum64(b), 36) }

// next is the state after the page, but for cursor and address.
func (p *page) next(st *PageState) PageState {
	n := *st
	n.Page = st.page() + 1
	n.Offset += st.PageSize
	n.TotalFetched += p.count
	n.ItemsHash = p.hash
	n.EqualPages = p.equal
	n.Cursor, n.NextURL, n.NextCross = nil, "", false
	return n
}

// usualItems are the keys under which APIs put the items of a page, in the order
// in which they are tried.
var usualItems = []string{"data", "items", "results", "records", "entries"}

// findItems finds the array of items: itemsPath; the answer itself; the first of
// the usual keys that is an array (null: no items); the only top-level array.
func (s *Step) findItems(data json.RawMessage) (items json.RawMessage, known bool, problem string) {
	if s.items != nil {
		v, ok := s.items.read(data)
		switch {
		case ok && kindOf(v) == '[':
			return v, true, ""
		case ok && isNull(v):
			return nil, true, ""
		}
		return nil, false, "the answer has no array at itemsPath '" + shown(s.def.Config.Pagination.ItemsPath) + "'"
	}
	switch kindOf(data) {
	case '[':
		return data, true, ""
	case 'n':
		return nil, true, ""
	case '{':
		return usualArray(data)
	}
	return nil, false, "the answer is neither an array nor an object"
}

func usualArray(data json.RawMessage) (items json.RawMessage, known bool, problem string) {
	var found [8]json.RawMessage
	usual := found[:len(usualItems)]
	only := map[string]json.RawMessage(nil)
	eachMember(data, func(k, v []byte) bool {
		kind := kindOf(v)
		for i, name := range usualItems {
			if keyIs(k, name) {
				usual[i] = nil
				if kind == '[' || kind == 'n' {
					usual[i] = v
				}
			}
		}
		if kind == '[' {
			if only == nil {
				only = map[string]json.RawMessage{}
			}
			only[string(k)] = v
		} else if only != nil {
			delete(only, string(k))
		}
		return true
	})
	for _, v := range usual {
		if v != nil {
			if isNull(v) {
				return nil, true, ""
			}
			return v, true, ""
		}
	}
	if len(only) == 1 {
		for _, v := range only {
			return v, true, ""
		}
	}
	if len(only) == 0 {
		return nil, false, "the answer has no array at its top"
	}
	return nil, false, "the answer has several arrays at its top"
}

// stops evaluates the stopCondition.
func (s *Step) stops(ctx context.Context, ev Evaluator, scope Scope, st *PageState, a *Answer, out *PageOutcome) (bool, error) {
	cursor := out.Next.Cursor
	if out.Next.NextURL != "" {
		cursor = quote(out.Next.NextURL)
	}
	args := map[string]Scope{
		"response": MapScope{
			"data":    out.Data,
			"headers": headerObject(a.Header),
			"status":  itoa(int64(a.Status)),
		},
		// The counts include this page; offset is that of this page, so that no
		// condition on it can end a pull a page early; cursor leads to the next.
		"pageInfo": MapScope{
			"page":         itoa(int64(st.page())),
			"offset":       itoa(st.Offset),
			"cursor":       orNull(cursor),
			"totalFetched": itoa(out.Next.TotalFetched),
		},
		"sourceData": pageScope(scope, st),
	}
	results, err := s.call(ctx, ev, args, s.template, []*code{s.stop})
	if err != nil {
		return false, err
	}
	return !results[0].Undefined && truthy(results[0].Value), nil
}

// truthy is JavaScript's, of a value that JSON can hold.
func truthy(v json.RawMessage) bool {
	switch kindOf(v) {
	case 0, 'n', 'f':
		return false
	case '"':
		return string(v) != `""`
	case 't', '{', '[':
		return true
	}
	f, err := strconv.ParseFloat(string(v), 64)
	return err != nil || f != 0
}

// headerObject gives headers as an object: names in lower case, several values
// joined by a comma.
func headerObject(h http.Header) json.RawMessage {
	m := MapScope{}
	for k, v := range h {
		m[strings.ToLower(k)] = quote(strings.Join(v, ", "))
	}
	return objectOf(m)
}
