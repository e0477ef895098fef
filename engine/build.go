package engine

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Build renders the request of one page, or of the whole step when st is nil.
// scope is sourceData without the pagination variables: Build puts these before
// it. Before the first page it sets st.PageSize and st.Origin, which later pages
// need, so the caller hands the same st to Interpret. All expressions go to ev in
// one call; a pageSize that is JavaScript takes one more, once in a pull.
//
// An error is a *StepError when the step is wrong, else of ev or scope.
func (s *Step) Build(ctx context.Context, ev Evaluator, scope Scope, st *PageState) (*Request, error) {
	if s.def.IsTransform() {
		return nil, s.Errorf("a transform sends no request")
	}
	if st != nil {
		size, err := s.pageSize(ctx, ev, scope, st)
		if err != nil {
			return nil, err
		}
		st.PageSize = size
		scope = pageScope(scope, st)
	}
	following := st != nil && st.NextURL != ""
	var codes []*code
	if !following {
		codes = s.url.codes(codes)
		for i := range s.query {
			codes = s.query[i].codes(codes)
		}
	}
	for i := range s.headers {
		codes = s.headers[i].codes(codes)
	}
	codes = s.body.codes(codes)
	vals, err := s.evaluate(ctx, ev, scope, s.template, codes)
	if err != nil {
		return nil, err
	}
	req := &Request{Method: s.def.Method()}
	if following {
		req.URL = st.NextURL
	} else if req.URL, err = s.address(vals); err != nil {
		return nil, err
	} else if st != nil {
		st.Origin = origin(req.URL)
	}
	if err := s.setHeaders(req, vals, following && st.NextCross); err != nil {
		return nil, err
	}
	return req, s.setBody(req, vals)
}

// pageSize gives the number of records to ask for: that of the pull when it has
// begun, a literal, or what the template gives.
func (s *Step) pageSize(ctx context.Context, ev Evaluator, scope Scope, st *PageState) (int64, error) {
	if st.PageSize > 0 {
		return st.PageSize, nil
	}
	if s.size > 0 {
		return s.size, nil
	}
	vals, err := s.evaluate(ctx, ev, scope, s.template, s.sizeExpr.codes(nil))
	if err != nil {
		return 0, err
	}
	n, ok := parsePageSize(s.sizeExpr.text(vals))
	if !ok {
		return 0, s.Errorf("pagination.pageSize: must come out as a positive whole number")
	}
	return n, nil
}

// address renders the url and puts the query values into it.
func (s *Step) address(vals values) (string, error) {
	raw := strings.TrimSpace(s.url.text(vals))
	if _, err := parseAddress(raw); err != nil {
		return "", s.Errorf("url: %s", err.Error())
	}
	var pairs []string
	replaced := map[string]bool{}
	for i := range s.query {
		q := &s.query[i]
		for _, text := range q.texts(vals) {
			replaced[q.key] = true
			pairs = append(pairs, escapeQuery(q.key)+"="+escapeQuery(text))
		}
	}
	return withQuery(escapeURL(raw), replaced, pairs), nil
}

// plainError is an error text that holds no data and no address, which may hold
// credentials.
type plainError string

func (e plainError) Error() string { return string(e) }

// parseAddress accepts absolute http and https addresses.
func parseAddress(raw string) (*url.URL, error) {
	u, err := url.Parse(escapeURL(raw))
	switch {
	case raw == "":
		return nil, plainError("is empty")
	case err != nil:
		return nil, plainError("is no valid address")
	case u.Scheme == "":
		return nil, plainError("must begin with http:// or https://")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, plainError("scheme '" + cut(u.Scheme, 20) + "' is not supported; supported are http and https")
	case u.Hostname() == "":
		return nil, plainError("has no host")
	}
	return u, nil
}

