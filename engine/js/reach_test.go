package js

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"stepwell/engine"
)

// TestReach says what is read of sourceData, or of each of several parameters.
func TestReach(t *testing.T) {
	t.Parallel()
	three := []string{"response", "pageInfo", "sourceData"}
	for _, c := range []struct {
		params []string
		source string
		want   string // paths of each parameter
	}{
		{nil, "(s) => s.a.b", "a.b"},
		{nil, "(s) => s.a.b + s.c", "a.b c"},
		{nil, "(s) => s.a.b + s.a", "a"},
		{nil, "(s) => s.a + s.a.b", "a"},
		{nil, "(s) => s['x y'].b[0]", "x y.b.0"},
		{nil, "(s) => s.a?.b?.c", "a.b.c"},
		{nil, "(s) => s.a.b.map(x => x.c)", "a.b"},
		{nil, "(s) => s.a.b?.map(x => x.c)", "a.b"},
		{nil, "(s) => s.f(s.a)", "*"},
		{nil, "(s) => s.a.map(s => s.x)", "a x"},
		{nil, "(s) => new s.a.B(1)", "a"},
		{nil, "(s) => s.a.tag`${s.b}`", "a b"},
		{nil, "(s) => s", "*"},
		{nil, "(s) => f(s)", "*"},
		{nil, "(s) => ({...s})", "*"},
		{nil, "(s) => s[key]", "*"},
		{nil, "(s) => s.a[s.k].b", "a k"},
		{nil, "(s) => { const t = s; return t.a }", "*"},
		{nil, "(s) => { s = {}; return s.a }", "*"},
		{nil, "(s) => arguments", "*"},
		{nil, "(s) => this", "*"},
		{nil, "(s) => Object.prototype", "*"},
		{nil, "(s) => s.a.constructor.prototype", "*"},
		{nil, "(s) => { with (s.a) { return b } }", "*"},
		{nil, "(s) => ({s})", "*"},
		{nil, "(s) => `${s.a} ${s.b.c}`", "a b.c"},
		{nil, "(s) => { for (const x of s.list) if (s.on) return x.y }", "list on"},
		{nil, "(s) => { s.a.b = 1; s.c.d++; delete s.e.f; return 0 }", "a.b c.d e.f"},
		{nil, "({a, b: {c}, 'd e': d}) => a", "a b.c d e"},
		{nil, "({a: {}}) => 1", "a"},
		{nil, "({a = 1, ...rest}) => a", "*"},
		{nil, "({[k]: a}) => a", "*"},
		{nil, "([a]) => a", "*"},
		{nil, "(...all) => 1", "*"},
		{nil, "(s) => { const {a, b: {c}} = s.x; const {d} = s; return a }", "d x.a x.b.c"},
		{nil, "(s) => { const {a, ...rest} = s.x; return a }", "x"},
		{nil, "(s) => { const [a] = s.x; return a }", "x"},
		{nil, "(s) => { let a; ({a} = s); return a }", "*"},
		{nil, "() => 1", ""},
		{nil, "1 + 1", ""},
		{nil, "userId", "userId"},
		{nil, ".a.b", "a.b"},
		{nil, "$.a.b + sourceData.c", "a.b c"},
		{nil, "return $.a", "a"},
		{nil, "async (s) => (await s.a.b).c", "a.b"},
		{nil, "class A { m() { return $.a } }", "a"},
		{nil, "(s, t = s.a) => t", "a"},
		{nil, "(s) => s.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a", "a" + strings.Repeat(".a", maxPathDepth-1)},
		{three, "(response, pageInfo) => pageInfo.totalFetched >= 500", "; totalFetched; "},
		{three, "(r, p, s) => r.data.items.length === 0 && p.page > s.max", "data.items.length; page; max"},
		{three, "return response.status == 200", "status; ; "},
		{three, "done", "; ; done"},
		{three, "$.done", "; ; done"},
		{three, "(pageInfo) => pageInfo.data", "data; data; "},
	} {
		if c.params == nil {
			c.params = []string{inputName}
		}
		p, err := compile(c.source, c.params)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		var all []string
		for _, reach := range p.reach {
			list, some := reach.list()
			var paths []string
			for _, path := range list {
				paths = append(paths, strings.Join(path, "."))
			}
			if !some {
				paths = []string{"*"}
			}
			all = append(all, strings.Join(paths, " "))
		}
		if got := strings.Join(all, "; "); got != c.want {
			t.Errorf("%s reads %q, want %q", c.source, got, c.want)
		}
	}
}

