package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"stepwell"
)

// discard is a response writer without a connection.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func benchmark(b *testing.B, method, path, body string) {
	m := newMemory()
	m.finish = func(_ NewRun, r *stepwell.Run) { r.Data, r.DataSize = json.RawMessage(`{"ok":true}`), 11 }
	h := newTestAPI(m, nil)
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest(method, "http://x/v1"+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer admin-key")
		h.ServeHTTP(&discard{http.Header{}}, req)
	}
}

func BenchmarkSyncRun(b *testing.B) {
	benchmark(b, "POST", "/tools/orders/run", `{"inputs":{"id":12,"name":"x","tags":["a","b"]},"options":{"mode":"dev"}}`)
}

func BenchmarkGetRun(b *testing.B) { benchmark(b, "GET", "/runs/run-1", "") }

func BenchmarkListRuns(b *testing.B) { benchmark(b, "GET", "/runs?limit=50", "") }

func BenchmarkCheckJSON(b *testing.B) {
	text := []byte(`{"inputs":{"rows":[` + strings.Repeat(`{"id":12,"name":"some text here","ok":true,"n":1.5},`, 20_000) + `{}]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		checkJSON(text)
	}
}
