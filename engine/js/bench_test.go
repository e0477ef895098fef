package js

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stepwell/engine"
)

// page makes the text of a page of about 18 KB.
func page() []byte {
	var b strings.Builder
	b.WriteString(`{"data":[`)
	for i := range 100 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"name":"customer number %d","email":"c%d@example.com","total":%d.25,"tags":["a","b"],"active":true,"note":null,"city":"Zürich","created":"2024-01-01T00:00:00Z"}`, i, i, i, i)
	}
	b.WriteString(`],"next_cursor":"abc"}`)
	return []byte(b.String())
}

func benchmark(b *testing.B, req engine.EvalRequest) {
	p, err := NewPool(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.ReportAllocs()
	for b.Loop() {
		r, err := p.Evaluate(context.Background(), req)
		if err != nil || r[0].Err != nil {
			b.Fatal(err, r)
		}
	}
}

func input(source string) engine.EvalRequest {
	return engine.EvalRequest{
		Expressions: []engine.Expression{{Source: source, Params: []string{"sourceData"}}},
		Args:        map[string]engine.Scope{"sourceData": engine.MapScope{"userId": json.RawMessage(`"u1"`), "list": page()}},
	}
}

func BenchmarkSmall(b *testing.B)    { benchmark(b, input("(s) => s.userId + '/x'")) }
func BenchmarkPage(b *testing.B)     { benchmark(b, input("(s) => s.list.data.length")) }
func BenchmarkPageBoth(b *testing.B) { benchmark(b, input("(s) => s.list.data")) }
func BenchmarkStop(b *testing.B) {
	benchmark(b, engine.EvalRequest{
		Expressions: []engine.Expression{{Source: "(response, pageInfo) => pageInfo.totalFetched >= 500", Params: []string{"response", "pageInfo", "sourceData"}}},
		Args: map[string]engine.Scope{
			"response": engine.MapScope{"data": page()},
			"pageInfo": engine.MapScope{"totalFetched": json.RawMessage("100")},
		},
	})
}

func BenchmarkParallel(b *testing.B) {
	p, err := NewPool(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	req := input("(s) => s.userId + '/x'")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r, err := p.Evaluate(context.Background(), req); err != nil || r[0].Err != nil {
				b.Error(err, r)
				return
			}
		}
	})
}
