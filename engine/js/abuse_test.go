package js

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/engine"
)

// newTestPool makes a pool that is closed with the test.
func newTestPool(t testing.TB, o Options) *Pool {
	t.Helper()
	p, err := NewPool(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// one evaluates one expression over sourceData.
func one(t testing.TB, p *Pool, source string, data map[string]string) engine.EvalResult {
	t.Helper()
	scope := engine.MapScope{}
	for k, v := range data {
		scope[k] = json.RawMessage(v)
	}
	results, err := p.Evaluate(context.Background(), engine.EvalRequest{
		Expressions: []engine.Expression{{Source: source, Params: []string{"sourceData"}}},
		Args:        map[string]engine.Scope{"sourceData": scope},
	})
	if err != nil {
		t.Fatalf("%.80s: %v", source, err)
	}
	return results[0]
}

// abuse is code that would kill or hang a process that interprets it.
var abuse = map[string]string{
	"endless loop":            "(s) => { for (;;) {} }",
	"endless loop in finally": "(s) => { try { for (;;) {} } finally { for (;;) {} } }",
	"endless microtasks":      "async (s) => { for (;;) await 0 }",
	"huge string":             "(s) => 'x'.repeat(2**33)",
	"huge padding":            "(s) => 'x'.padStart(2**31)",
	"huge typed array":        "(s) => new Uint8Array(2**33)",
	"huge buffer":             "(s) => Buffer.alloc(2**33)",
	"huge BigInt":             "(s) => 2n**(2n**33n)",
	"huge array":              "(s) => { let a = []; a.length = 4294967295; return a.indexOf(1) }",
	"huge join":               "(s) => new Array(2**31).join('xxxxxxxx').length",
	"growing array":           "(s) => { let a = []; for (;;) a.push('x'.repeat(1000)) }",
	"growing string":          "(s) => { let a = 'x'; for (;;) a += a }",
	"growing map":             "(s) => { const m = new Map(); for (let i = 0; ; i++) m.set(i, {i}) }",
	"deep recursion":          "(s) => { const f = () => f(); return f() }",
	"recursion through map":   "(s) => { const f = () => [1].map(f); return f() }",
	"recursion through sort":  "(s) => { const f = () => [1, 2].sort(f); return f() }",
	"recursion in getters":    "(s) => { const o = { get a() { return o.a } }; return o.a }",
	"recursion in toString":   "(s) => { const o = { toString() { return '' + o } }; return '' + o }",
	"recursion in proxies":    "(s) => { let p = {}; for (let i = 0; i < 1e6; i++) p = new Proxy(p, {}); return p.x }",
	"deep value as text":      "(s) => { let a = []; for (let i = 0; i < 5e6; i++) a = [a]; return String(a) }",
	"deep value as result":    "(s) => { let a = []; for (let i = 0; i < 5e6; i++) a = [a]; return a }",
	"deep JSON":               "(s) => JSON.parse('['.repeat(5e6))",
	"catastrophic regex":      "(s) => /(a+)+\\1$/.test('a'.repeat(200) + '!')",
	"deep regex":              "(s) => new RegExp('('.repeat(1e6) + ')'.repeat(1e6))",
	"huge result":             "(s) => 'x'.repeat(200e6)",
	"huge result in an array": "(s) => new Array(1e7).fill('0123456789012345678901234567890123456789')",
	"huge console":            "(s) => { for (;;) console.log('x'.repeat(1e6)) }",
	"endless iterator":        "(s) => [...(function* () { for (;;) yield 1 })()]",
	"endless toJSON":          "(s) => ({ toJSON() { for (;;) {} } })",
	"endless error text":      "(s) => { throw { get message() { for (;;) {} } } }",
	"nested parentheses":      strings.Repeat("(", 300_000) + "1" + strings.Repeat(")", 300_000),
	"parentheses":             strings.Repeat("(", 30_000) + "1" + strings.Repeat(")", 30_000),
	"brackets":                strings.Repeat("[", 30_000) + "1" + strings.Repeat("]", 30_000),
	"blocks":                  strings.Repeat("{", 30_000) + strings.Repeat("}", 30_000),
	"objects":                 strings.Repeat("{a:", 15_000) + "1" + strings.Repeat("}", 15_000),
	"negations":               strings.Repeat("!", 60_000) + "1",
	"calls of members":        "$" + strings.Repeat(".a()", 15_000),
	"calls":                   "$" + strings.Repeat("()", 30_000),
	"ternaries":               strings.Repeat("1?2:", 15_000) + "1",
	"templates":               strings.Repeat("`${", 10_000) + "1" + strings.Repeat("}`", 10_000),
	"additions":               strings.Repeat("1+", 30_000) + "1",
	"arrows":                  strings.Repeat("a=>", 20_000) + "1",
	"hidden parentheses":      "/'/," + strings.Repeat("(", 30_000) + "1" + strings.Repeat(")", 30_000),
}

func TestAbuse(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: runtime.GOMAXPROCS(0) + 1}) // one more than tests run at a time
	stop, stopped := make(chan struct{}), make(chan struct{})
	var neighbour atomic.Int64
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r := one(t, p, "(s) => s.a + 1", map[string]string{"a": "1"}); string(r.Value) != "2" {
				t.Errorf("a neighbour got %s, %v", r.Value, r.Err)
			}
			neighbour.Add(1)
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		if neighbour.Load() < 100 {
			t.Errorf("a neighbour had only %d evaluations", neighbour.Load())
		}
	})
	for name, source := range abuse {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := time.Now()
			results, err := p.Evaluate(context.Background(), request(500*time.Millisecond, source))
			if err != nil {
				t.Fatal(err)
			}
			r, took := results[0], time.Since(started)
			if r.Err == nil || !r.Err.Limit || !strings.Contains(r.Err.Message, "limit of an expression") {
				t.Errorf("gave %.100s, %+v; want an error that names a limit", r.Value, r.Err)
			} else {
				t.Logf("%v: %s", took.Round(time.Millisecond), r.Err.Message)
			}
			if took > 15*time.Second && !raceEnabled {
				t.Errorf("took %v", took)
			}
		})
	}
}
