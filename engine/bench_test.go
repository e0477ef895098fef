package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"testing"

	"stepwell"
	"stepwell/engine"
)

// pageOf makes a page of records with a cursor; 100 records are about 18 KB.
func pageOf(records int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"data":[`)
	for i := range records {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"email":"user%d@example.test","name":"User Number %d","active":true,"tags":["a","b"],"amount":%d.25,"note":"a note of some length for record %d, so that the page is realistic"}`, i, i, i, i*3, i)
	}
	b.WriteString(`],"meta":{"total":100000,"page":1},"next_cursor":"abcdef"}`)
	return b.Bytes()
}

var benchScope = engine.SourceData(engine.Sources{
	Inputs: json.RawMessage(`{"user":{"id":123456789,"name":"Ann"},"limit":"x","token":"t"}`),
})

func benchmarkBuild(b *testing.B, url, query string) {
	s := compileStep(b, stepwell.Step{ID: "s", Config: stepwell.StepConfig{
		URL: url, QueryParams: map[string]json.RawMessage{"user": json.RawMessage(query), "cursor": json.RawMessage(`"<<cursor>>"`), "limit": json.RawMessage(`"<<limit>>"`)},
		Headers:    map[string]json.RawMessage{"Authorization": json.RawMessage(`"Bearer <<token>>"`), "Accept": json.RawMessage(`"application/json"`)},
		Pagination: &stepwell.Pagination{Type: "cursorBased"},
	}})
	b.ReportAllocs()
	for b.Loop() {
		st := engine.PageState{Page: 2, PageSize: 50, Cursor: json.RawMessage(`"abc"`)}
		if _, err := s.Build(b.Context(), pool, benchScope, &st); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuildPlain(b *testing.B) {
	benchmarkBuild(b, "https://api.test/users/<<(s) => s.user.id>>/items", `"<<(s) => s.user.name>>"`)
}

func BenchmarkBuildJS(b *testing.B) {
	benchmarkBuild(b, "https://api.test/users/<<(s) => s.user.id + 0>>/items", `"<<(s) => s.user.name.trim()>>"`)
}

func benchmarkInterpret(b *testing.B, stop string) {
	s := compileStep(b, stepwell.Step{ID: "s", Config: stepwell.StepConfig{URL: "https://api.test/", Pagination: &stepwell.Pagination{Type: "cursorBased", StopCondition: stop}}})
	a := &engine.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: pageOf(100), URL: "https://api.test/"}
	b.SetBytes(int64(len(a.Body)))
	b.ReportAllocs()
	for b.Loop() {
		st := engine.PageState{Page: 2, PageSize: 50, TotalFetched: 100}
		out, err := s.Interpret(b.Context(), pool, benchScope, &st, func(string) bool { return false }, a)
		if err != nil || out.Count != 100 || out.Done {
			b.Fatal(out, err)
		}
	}
}

func BenchmarkInterpret(b *testing.B) { benchmarkInterpret(b, "") }
func BenchmarkInterpretStop(b *testing.B) {
	benchmarkInterpret(b, "(response, pageInfo) => pageInfo.totalFetched >= 1000")
}

func BenchmarkMerge1000Pages(b *testing.B) {
	page := json.RawMessage(pageOf(100))
	pages := iter.Seq2[json.RawMessage, error](func(yield func(json.RawMessage, error) bool) {
		for i := range 1000 {
			if i%2 == 1 { // no page equals the one before it
				if !yield(page, nil) {
					return
				}
			} else if !yield(bytes.Replace(page, []byte("User"), []byte("Else"), 1), nil) {
				return
			}
		}
	})
	b.SetBytes(int64(len(page)) * 1000)
	b.ReportAllocs()
	for b.Loop() {
		if out, err := engine.Merge(pages); err != nil || len(out) < len(page)*900 {
			b.Fatal(len(out), err)
		}
	}
}

func BenchmarkFilter10000Records(b *testing.B) {
	f, err := engine.CompileFilters([]stepwell.ResponseFilter{
		{Target: "KEYS", Pattern: "^(ssn|password)$", Action: "REMOVE"},
		{Target: "VALUES", Pattern: `[a-z0-9.]+@example\.test`, Action: "MASK"},
		{Target: "VALUES", Pattern: `\b\d{16}\b`, Action: "FAIL"},
	})
	if err != nil {
		b.Fatal(err)
	}
	data := pageOf(10_000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if out, err := f.Apply(data); err != nil || len(out) == len(data) {
			b.Fatal(err)
		}
	}
}
