package engine

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"stepwell"
)

// This file says how a pull goes on and how it ends.

// follow reads the next cursor or address into out. Its text in out.Cursor is
// empty when there is none.
func (s *Step) follow(a *Answer, p *page, st *PageState, out *PageOutcome) error {
	switch s.def.Config.Pagination.Type {
	case stepwell.PaginationCursor:
		v, ok := s.cursor.read(p.data)
		if !ok || !truthy(v) {
			return nil
		}
		out.Next.Cursor = v
		out.Cursor = compact(v)
	case stepwell.PaginationNextURL:
		text, err := s.nextAddress(a, p)
		if err != nil || text == "" {
			return err
		}
		base, err := url.Parse(a.URL)
		if err != nil {
			return s.Errorf("pagination: the address of the page is not valid")
		}
		ref, err := url.Parse(escapeURL(text))
		if err != nil {
			return s.Errorf("pagination: the next address is not valid")
		}
		next := base.ResolveReference(ref).String()
		if _, err := parseAddress(next); err != nil {
			return s.Errorf("pagination: the next address %s", err.Error())
		}
		out.Next.NextURL = next
		out.Next.NextCross = st.Origin == "" || origin(next) != st.Origin
		out.Cursor = next
	}
	return nil
}

// nextAddress finds the next address: at cursorPath, or in the Link header.
func (s *Step) nextAddress(a *Answer, p *page) (string, error) {
	if s.cursor == nil {
		return linkNext(a.Header), nil
	}
	v, ok := s.cursor.read(p.data)
	switch {
	case !ok || !truthy(v):
		return "", nil
	case kindOf(v) != '"':
		return "", s.Errorf("pagination: what cursorPath names is not the text of an address")
	}
	return strings.TrimSpace(unquote(v)), nil
}

// linkNext gives the target of the first link of relation next (RFC 8288).
func linkNext(h http.Header) string {
	for _, line := range h.Values("Link") {
		for line != "" {
			_, rest, ok := strings.Cut(line, "<")
			if !ok {
				break
			}
			target, rest, ok := strings.Cut(rest, ">")
			if !ok {
				break
			}
			next, remaining := linkParams(rest)
			if next {
				return strings.TrimSpace(target)
			}
			line = remaining
		}
	}
	return ""
}

// linkParams reads the parameters after a target, up to the comma that ends the
// link; next tells whether the first rel among them holds `next`.
func linkParams(s string) (next bool, rest string) {
	seen := false
	for {
		s = strings.TrimLeft(s, " \t;")
		if s == "" || s[0] == ',' {
			return next, strings.TrimPrefix(s, ",")
		}
		end := strings.IndexAny(s, "=;,")
		if end < 0 {
			return next, ""
		}
		name := strings.ToLower(strings.TrimSpace(s[:end]))
		if s[end] != '=' {
			s = s[end:]
			continue
		}
		var value string
		value, s = linkValue(strings.TrimLeft(s[end+1:], " \t"))
		if name == "rel" && !seen {
			seen = true
			for _, rel := range strings.Fields(value) {
				next = next || strings.EqualFold(rel, "next")
			}
		}
	}
}

// linkValue reads a token or a quoted text.
func linkValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, ";,")
		if end < 0 {
			end = len(s)
		}
		return strings.TrimSpace(s[:end]), s[end:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}

func compact(v json.RawMessage) string {
	if bytes.ContainsAny(v, " \t\r\n") {
		var b bytes.Buffer
		if json.Compact(&b, v) == nil {
			return b.String()
		}
	}
	return string(v)
}

// stuck tells an upstream that gives the same again and again. A stopCondition
// has the first word, so with one only ten equal pages in a row count.
func (s *Step) stuck(p *page, out *PageOutcome, seenCursor func(string) bool, a *Answer) error {
	if s.stop != nil {
		if p.equal+1 >= maxEqualPages {
			return s.Errorf("pagination: the upstream is stuck: %d equal pages in a row, and the stopCondition did not end the pull", p.equal+1)
		}
		return nil
	}
	if p.equal > 0 && p.count > 0 {
		return s.Errorf("pagination: the upstream is stuck: page %d holds the same items as the page before it", out.Next.Page-1)
	}
	if out.Cursor != "" && (out.Cursor == a.URL || seenCursor != nil && seenCursor(out.Cursor)) {
		return s.Errorf("pagination: the upstream is stuck: after page %d it leads to a page that was already fetched", out.Next.Page-1)
	}
	return nil
}

// naturalEnd ends a pull whose answer has no more: no next cursor or address, an
// empty page or, without a stopCondition, one shorter than pageSize.
func (s *Step) naturalEnd(p *page, st *PageState, out *PageOutcome) error {
	switch s.def.Config.Pagination.Type {
	case stepwell.PaginationCursor, stepwell.PaginationNextURL:
		if kind := kindOf(p.data); out.Cursor == "" && s.cursor != nil && kind != '{' && kind != '[' && kind != 'n' {
			// A login page in place of an answer must not look like the last page.
			return s.Errorf("pagination: page %d is neither an array nor an object, so nothing says that it is the last one", st.page())
		}
		if out.Cursor == "" {
			out.end(EndedByNoNext)
		}
	default:
		switch {
		case !p.known && s.stop != nil:
			return nil // only the stopCondition ends it
		case !p.known:
			return s.Errorf("pagination: %s, so the end of the pages cannot be told: name the array in pagination.itemsPath, or give a stopCondition", p.problem)
		case p.count == 0:
			out.end(EndedByEmptyPage)
		case s.stop == nil && p.count < st.PageSize:
			out.end(EndedByShortPage)
		case s.stop == nil && p.count > st.PageSize && s.def.Config.Pagination.Type == stepwell.PaginationOffset:
			// The next offset would lie inside this page and its items come twice.
			return s.Errorf("pagination: page %d holds %d items, more than the pageSize of %d that was asked for: set pagination.pageSize to what the upstream sends, or give a stopCondition", st.page(), p.count, st.PageSize)
		}
	}
	if !out.Done || s.stop != nil {
		return nil
	}
	if field := p.contradiction(out.Next.TotalFetched); field != "" {
		return s.Errorf("pagination: the pages end after %d items (%s), but the answer's '%s' says that there is more: compare pageSize with what the upstream sends, or give a stopCondition", out.Next.TotalFetched, out.EndedBy, field)
	}
	return nil
}

// contradiction names the field by which an answer says that there is more than
// the items fetched, at its top or in meta, pagination or paging.
func (p *page) contradiction(fetched int64) string {
	field := ""
	look := func(prefix string, k, v []byte) {
		name := unquote(k)
		switch name {
		case "hasMore", "has_more":
			if kindOf(v) == 't' {
				field = prefix + name
			}
		case "total", "total_count", "totalCount":
			if n, err := strconv.ParseFloat(strings.Trim(string(v), `"`), 64); err == nil && p.known && n > float64(fetched) {
				field = prefix + name
			}
		}
	}
	eachMember(p.data, func(k, v []byte) bool {
		look("", k, v)
		if kindOf(v) == '{' && (keyIs(k, "meta") || keyIs(k, "pagination") || keyIs(k, "paging")) {
			outer := unquote(k) + "."
			eachMember(v, func(k, v []byte) bool { look(outer, k, v); return true })
		}
		return true
	})
	return field
}
