package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"stepwell"
)

// decode is the meaning of JSON, numbers exact.
func decode(t testing.TB, raw []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %.300q", err, raw)
	}
	return v
}

var jsonSeeds = []string{
	`{}`, `[]`, `null`, ` { "a" : [ 1 , 2.50 , "x\"\\" ] , "b":{"c":null} } `, `"\\\""`, `[[],[[]],{"a":{}}]`, `-0.5e+10`,
	`{"a":1,"a":2}`, `{"\u0061":1}`, `{"a.b":{"c":1},"a":{"b":[0,{"x":true}]}}`, `[1,2,3]`, `{"data":[],"items":null}`,
	`["a text longer than the part that is read byte by byte \" with \\\" quotes \\\\", "another long one, with a slash right at its end \\", 1]`,
}

// What checkJSON accepts is what encoding/json accepts, but for its own limit of
// depth, and the walkers see what it sees.
func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := checkJSON(raw)
		if valid := json.Valid(raw); !errors.Is(err, errTooDeep) && (err == nil) != valid {
			t.Fatalf("checkJSON: %v, encoding/json: %v", err, valid)
		}
		walkAny(raw) // must not panic, whatever it is
		if err != nil || !utf8.Valid(raw) || loneSurrogate(raw) {
			return // the decoder would replace what we keep
		}
		switch v := decode(t, raw).(type) {
		case map[string]any:
			got := objectMap(raw)
			if len(got) != len(v) {
				t.Fatalf("%d members, want %d", len(got), len(v))
			}
			for k, want := range v {
				one, ok := member(raw, k)
				if !ok || !reflect.DeepEqual(decode(t, one), want) || !bytes.Equal(one, got[k]) {
					t.Fatalf("member %q is %s, want %v", k, one, want)
				}
			}
		case []any:
			i := 0
			eachElement(raw, func(e []byte) bool {
				if !reflect.DeepEqual(decode(t, e), v[i]) {
					t.Fatalf("element %d is %s, want %v", i, e, v[i])
				}
				i++
				return true
			})
			if i != len(v) || countElements(raw) != int64(len(v)) {
				t.Fatalf("%d elements, want %d", i, len(v))
			}
		case string:
			if got := decode(t, quote(unquote(bytes.TrimSpace(raw)))); got != v {
				t.Fatalf("quoted again: %q, want %q", got, v)
			}
		}
	})
}

func walkAny(raw []byte) {
	eachMember(raw, func(k, v []byte) bool { unquote(k); walkAny(v); return len(v) < len(raw) })
	eachElement(raw, func(v []byte) bool { walkAny(v); return len(v) < len(raw) })
}

func TestDepth(t *testing.T) {
	t.Parallel()
	nest := func(n int) []byte { return []byte(strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2)) }
	if err := checkJSON(nest(stepwell.MaxJSONDepth)); err != nil {
		t.Error(err)
	}
	if err := checkJSON(nest(stepwell.MaxJSONDepth + 2)); !errors.Is(err, errTooDeep) {
		t.Error(err)
	}
	if err := checkJSON([]byte(strings.Repeat("[", 20<<20))); !errors.Is(err, errTooDeep) {
		t.Error(err)
	}
	if err := checkJSON([]byte(`["` + strings.Repeat("[", 5000) + `"]`)); err != nil {
		t.Error("brackets inside a text count as levels:", err)
	}
}

// A dotted path reads what a slow and obvious reading of the decoded value reads.
func FuzzDotted(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s), "a.b.1.x")
		f.Add([]byte(s), "$.a")
		f.Add([]byte(s), "..")
	}
	f.Fuzz(func(t *testing.T, raw []byte, path string) {
		d := parseDotted(path)
		got, ok := d.read(raw)
		if checkJSON(raw) != nil || !utf8.Valid(raw) || loneSurrogate(raw) {
			return
		}
		want, wantOK := slowDotted(decode(t, raw), d.whole)
		if ok != wantOK || ok && !reflect.DeepEqual(decode(t, got), want) {
			t.Fatalf("%q in %s: %s %v, want %v %v", path, raw, got, ok, want, wantOK)
		}
	})
}

