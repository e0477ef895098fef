package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// serveTLS starts an HTTPS server that offers HTTP/2, and gives its authority.
func serveTLS(t testing.TB, h http.HandlerFunc) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail on purpose
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, roots
}

func TestProtocolOverTLS(t *testing.T) {
	t.Parallel()
	s, roots := serveTLS(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	c := newClient(t, Config{Roots: roots})
	for range 3 {
		if resp := do(t, c, Request{URL: s.URL, Repeatable: true}); string(resp.Body) != "HTTP/2.0" {
			t.Errorf("repeatable request by %s", resp.Body)
		}
		if resp := do(t, c, Request{Method: "POST", URL: s.URL, Body: []byte("x")}); string(resp.Body) != "HTTP/1.1" {
			t.Errorf("request with effects by %s", resp.Body)
		}
	}
}

func TestHTTP2AnswerLimits(t *testing.T) {
	t.Parallel()
	s, roots := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			io.WriteString(w, "part")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		chunk := make([]byte, 64<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	c := newClient(t, Config{Roots: roots, MaxAnswer: 1 << 20})
	doFails(t, c, Request{URL: s.URL, Repeatable: true}, TooLarge)
	doFails(t, c, Request{URL: s.URL + "/abort", Repeatable: true}, Network)
}

func TestTLSFailuresAreNotSent(t *testing.T) {
	t.Parallel()
	s, roots := serveTLS(t, echo)
	plain := serve(t, echo)
	old := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	old.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	old.Config.ErrorLog = log.New(io.Discard, "", 0)
	old.StartTLS()
	t.Cleanup(old.Close)
	trusting, suspicious := newClient(t, Config{Roots: roots}), newClient(t, Config{})
	for name, tc := range map[string]struct {
		client *Client
		url    string
	}{
		"untrusted": {suspicious, s.URL},
		"plain":     {trusting, "https://" + plain.Listener.Addr().String()},
		"TLS 1.1":   {trusting, old.URL},
	} {
		if e := doFails(t, tc.client, Request{Method: "POST", URL: tc.url}, TLS); e.Sent {
			t.Errorf("%s: sent", name)
		}
	}
}
