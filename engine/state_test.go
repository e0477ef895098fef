package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stepwell"
	"stepwell/engine"
)

func TestEqualJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`1`, `1.0`, true}, {`100`, `1e2`, true}, {`-0`, `0`, true}, {`0.00`, `0e99`, true}, {`1.50e-3`, `0.0015`, true}, {`10E+1`, `1e2`, true},
		{`9007199254740993`, `9007199254740992`, false}, {`1`, `-1`, false}, {`1`, `10`, false}, {`1e1000000000000`, `1e1000000000001`, false},
		{`"a"`, `"\u0061"`, true}, {`"/"`, `"\/"`, true}, {`"a"`, `"b"`, false}, {`"\ud800"`, `"\ud801"`, false}, {`"1"`, `1`, false},
		{`{"a":1,"b":[2]}`, ` { "b" : [ 2.0 ], "a" : 1 } `, true}, {`{"a":1}`, `{"a":1,"b":null}`, false}, {`{"a":1}`, `{"b":1}`, false},
		{`[1,2]`, `[2,1]`, false}, {`[]`, `{}`, false}, {`null`, `null`, true}, {`true`, `false`, false}, {`null`, `0`, false}, {`[[]]`, `[[],[]]`, false},
	} {
		if got := engine.EqualJSON([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
		if got := engine.EqualJSON([]byte(c.b), []byte(c.a)); got != c.want {
			t.Errorf("%s and %s: %v", c.b, c.a, got)
		}
	}
}

func TestStateValues(t *testing.T) {
	t.Parallel()
	values, problem := engine.StateValues([]byte(` { "a" : [ 1.0 , { "x" : "\u00fc\u0041\n<" , "y":1, "x":"\ud800" } ], "b" : null, "a\u0062": " " } `))
	if got, _ := json.Marshal(fmt.Sprintf("%s", values)); problem != "" || string(values["a"]) != `[1.0,{"x":"\ud800","y":1}]` || string(values["b"]) != "null" || string(values["ab"]) != `" "` {
		t.Errorf("got %s %s", got, problem)
	}
	if values, _ := engine.StateValues([]byte(`{"a":"\u00fc\u2028\/\ud83d\ude00"}`)); string(values["a"]) != "\"ü\u2028/😀\"" {
		t.Errorf("got %s", values["a"])
	}
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":1`, i)
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	text := func(n int) string {
		return `{"a":"` + strings.Repeat("ü", (n-2)/2) + strings.Repeat("x", (n-2)%2) + `"}`
	}
	for _, c := range []struct{ name, state, want string }{
		{"no key", `{}`, ""}, {"100 keys", many(100), ""}, {"101 keys", many(101), "101 keys"},
		{"longest key", `{"` + strings.Repeat("ü", 256) + `":1}`, ""}, {"too long a key", `{"` + strings.Repeat("ü", 257) + `":1}`, "257 characters"}, {"empty key", `{"":1}`, "0 characters"},
		{"largest value", text(64 << 10), ""}, {"too large a value", text(64<<10 + 1), "'a' has 65537 bytes"},
		{"escapes count as what they stand for", `{"a":"` + strings.Repeat(`\u00fc`, 32<<10-1) + `"}`, ""}, {"white space does not count", `{"a":[` + strings.Repeat(" ", 70_000) + `]}`, ""},
		{"NUL in a key", `{"a\u0000":1}`, "U+0000"}, {"half a pair in a key", `{"a\uD800":1}`, "surrogate"}, {"U+FFFD in a key", "{\"a\uFFFD\":1}", ""},
	} {
		_, problem := engine.StateValues([]byte(c.state))
		if (problem == "") != (c.want == "") || !strings.Contains(problem, c.want) {
			t.Errorf("%s: %q, want %q", c.name, problem, c.want)
		}
	}
}

func TestChangeState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, after, set, removed, applied string }{
		{`{}`, `{}`, ``, `[]`, `{}`},
		{`{"a":1,"b":{"x":[1,2]}}`, `{"b":{"x":[1.0,2]},"a":1e0}`, ``, `[]`, `{"a":1,"b":{"x":[1,2]}}`},
		{`{"a":1,"b":2,"c":3}`, `{"c":4,"d":null,"a":1}`, `{"c":4,"d":null}`, `[b]`, `{"a":1,"c":4,"d":null}`},
		{`{"a":1}`, `{}`, ``, `[a]`, `{}`},
		{`{}`, `{"z":1,"a":2}`, `{"z":1,"a":2}`, `[]`, `{"z":1,"a":2}`},
	} {
		change := engine.ChangeState([]byte(c.before), []byte(c.after))
		if string(change.Set) != c.set || fmt.Sprint(change.Removed) != c.removed {
			t.Errorf("%s to %s: set %s, removed %v", c.before, c.after, change.Set, change.Removed)
		}
		if change.Empty() != (c.set == "" && c.removed == "[]") {
			t.Errorf("%s to %s: empty is %v", c.before, c.after, change.Empty())
		}
		if got := engine.ApplyState([]byte(c.before), change); string(got) != c.applied {
			t.Errorf("%s and the change: %s, want %s", c.before, got, c.applied)
		}
	}
	if !(*stepwell.StateChange)(nil).Empty() {
		t.Error("no change is one")
	}
}

func TestMaskedState(t *testing.T) {
	t.Parallel()
	stored := `{"a":"s3cret","b":{"c":["x","s3cret",{"d":"s3cret"}]},"s3cret":"n"}`
	masked := engine.MaskState([]byte(stored), map[string]bool{"s3cret": true}, "[masked]")
	if want := `{"a":"[masked]","b":{"c":["x","[masked]",{"d":"[masked]"}]},"s3cret":"n"}`; string(masked) != want {
		t.Errorf("got %s, want %s", masked, want)
	}
	if kept := engine.KeepMasked(masked, []byte(stored), "[masked]"); string(kept) != stored {
		t.Errorf("got %s, want %s", kept, stored)
	}
	changed := `{"new":"[masked]","b":{"c":["[masked]"]},"a":["[masked]"],"s3cret":"[masked]"}`
	if kept := engine.KeepMasked([]byte(changed), []byte(stored), "[masked]"); string(kept) != `{"new":"[masked]","b":{"c":["x"]},"a":["[masked]"],"s3cret":"n"}` {
		t.Errorf("got %s", kept)
	}
}