// escapeURL writes bytes that may not stand in an address as %XX and cuts the
// fragment off. What the author has encoded stays as it is.
func escapeURL(raw string) string {
	raw, _, _ = strings.Cut(raw, "#")
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(raw) {
		c := raw[i]
		// Control characters other than these three are left to url.Parse, which refuses them.
		if c == ' ' || c == '"' || c == '<' || c == '>' || c >= 0x7f {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// escapeQuery encodes a name or value; a space is %20, which every server reads.
func escapeQuery(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

// withQuery takes the pairs whose name is replaced out of an address and appends
// others.
func withQuery(address string, replaced map[string]bool, pairs []string) string {
	if len(pairs) == 0 {
		return address
	}
	base, query, _ := strings.Cut(address, "?")
	var all []string
	for _, pair := range strings.Split(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if pair != "" && !replaced[name] {
			all = append(all, pair)
		}
	}
	return base + "?" + strings.Join(append(all, pairs...), "&")
}

// origin is scheme, host and port of an address, in lower case and with the port
// spelled out.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	scheme := strings.ToLower(u.Scheme)
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// setHeaders renders the headers. To another origin (cross) no credential goes.
func (s *Step) setHeaders(req *Request, vals values, cross bool) error {
	req.Header = make(http.Header, len(s.headers)+2)
	for i := range s.headers {
		h := &s.headers[i]
		if notTheAuthors(h.key) || cross && h.credential {
			continue
		}
		for _, text := range h.texts(vals) {
			text = strings.Trim(text, " \t")
			if !validHeaderValue(text) {
				return s.Errorf("%s: a header value must not hold line ends or control characters", h.name)
			}
			if h.key == "Authorization" {
				text = encodeBasic(text)
			}
			if text != "" {
				req.Header.Add(h.key, text)
			}
		}
		if h.credential && req.Header.Get(h.key) != "" {
			req.CredentialHeaders = append(req.CredentialHeaders, h.key)
		}
	}
	return nil
}

// notTheAuthors reports headers that belong to the connection and not to the
// step: they are left out.
func notTheAuthors(key string) bool {
	switch key {
	case "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Te", "Trailer", "Upgrade":
		return true
	}
	return strings.HasPrefix(key, "Proxy-")
}

func validHeaderName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return name != ""
}

func validHeaderValue(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// encodeBasic encodes `Basic user:pass`. An encoded one holds no colon.
func encodeBasic(value string) string {
	scheme, rest, ok := strings.Cut(value, " ")
	rest = strings.TrimLeft(rest, " ")
	if !ok || !strings.EqualFold(scheme, "basic") || !strings.Contains(rest, ":") {
		return value
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(rest))
}

// credentialName matches names of headers, and of what templates read, that carry
// a credential.
var credentialName = regexp.MustCompile(`(?i)auth|cookie|token|secret|passw|credential|signature|session|api[-_]?key|access[-_]?key|private|bearer|x-key`)

// carriesCredential reports whether a header carries a credential: by its name, or
// because a template of it reads `credentials`, a stored credential of the step's
// system, or something named like one.
func (s *Step) carriesCredential(h *field) bool {
	if credentialName.MatchString(h.key) {
		return true
	}
	for _, c := range h.codes(nil) {
		if credentialName.MatchString(c.src) || s.def.Config.SystemID != "" && strings.Contains(c.src, s.def.Config.SystemID+"_") {
			return true
		}
	}
	return false
}

// AddIdempotencyKey sets the Idempotency-Key of a request that carries one (POST,
// PATCH, and whatever must not be repeated) unless the author did. item counts
// from 0, page from 1. A retry gets the same key.
func (s *Step) AddIdempotencyKey(req *Request, runID string, item, page int) {
	if req.Method != http.MethodPost && req.Method != http.MethodPatch && s.def.Repeatable() {
		return
	}
	if req.Header.Get("Idempotency-Key") == "" {
		req.Header.Set("Idempotency-Key", IdempotencyKey(runID, s.def.ID, item, page))
	}
}