func slowDotted(v any, path string) (any, bool) {
	if path == "" {
		return v, true
	}
	head, tail, more := strings.Cut(path, ".")
	switch v := v.(type) {
	case map[string]any:
		if whole, ok := v[path]; ok {
			return whole, true
		}
		next, ok := v[head]
		if !ok || !more {
			return next, ok
		}
		return slowDotted(next, tail)
	case []any:
		i, ok := arrayIndex(head)
		if !ok || i >= len(v) {
			return nil, false
		}
		return slowDotted(v[i], tail)
	}
	return nil, false
}

func seq(pages ...string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for _, p := range pages {
			if !yield(json.RawMessage(p), nil) {
				return
			}
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pages []string
		want  string // a leading ! marks an error that holds the rest
	}{
		"none":               {nil, `null`},
		"one":                {[]string{` {"a" : 1.50} `}, `{"a":1.50}`},
		"arrays":             {[]string{`[1]`, `[ ]`, `[2.0, 3]`}, `[1,2.0, 3]`},
		"equal arrays":       {[]string{`[1]`, `[1]`}, `[1,1]`},
		"empty arrays":       {[]string{`[]`, `[]`}, `[]`},
		"null pages":         {[]string{`null`, `[1]`, `null`}, `[1]`},
		"nulls":              {[]string{`null`, `null`}, `null`},
		"array then object":  {[]string{`[1]`, `{"a":1}`}, "!page 2 has an object at its top"},
		"object then array":  {[]string{`{"a":[1]}`, `[2]`}, "!page 2 has an array at its top"},
		"empty then object":  {[]string{`[]`, `{"a":1}`, `{"b":2}`}, `{"a":1,"b":2}`},
		"object then text":   {[]string{`{"a":1}`, `"x"`}, `"x"`},
		"scalars":            {[]string{`1`, `"x"`}, `"x"`},
		"deep":               {[]string{`{"a":{"b":[1],"c":1}}`, `{"a":{"b":[2],"c":null,"d":{}},"e":"x"}`}, `{"a":{"b":[1,2],"c":null,"d":{}},"e":"x"}`},
		"null for array":     {[]string{`{"a":[1],"o":{"x":1}}`, `{"a":null,"o":null}`}, `{"a":[1],"o":{"x":1}}`},
		"array for null":     {[]string{`{"a":null}`, `{"a":[1]}`}, `{"a":[1]}`},
		"kept once":          {[]string{`{"c":["x"],"d":[1]}`, `{"c":["x"],"d":[2]}`, `{"c":["x"],"d":[2,3]}`}, `{"c":["x"],"d":[1,2,2,3]}`},
		"equal to none":      {[]string{`{"c":["x"]}`, `{}`, `{"c":["x"]}`}, `{"c":["x","x"]}`},
		"text for items":     {[]string{`{"a":[1]}`, `{"a":"x"}`}, `!page 2 has a text at "a"`},
		"text for no items":  {[]string{`{"a":[],"n":{"u":1}}`, `{"a":"x","n":""}`}, `{"a":"x","n":""}`},
		"text for deep item": {[]string{`{"a":{"b":[1]}}`, `{"a":7}`}, `!page 2 has a number at "a"`},
		"duplicate keys":     {[]string{`{"a":[1],"a":[2]}`, `{"a":[3],"\u0061":[4]}`}, `{"a":[2,4]}`},
		"big numbers":        {[]string{`[12345678901234567890]`, `[1e400]`}, `[12345678901234567890,1e400]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, keep := range []int{0, 5, 1 << 20} {
				var b bytes.Buffer
				m := merger{w: &b, pages: seq(c.pages...), keep: keep}
				err := m.run()
				if want, fails := strings.CutPrefix(c.want, "!"); fails {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("keeping %d: error %v, want %s", keep, err, want)
					}
				} else if err != nil || b.String() != c.want {
					t.Errorf("keeping %d: %s %v, want %s", keep, b.String(), err, c.want)
				}
			}
		})
	}
}

func TestMergeErrorOfPages(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	_, err := Merge(func(yield func(json.RawMessage, error) bool) {
		if yield(json.RawMessage(`[1]`), nil) {
			yield(nil, gone)
		}
	})
	if !errors.Is(err, gone) {
		t.Error(err)
	}
}

// Merging is the obvious merging of decoded values, whatever is kept in memory.
func FuzzMerge(f *testing.F) {
	for i, s := range jsonSeeds {
		f.Add([]byte(s), []byte(jsonSeeds[(i+3)%len(jsonSeeds)]), []byte(s))
	}
	f.Add([]byte(`{"a":[1],"b":{"c":[2]}}`), []byte(`{"a":[1],"b":{"c":[]}}`), []byte(`{"a":[],"b":null}`))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		if checkJSON(a) != nil || checkJSON(b) != nil || checkJSON(c) != nil {
			return
		}
		if all := slices.Concat(a, b, c); !utf8.Valid(all) || loneSurrogate(all) {
			return // two such keys are one in Go
		}
		pages := seq(string(a), string(b), string(c))
		whole, err := Merge(pages)
		var streamed bytes.Buffer
		m := merger{w: &streamed, pages: pages, keep: 0}
		if streamErr := m.run(); (err == nil) != (streamErr == nil) {
			t.Fatalf("in memory %v, streamed %v", err, streamErr)
		}
		if err != nil {
			var step *StepError
			if !errors.As(err, &step) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(whole, streamed.Bytes()) {
			t.Fatalf("in memory %s, streamed %s", whole, streamed.Bytes())
		}
		if !gjson.ValidBytes(whole) {
			t.Fatalf("not JSON: %s", whole)
		}
		slow := &slowMerge{}
		for _, p := range [][]byte{a, b, c} {
			slow.page++
			slow.merged = slow.merge(slow.merged, decode(t, p), slow.last, p, "")
			slow.last = p
		}
		if got := decode(t, whole); !reflect.DeepEqual(got, slow.merged) && fmt.Sprint(got) != fmt.Sprint(slow.merged) {
			t.Fatalf("%s + %s + %s: %v, want %v", a, b, c, got, slow.merged)
		}
	})
}

func loneSurrogate(raw []byte) bool { return bytes.Contains(bytes.ToLower(raw), []byte(`\ud`)) }

type slowMerge struct {
	page   int
	merged any
	last   json.RawMessage // the page before, nil before the first
}

// merge merges v, whose text is raw, into old; lastRaw is the text at the same
// place of the page before, nil when it had none.
func (s *slowMerge) merge(old, v any, lastRaw, raw json.RawMessage, place string) any {
	switch v := v.(type) {
	case nil:
		switch old.(type) {
		case []any, map[string]any:
			return old
		}
		return nil
	case []any:
		before, _ := old.([]any)
		if place != "" && lastRaw != nil && bytes.Equal(bytes.TrimSpace(lastRaw), bytes.TrimSpace(raw)) && old != nil {
			return old
		}
		return append(append([]any{}, before...), v...)
	case map[string]any:
		out := map[string]any{}
		if before, ok := old.(map[string]any); ok {
			for k, x := range before {
				out[k] = x
			}
		}
		for k, x := range v {
			var lastMember json.RawMessage
			if kindOf(lastRaw) == '{' {
				lastMember, _ = member(lastRaw, k)
			}
			if kindOf(lastMember) != '[' && kindOf(lastMember) != '{' {
				lastMember = nil
			}
			m, _ := member(raw, k)
			out[k] = s.merge(out[k], x, lastMember, m, place+"."+k)
		}
		return out
	}
	return v
}