func TestPrune(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ paths, value, want string }{
		{"a", `{"a":{"x":1},"b":2}`, `{"a":{"x":1}}`},
		{"a.x b", ` { "a" : { "x" : 1 , "y" : 2 } , "b" : [ 1 ] , "c": 3 } `, `{"a":{"x":1},"b":[ 1 ]}`},
		{"a.x", `{"a":[{"x":1}]}`, `{"a":[{"x":1}]}`},
		{"a.x", `{"a":null,"b":1}`, `{"a":null}`},
		{"a.x", `{"a":"text"}`, `{"a":"text"}`},
		{"a.x", `{"b":1}`, `{}`},
		{"a.x", `7`, `7`},
		{"é\"", `{"\u00e9\"":1,"b":2}`, `{"\u00e9\"":1}`},
		{"a", `{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{"a", `{}`, `{}`},
	} {
		p := &paths{}
		for _, path := range strings.Fields(c.paths) {
			p.add(strings.Split(path, "."))
		}
		if got := string(p.prune(nil, []byte(c.value))); got != c.want {
			t.Errorf("%s of %s is %s, want %s", c.paths, c.value, got, c.want)
		}
	}
}

// differ evaluates a source with the data that it can reach and with all of it,
// and gives both outcomes.
func differ(t testing.TB, source string, data map[string]json.RawMessage) (pruned, whole string) {
	t.Helper()
	p, failed := compile(source, []string{inputName})
	if failed != nil {
		return failed.Message, failed.Message
	}
	outcome := func(reach *paths) string {
		b := newBuilder(map[string]engine.Scope{inputName: engine.MapScope(data)}, DefaultMemory)
		if _, err := b.document(context.Background(), inputName, reach, ""); err != nil {
			t.Fatal(err)
		}
		r := evaluate(p, arguments{names: []string{inputName}, docs: b.docs})
		return fmt.Sprintf("%s %v %v %q", r.Value, r.Undefined, r.Err, r.Console)
	}
	return outcome(p.reach[0]), outcome(&paths{whole: true})
}

// generator makes random programs over the keys a to d.
type generator struct{ *rand.Rand }

func (g generator) pick(options ...string) string { return options[g.IntN(len(options))] }
func (g generator) key() string                   { return g.pick("a", "b", "c", "d") }

// chain makes a way into the input.
func (g generator) chain() string {
	s := g.pick("s", "s", "s", "t", "$", "sourceData")
	for range g.IntN(4) {
		s += g.pick("."+g.key(), "?."+g.key(), "['"+g.key()+"']", "[0]", "?.[1]", "."+g.key(), "?.length", "[k]", "?.[k]")
	}
	return s
}

func (g generator) expression(depth int) string {
	if depth <= 0 {
		return g.chain()
	}
	e := func() string { return g.expression(depth - 1) }
	switch g.IntN(16) {
	case 0:
		return "[" + e() + "," + e() + "]"
	case 1:
		return "({" + g.key() + ":" + e() + ", ..." + e() + "})"
	case 2:
		return "(" + e() + " ?? " + e() + ")"
	case 3:
		return "JSON.stringify(" + e() + ")"
	case 4:
		return "Object.keys(" + e() + " ?? {})"
	case 5:
		return "(s => " + e() + ")(" + e() + ")"
	case 6:
		return "(({" + g.key() + ", " + g.key() + ": q = 1}) => [q, " + e() + "])(" + e() + " ?? {})"
	case 7:
		return "(() => { const {" + g.key() + ": {" + g.key() + ": v} = {}} = " + e() + " ?? {}; return [v, " + e() + "] })()"
	case 8:
		return "(() => { let t = " + e() + "; return " + e() + " })()"
	case 9:
		return "((" + g.chain() + ") && " + e() + ")"
	case 10:
		return "`${" + e() + "}`"
	case 11:
		return "(() => { try { s." + g.key() + "." + g.key() + " = " + e() + "; delete s." + g.key() + "; } catch (e) {} return " + e() + " })()"
	case 12:
		return "(('" + g.key() + "' in Object(" + g.chain() + ")) ? 1 : " + e() + ")"
	case 13:
		return g.chain() + "?.map?.(s => " + e() + ")"
	case 14:
		return g.chain() + "?.hasOwnProperty('" + g.key() + "')"
	default:
		return g.chain()
	}
}

func (g generator) value(depth int) any {
	switch n := g.IntN(6); {
	case depth > 0 && n < 3:
		m := make(map[string]any)
		for range g.IntN(4) {
			m[g.key()] = g.value(depth - 1)
		}
		return m
	case depth > 0 && n == 3:
		return []any{g.value(depth - 1), g.value(depth - 1)}
	case n == 4:
		return g.key()
	}
	return g.IntN(10)
}

func (g generator) program() string {
	head := g.pick("(s) => ", "(s, t = s, k = 'a') => ", "({a, b: t}) => ", "")
	if head == "" {
		return "const s = $, t = sourceData.a, k = 'b'; return " + g.expression(3)
	}
	return head + g.expression(3)
}

// TestPrunedDataGivesTheSame is the property that pruning rests on.
func TestPrunedDataGivesTheSame(t *testing.T) {
	t.Parallel()
	pruning := 0
	for seed := range uint64(4000) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		source := g.program()
		data := make(map[string]json.RawMessage)
		for _, key := range []string{"a", "b", "c", "d"} {
			text, err := json.Marshal(g.value(4))
			if err != nil {
				t.Fatal(err)
			}
			data[key] = text
		}
		pruned, whole := differ(t, source, data)
		if pruned != whole {
			t.Errorf("seed %d: %s\npruned %s\n whole %s", seed, source, pruned, whole)
		}
		if p, err := compile(source, []string{inputName}); err == nil && !p.reach[0].whole {
			pruning++
		}
	}
	if pruning < 200 {
		t.Errorf("only %d of the programs were pruned", pruning)
	}
}

// FuzzPrune does the same with any source.
func FuzzPrune(f *testing.F) {
	for _, file := range loadCases(f) {
		for _, c := range file.Cases {
			f.Add(c.Source)
		}
	}
	data := map[string]json.RawMessage{
		"a": json.RawMessage(`{"b":{"c":[1,{"d":2}],"a":"x"},"c":null}`), "b": json.RawMessage(`[{"a":1},{"a":2}]`),
		"userId": json.RawMessage(`"u1"`), "s": json.RawMessage(`{"s":{"s":1}}`),
	}
	f.Fuzz(func(t *testing.T, source string) {
		for _, word := range []string{"for", "while", "random", "Date", "repeat", "pad", "Array", "fill", "Buffer", "console"} {
			if strings.Contains(source, word) || len(source) > 200 {
				t.Skip("may not end, or not be the same twice")
			}
		}
		if pruned, whole := differ(t, source, data); pruned != whole {
			t.Errorf("%s\npruned %s\n whole %s", source, pruned, whole)
		}
	})
}

// TestReads states which expressions count as ones that can read a key.
func TestReads(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	for source, want := range map[string]bool{
		"(s) => s.persistedState.n":                  true,
		"(s) => s.other.persistedState":              false,
		"({persistedState: {n}}) => n":               true,
		"({other}) => other":                         false,
		"({...all}) => 1":                            true,
		"(s) => { const all = s; return all.other }": true,
		"(s) => s['persisted' + 'State']":            true,
		"(s) => s.currentItem":                       false,
		"() => 1":                                    false,
		"return $.persistedState":                    true,
		"sourceData.persistedState.a = 1":            true,
		"(s) => JSON.stringify(s)":                   true,
		"function (s) { return arguments[0].x }":     true,
		"(s) => s.a.map((x) => x.persistedState)":    false,
		"(s) => { does not parse":                    true,
		"(s) => s.persistedState = {}":               true,
		"(s) => delete s.persistedState":             true,
		"(s, persistedState) => persistedState":      false,
	} {
		reads, err := p.Reads(t.Context(), []engine.Expression{{Source: source, Params: []string{inputName}}}, "persistedState")
		if err != nil || reads[0] != want {
			t.Errorf("%s: %v %v, want %v", source, reads, err, want)
		}
	}
	stop := engine.Expression{Source: "(response, info, s) => response.persistedState || s.x", Params: []string{"response", "pageInfo", inputName}}
	if reads, err := p.Reads(t.Context(), []engine.Expression{stop}, "persistedState"); err != nil || reads[0] {
		t.Errorf("a key of an answer counts as the state: %v %v", reads, err)
	}
}
