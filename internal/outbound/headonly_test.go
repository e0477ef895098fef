package outbound

import (
	"net/http"
	"testing"
	"time"
)

// TestHeadOnly wants the head alone: a redirect is an answer, and a body that never ends
// holds nobody up.
func TestHeadOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	c := newClient(t, Config{})
	for path, status := range map[string]int{"/redirect": 302, "/endless": 429} {
		resp := do(t, c, Request{Method: "POST", URL: s.URL + path, Body: []byte("{}"), Repeatable: true, HeadOnly: true, Timeout: time.Minute})
		if resp.Status != status || len(resp.Body) != 0 || path == "/endless" && resp.Header.Get("Retry-After") != "7" {
			t.Errorf("%s: %d with %d bytes", path, resp.Status, len(resp.Body))
		}
		resp.Close()
	}
}
