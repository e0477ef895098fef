package outbound

import (
	"bufio"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// primer is answered whole on a kept connection, so that a client that would
// send a request with effects on a kept connection has one at hand.
const (
	primed = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nprimed"
	whole  = "HTTP/1.1 201 Created\r\nX-A: b\r\nContent-Length: 4\r\n\r\ndone"
)

// cutServer serves the primer on its first connection. All else (on it and on
// every other connection) is read up to readCut bytes, answered up to writeCut
// bytes, and cut.
type cutServer struct {
	address           string
	readCut, writeCut int
	reset             bool // by RST, else by FIN
	arrived           atomic.Int64
	seen              atomic.Int64 // connections that were opened
	served            sync.WaitGroup
}

func newCutServer(t *testing.T, readCut, writeCut int, reset bool) *cutServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &cutServer{address: l.Addr().String(), readCut: readCut, writeCut: writeCut, reset: reset}
	s.served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			first := s.seen.Add(1) == 1
			s.served.Go(func() { s.serve(conn.(*net.TCPConn), first) })
		}
	})
	t.Cleanup(func() { l.Close(); s.served.Wait() })
	return s
}

func (s *cutServer) serve(conn *net.TCPConn, first bool) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := bufio.NewReader(conn)
	if first {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(conn, primed)
	}
	// The first byte counts as an arrival, whatever is cut then.
	if _, err := r.Peek(1); err != nil {
		return
	}
	s.arrived.Add(1)
	if n, _ := io.CopyN(io.Discard, r, int64(s.readCut)); n == int64(s.readCut) && s.writeCut > 0 {
		_, _ = io.WriteString(conn, whole[:s.writeCut])
	}
	if s.reset {
		_ = conn.SetLinger(0)
	}
}

// effects are requests of every kind that net/http treats in its own way.
var effects = map[string]Request{
	"post":            {Method: "POST", Body: []byte("hello")},
	"post, key":       {Method: "POST", Body: []byte("hello"), Header: http.Header{"Idempotency-Key": {"k"}}},
	"post, no body":   {Method: "POST", Header: http.Header{"Idempotency-Key": {"k"}}},
	"get that writes": {Method: "GET", Header: http.Header{"X-Idempotency-Key": {"k"}}},
	"delete":          {Method: "DELETE"},
}

// requestSize is the number of bytes that a request has on the wire.
func requestSize(t *testing.T, r Request) int {
	size := make(chan int, 1)
	address, _ := rawServer(t, func(conn net.Conn) {
		counted := &countingReader{r: conn}
		b := bufio.NewReader(counted)
		req, err := http.ReadRequest(b)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		size <- counted.n - b.Buffered()
		_, _ = io.WriteString(conn, whole)
	})
	r.URL = "http://" + address
	do(t, newClient(t, Config{}), r)
	return <-size
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestRequestWithEffectsIsSentOnce(t *testing.T) {
	t.Parallel()
	for name, request := range effects {
		for _, reset := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reset %v", name, reset), func(t *testing.T) {
				t.Parallel()
				size := requestSize(t, request)
				for cut := range size + len(whole) + 1 {
					cutOnce(t, request, min(cut, size), max(cut-size, 0), reset)
				}
			})
		}
	}
}

func cutOnce(t *testing.T, r Request, readCut, writeCut int, reset bool) {
	s := newCutServer(t, readCut, writeCut, reset)
	c := newClient(t, Config{})
	r.URL = "http://" + s.address
	if resp := do(t, c, Request{URL: r.URL, Repeatable: true}); string(resp.Body) != "primed" {
		t.Fatalf("primer: %q", resp.Body)
	}
	resp, err := c.Do(t.Context(), r)
	var e *Error
	switch {
	case err == nil && writeCut == len(whole):
		if string(resp.Body) != "done" || resp.Status != 201 {
			t.Errorf("cut at %d+%d: status %d, body %q", readCut, writeCut, resp.Status, resp.Body)
		}
	case err == nil:
		t.Errorf("cut at %d+%d: success with body %q", readCut, writeCut, resp.Body)
	case writeCut == len(whole) && !reset:
		t.Errorf("whole answer: %v", err)
	case !errors.As(err, &e) || e.Reason != Network || !e.Sent:
		t.Errorf("cut at %d+%d: %v, reason %q, sent %v", readCut, writeCut, err, e.Reason, e.Sent)
	}
	if arrived := s.arrived.Load(); arrived > 1 {
		t.Errorf("cut at %d+%d: arrived %d times", readCut, writeCut, arrived)
	}
	if seen := s.seen.Load(); seen > 2 {
		t.Errorf("cut at %d+%d: %d connections beside the primer's", readCut, writeCut, seen-1)
	}
}

// A repeatable request survives the death of a kept connection, whatever its
// method: the server may always close an idle one.
func TestRepeatableRequestSurvivesADeadKeptConnection(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			var connections atomic.Int64
			address, _ := rawServer(t, func(conn net.Conn) {
				first := connections.Add(1) == 1
				r := bufio.NewReader(conn)
				for range 2 {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					io.WriteString(conn, whole)
					if first {
						_, _ = r.Peek(1) // the next request arrives, and nobody answers
						return
					}
				}
			})
			c := newClient(t, Config{})
			for range 2 {
				resp := do(t, c, Request{Method: method, URL: "http://" + address, Body: []byte("x"), Repeatable: true})
				if string(resp.Body) != "done" {
					t.Errorf("body %q", resp.Body)
				}
			}
			if n := connections.Load(); n != 2 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// Over TLS the bytes that are cut are those of a proxy in between; the request
// is counted where it is handled.
func TestRequestWithEffectsIsHandledOnceOverTLS(t *testing.T) {
	t.Parallel()
	var handled atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled.Add(1)
		io.WriteString(w, "done")
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes are cut on purpose
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	upstream := s.Listener.Addr().String()

	failed, succeeded := 0, 0
	for cut := 0; cut < 6000 && succeeded == 0; cut += 64 {
		address, _ := rawServer(t, func(conn net.Conn) {
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				return
			}
			defer server.Close()
			go func() { _, _ = io.Copy(server, conn); server.Close() }()
			_, _ = io.CopyN(conn, server, int64(cut))
		})
		before := handled.Load()
		_, err := newClient(t, Config{Roots: roots}).Do(t.Context(), Request{Method: "GET", URL: "https://" + address, Header: http.Header{"Idempotency-Key": {"k"}}})
		var e *Error
		switch n := handled.Load() - before; {
		case err == nil:
			succeeded++
		case n > 1:
			t.Errorf("cut at %d: handled %d times", cut, n)
		case !errors.As(err, &e) || n > 0 && !e.Sent:
			t.Errorf("cut at %d: handled and reported as not sent: %v", cut, err)
		default:
			failed++
		}
	}
	if succeeded == 0 || failed < 10 {
		t.Errorf("%d failed, %d succeeded: the cuts do not cover the exchange", failed, succeeded)
	}
}
