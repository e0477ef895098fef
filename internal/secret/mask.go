package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Masked stands in a text where a secret was.
const Masked = "[masked]"

// minMasked is the length in bytes from which a secret is masked. Shorter ones
// would tear texts apart and tell a reader more by it than they hide.
const minMasked = 4

// minEncoded is the length from which the base64 core of a secret inside a
// longer value is masked.
const minEncoded = 8

// Masker replaces known secrets in texts. The zero value and nil mask nothing.
// It is safe for concurrent use.
type Masker struct {
	forms [][]byte // every form of every secret, without duplicates
}

// NewMasker makes a masker of values of at least 4 bytes; shorter ones are left
// out. Each is recognized as it is, URL-encoded, JSON-escaped and in base64 of
// every alphabet and padding, also when a longer text was encoded that holds it
// (`user:password` of Basic authorization).
func NewMasker(values []string) *Masker {
	seen := map[string]bool{}
	m := &Masker{}
	for _, value := range values {
		if len(value) < minMasked {
			continue
		}
		for _, form := range formsOf(value) {
			if len(form) >= minMasked && !seen[form] {
				seen[form] = true
				m.forms = append(m.forms, []byte(form))
			}
		}
	}
	return m
}

// formsOf lists the ways in which a value appears in texts.
func formsOf(value string) []string {
	query, path := url.QueryEscape(value), url.PathEscape(value)
	forms := []string{
		value,
		query, path, strings.ReplaceAll(query, "+", "%20"), // the last as encodeURIComponent has it, nearly
		lowerEscapes(query), lowerEscapes(path), lowerEscapes(strings.ReplaceAll(query, "+", "%20")),
		jsonEscape(value, true), jsonEscape(value, false), strings.ReplaceAll(jsonEscape(value, false), "/", `\/`),
		strings.TrimSuffix(strings.TrimPrefix(strconv.QuoteToASCII(value), `"`), `"`), // JSON as other languages write it
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, encoding.EncodeToString([]byte(value)), encoding.WithPadding(base64.NoPadding).EncodeToString([]byte(value)))
		forms = append(forms, base64Cores(encoding, value)...)
	}
	return forms
}

// lowerEscapes writes the hexadecimal digits of percent escapes in lower case.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

func jsonEscape(value string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(value) != nil { // cannot happen for a string
		return value
	}
	return strings.TrimSuffix(strings.TrimPrefix(b.String(), `"`), "\"\n")
}

// base64Cores are the characters that the value alone decides when a text that
// holds it is encoded, for each of its three alignments.
func base64Cores(encoding *base64.Encoding, value string) []string {
	var cores []string
	for before := range 3 {
		encoded := encoding.WithPadding(base64.NoPadding).EncodeToString(append(make([]byte, before), value...))
		start := (before*8 + 5) / 6          // the first character without a bit of what stands before
		end := (before + len(value)) * 8 / 6 // the first with a bit of what follows
		if end-start >= minEncoded {
			cores = append(cores, encoded[start:end])
		}
	}
	return cores
}

// Mask gives text with every known secret replaced by [masked]; overlapping
// and touching ones become one.
func (m *Masker) Mask(text string) string {
	if spans := m.find([]byte(text)); len(spans) > 0 {
		return string(replace([]byte(text), spans))
	}
	return text
}

// span is a part of a text, end exclusive.
type span struct{ start, end int }

// find gives the parts of text that hold secrets, in order, none touching.
func (m *Masker) find(text []byte) []span {
	if m == nil {
		return nil
	}
	var all []span
	for _, form := range m.forms {
		first := len(all)
		for from := 0; ; {
			i := bytes.Index(text[from:], form)
			if i < 0 {
				break
			}
			s := span{from + i, from + i + len(form)}
			if n := len(all); n > first && s.start <= all[n-1].end {
				all[n-1].end = s.end // a text full of one secret stays one span
			} else {
				all = append(all, s)
			}
			from = s.start + 1
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.start - b.start })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && s.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

func replace(text []byte, spans []span) []byte {
	out := make([]byte, 0, len(text))
	from := 0
	for _, s := range spans {
		out = append(append(out, text[from:s.start]...), Masked...)
		from = s.end
	}
	return append(out, text[from:]...)
}
