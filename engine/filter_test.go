package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"stepwell"
)

// F makes a filter from `TARGET ACTION SCOPE pattern`, with an optional mask.
func parseFilter(text string) stepwell.ResponseFilter {
	p := strings.SplitN(text, " ", 4)
	pattern, mask, _ := strings.Cut(p[3], " => ")
	return stepwell.ResponseFilter{Target: p[0], Action: p[1], Scope: p[2], Pattern: pattern, MaskValue: mask}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		filters []string
		data    string
		want    string // a leading ! marks an error that holds the rest
	}{
		"key removed":              {[]string{"KEYS REMOVE FIELD ^ssn$"}, `{"SSN":1,"ssnx":2,"l":[{"ssn":{"a":1}}]}`, `{"ssnx":2,"l":[{}]}`},
		"first key of three":       {[]string{"KEYS REMOVE FIELD a"}, `{"a":1,"b":2,"c":3}`, `{"b":2,"c":3}`},
		"untouched keeps its text": {[]string{"KEYS REMOVE FIELD zzz"}, ` {"a" : 1.0} `, ` {"a" : 1.0} `},
		"value removed":            {[]string{"VALUES REMOVE FIELD ^no"}, `{"a":"no","b":["no","yes","NO!"],"c":true}`, `{"b":["yes"],"c":true}`},
		"number and boolean":       {[]string{"VALUES MASK FIELD ^(42|true)$"}, `[42,true,"42",420,null]`, `["[filtered]","[filtered]","[filtered]",420,null]`},
		"part of a text":           {[]string{`VALUES MASK FIELD \d{4} => #`}, `["a 1234 b 5678","x"]`, `["a # b #","x"]`},
		"escaped text":             {[]string{`VALUES MASK FIELD "q" => <">`}, `["a\"q\" \u00e9"]`, `["a<\"> é"]`},
		"no group expansion":       {[]string{`VALUES MASK FIELD (b) => $1`}, `["abc"]`, `["a$1c"]`},
		"whole value by key":       {[]string{"KEYS MASK FIELD pin => *"}, `{"pin":{"x":[1]},"b":"pin"}`, `{"pin":"*","b":"pin"}`},
		"both":                     {[]string{"BOTH MASK FIELD pin => *"}, `{"pin":"pinned","b":"my pin"}`, `{"pin":"*","b":"my *"}`},
		"first filter wins":        {[]string{"VALUES MASK FIELD b => 1", "VALUES MASK FIELD abc => 2"}, `["abc"]`, `["a1c"]`},
		"first wins by key":        {[]string{"VALUES MASK FIELD b => 1", "KEYS REMOVE FIELD k"}, `{"k":"abc","kk":"x"}`, `{"k":"a1c"}`},
		"item":                     {[]string{"VALUES REMOVE ITEM secret"}, `{"l":[{"a":"secret"},{"a":{"t":["x","secret"]}},{"a":1}]}`, `{"l":[{"a":{"t":["x"]}},{"a":1}]}`},
		"item masked":              {[]string{"KEYS MASK ITEM hide => -"}, `[[{"hide":1},2],{"hide":1}]`, `[["-",2],"-"]`},
		"entry":                    {[]string{"VALUES REMOVE ENTRY secret"}, `{"l":[{"a":{"t":["x","secret"]}},{"a":1}]}`, `{"l":[{"a":1}]}`},
		"entry masked":             {[]string{"VALUES MASK ENTRY secret => -"}, `[[["secret"]],[1]]`, `["-",[1]]`},
		"item outside arrays":      {[]string{"KEYS REMOVE ITEM hide"}, `{"a":{"hide":1}}`, `{}`},
		"entry outside, masked":    {[]string{"KEYS MASK ENTRY hide => -"}, `{"a":{"hide":1},"l":[1]}`, `"-"`},
		"key around an array":      {[]string{"KEYS REMOVE ITEM list"}, `{"o":[{"list":[1,2]},{"x":1}]}`, `{"o":[{"x":1}]}`},
		"entry inside a removed":   {[]string{"KEYS REMOVE FIELD profile", "VALUES REMOVE ENTRY secret"}, `[{"profile":{"x":"secret"}},{"profile":1}]`, `[{}]`},
		"scalar":                   {[]string{"VALUES MASK FIELD b => -"}, `"abc"`, `"a-c"`},
		"scalar in space":          {[]string{"VALUES MASK FIELD ^b$ => -"}, ` "b" `, `"-"`},
		"scalar removed":           {[]string{"VALUES REMOVE FIELD b"}, `"abc"`, `{}`},
		"null is not tested":       {[]string{"VALUES REMOVE FIELD ."}, `{"a":null}`, `{"a":null}`},
		"keys of objects only":     {[]string{"KEYS REMOVE FIELD 0"}, `["0",{"0":1}]`, `["0",{}]`},
		"fail by value":            {[]string{"VALUES FAIL FIELD secret"}, `{"a":[{"b":"my secret"}]}`, `!'1' refuses the result: it matches at a[0].b`},
		"fail by key":              {[]string{"KEYS FAIL FIELD ^x y$"}, `[{"x y":1}]`, `![0]["x y"]`},
		"fail at the top":          {[]string{"VALUES FAIL FIELD ."}, `7`, `!at its top`},
		"fail before removal":      {[]string{"KEYS REMOVE FIELD a", "VALUES FAIL FIELD secret"}, `{"a":"secret"}`, `!'2' refuses`},
		"no fail":                  {[]string{"VALUES FAIL FIELD secret"}, `{"secret":"x"}`, `{"secret":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var defs []stepwell.ResponseFilter
			for _, f := range c.filters {
				defs = append(defs, parseFilter(f))
			}
			f, err := CompileFilters(defs)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Apply(json.RawMessage(c.data))
			if want, fails := strings.CutPrefix(c.want, "!"); fails {
				var bad *FilterError
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "my secret") {
					t.Errorf("error %v, want %s", err, want)
				}
			} else if err != nil || string(got) != c.want {
				t.Errorf("%s %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestDisabledAndBadFilters(t *testing.T) {
	t.Parallel()
	off := false
	f, err := CompileFilters([]stepwell.ResponseFilter{{Target: "KEYS", Action: "FAIL", Pattern: ".", Enabled: &off}})
	if err != nil || !f.Empty() {
		t.Errorf("a disabled filter: %v", err)
	}
	for want, def := range map[string]stepwell.ResponseFilter{
		"'target' must":     {Name: "n", Action: "MASK", Pattern: "x"},
		"'action' must":     {Name: "n", Target: "KEYS", Action: "mask", Pattern: "x"},
		"'scope' must":      {Name: "n", Target: "KEYS", Action: "MASK", Pattern: "x", Scope: "ALL"},
		"missing 'pattern'": {Name: "n", Target: "KEYS", Action: "MASK"},
		"RE2":               {Name: "n", Target: "KEYS", Action: "MASK", Pattern: "(?=x)", Enabled: &off},
	} {
		if _, err := CompileFilters([]stepwell.ResponseFilter{def}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "filter 'n'") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Filters leave JSON, nothing that they should take out, and all else alone.
func FuzzFilters(f *testing.F) {
	for i, s := range jsonSeeds {
		f.Add([]byte(s), []string{"a", "1", "x", "b"}[i%4], i)
	}
	f.Fuzz(func(t *testing.T, raw []byte, pattern string, kind int) {
		if checkJSON(raw) != nil || !utf8.Valid(raw) || loneSurrogate(raw) || duplicateKeys(raw) {
			return // filters see the first of two equal keys too, the decoder does not
		}
		pick := func(of ...string) string {
			kind = max(kind, -kind, 0)
			one := of[kind%len(of)]
			kind /= len(of)
			return one
		}
		def := stepwell.ResponseFilter{Pattern: pattern, Target: pick("KEYS", "VALUES", "BOTH"), Action: pick("REMOVE", "MASK", "FAIL"), Scope: pick("FIELD", "ITEM", "ENTRY"), MaskValue: "\x00"}
		filters, err := CompileFilters([]stepwell.ResponseFilter{def})
		if err != nil {
			return
		}
		matched := anyMatch(t, filters, decode(t, raw), def.Target)
		out, err := filters.Apply(raw)
		if (err != nil) != (matched && def.Action == "FAIL") {
			t.Fatalf("matched %v: %v", matched, err)
		}
		if err != nil {
			return
		}
		if err := checkJSON(out); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !matched && !bytes.Equal(out, raw) {
			t.Fatalf("changed without a match: %s", out)
		}
		if matched && reflect.DeepEqual(decode(t, out), decode(t, raw)) {
			t.Fatalf("unchanged: %s", out)
		}
		if def.Action == "REMOVE" && anyMatch(t, filters, decode(t, out), def.Target) {
			t.Fatalf("left in: %s", out)
		}
	})
}

func anyMatch(t *testing.T, f *Filters, v any, target string) bool {
	all := append(append([]*filter{}, f.fail...), f.replace...)
	re := all[0].pattern
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if target != "VALUES" && re.MatchString(k) || anyMatch(t, f, x, target) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if anyMatch(t, f, x, target) {
				return true
			}
		}
	case nil:
	default:
		return target != "KEYS" && re.MatchString(fmt.Sprint(v))
	}
	return false
}

func duplicateKeys(raw []byte) bool {
	seen, twice := map[string]bool{}, false
	eachMember(raw, func(k, v []byte) bool {
		name := unquote(k)
		twice = twice || seen[name] || duplicateKeys(v)
		seen[name] = true
		return !twice
	})
	eachElement(raw, func(v []byte) bool { twice = twice || duplicateKeys(v); return !twice })
	return twice
}
