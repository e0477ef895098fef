package engine

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits by which a text without a type is told from a table.
const (
	maxSniffedLine = 8 << 10 // bytes of its first line
	maxSniffedName = 64      // characters of a column's name
)

// decodeCSV reads a table with a header row into an array of objects whose values are
// text. Fields are separated by what the header row has first of comma, semicolon, tab.
func decodeCSV(body []byte, _ *budget) (json.RawMessage, error) {
	return decodeTable(body, separatorOf(firstLine(body)), "CSV")
}

func decodeTSV(body []byte, _ *budget) (json.RawMessage, error) {
	return decodeTable(body, '\t', "TSV")
}

func decodeTable(body []byte, separator rune, format string) (json.RawMessage, error) {
	r := csv.NewReader(bytes.NewReader(body))
	r.Comma, r.ReuseRecord = separator, true
	header, err := r.Read()
	if err != nil {
		return nil, tableError(err, format)
	}
	keys := columnKeys(header)
	out := jsonText{buf: append(make([]byte, 0, 2*len(body)), '[')}
	for first := true; ; first = false {
		row, err := r.Read()
		if err == io.EOF {
			out.raw("]")
			return out.done()
		}
		if err != nil {
			return nil, tableError(err, format)
		}
		if !first {
			out.raw(",")
		}
		for i, field := range row {
			out.raw(keys[i])
			out.string(field)
		}
		out.raw("}")
		if out.full {
			return nil, errTooLarge
		}
	}
}

// columnKeys gives what stands before each value of a row: `{"a":`, `,"b":`. A column
// without a name is `column_3`; of equal names the later ones get `_2`, `_3`.
func columnKeys(header []string) []string {
	keys, taken := make([]string, len(header)), map[string]bool{}
	for i, name := range header {
		if strings.TrimSpace(name) == "" {
			name = fmt.Sprintf("column_%d", i+1)
		}
		unique := name
		for n := 2; taken[unique]; n++ {
			unique = fmt.Sprintf("%s_%d", name, n)
		}
		taken[unique] = true
		opening := ","
		if i == 0 {
			opening = "{"
		}
		keys[i] = opening + string(quote(unique)) + ":"
	}
	return keys
}

func tableError(err error, format string) error {
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return plainError("not valid " + format)
	}
	why := "it cannot be read"
	switch {
	case errors.Is(bad.Err, csv.ErrFieldCount):
		why = "it has another number of fields than the header row"
	case errors.Is(bad.Err, csv.ErrBareQuote):
		why = `a quote stands in a field that does not begin with one`
	case errors.Is(bad.Err, csv.ErrQuote):
		why = "a quoted field does not end as it should: a quote inside is written twice"
	}
	return plainError(fmt.Sprintf("not valid %s: line %d: %s", format, bad.Line, why))
}

func firstLine(body []byte) []byte {
	line, _, _ := bytes.Cut(body, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// separatorOf is the first of comma, semicolon and tab that stands in a header row
// outside of quotes; comma when none does.
func separatorOf(line []byte) rune {
	quoted, found := false, map[rune]bool{}
	for _, c := range string(line) {
		switch {
		case c == '"':
			quoted = !quoted
		case !quoted:
			found[c] = true
		}
	}
	for _, c := range ",;\t" {
		if found[c] {
			return c
		}
	}
	return ','
}

// looksLikeCSV tells a table from prose: several rows, the first of which holds at least
// two different short names, and no space after a separator. Rows of unequal length
// then fail to decode, and the text stays text.
func looksLikeCSV(body []byte) bool {
	line := firstLine(body)
	rest := bytes.TrimSpace(body[len(line):])
	if len(rest) == 0 || len(line) > maxSniffedLine || !utf8.Valid(line) {
		return false
	}
	r := csv.NewReader(bytes.NewReader(line))
	r.Comma = separatorOf(line)
	names, err := r.Read()
	if err != nil || len(names) < 2 {
		return false
	}
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] || !isColumnName(name) {
			return false
		}
		seen[name] = true
	}
	return true
}

func isColumnName(s string) bool {
	if s == "" || s != strings.TrimSpace(s) || utf8.RuneCountInString(s) > maxSniffedName {
		return false
	}
	hasLetter := false
	for _, c := range s {
		hasLetter = hasLetter || unicode.IsLetter(c)
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" _-./#%()@$:", c) {
			return false
		}
	}
	return hasLetter
}
