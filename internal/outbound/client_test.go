package outbound

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

// net/http tells the standard logger about servers that write out of turn.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}

func newClient(t testing.TB, c Config) *Client {
	t.Helper()
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// rawServer runs serve for each connection, in its own goroutine, and counts
// them. It ends with the test.
func rawServer(t testing.TB, serve func(net.Conn)) (address string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				serve(conn)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), connections
}

// answering reads one request and writes text.
func answering(text string) func(net.Conn) {
	return func(conn net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(conn, text)
		}
	}
}

func do(t testing.TB, c *Client, r Request) *Response {
	t.Helper()
	resp, err := c.Do(t.Context(), r)
	if err != nil {
		t.Fatalf("%s %s: %v (%v)", r.Method, r.URL, err, errors.Unwrap(err))
	}
	t.Cleanup(resp.Close)
	return resp
}

// doFails sends a request that must fail for a reason.
func doFails(t testing.TB, c *Client, r Request, want Reason) *Error {
	t.Helper()
	resp, err := c.Do(t.Context(), r)
	if err == nil {
		t.Fatalf("%s %s: status %d, want %q", r.Method, r.URL, resp.Status, want)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error is a %T", err)
	}
	if e.Reason != want {
		t.Fatalf("%s %s: reason %q (%v; %v), want %q", r.Method, r.URL, e.Reason, e, e.Err, want)
	}
	return e
}

func TestRequestArrivesAsGiven(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", fmt.Sprint(r.Header))
		w.WriteHeader(418)
		fmt.Fprintf(w, "%s %s %s %d", r.Method, r.RequestURI, body, r.ContentLength)
	})
	for _, repeatable := range []bool{true, false} {
		resp := do(t, newClient(t, Config{}), Request{
			Method: "PATCH", URL: s.URL + "/a%2Fb?x=%20y&z", Body: []byte("hello"), Repeatable: repeatable,
			Header: http.Header{"traceparent": {"00-1"}, "X-Two": {"a", "b"}, "Host": {"evil"}, "Content-Length": {"1"},
				"Transfer-Encoding": {"chunked"}, "Connection": {"upgrade"}, "Proxy-Authorization": {"p"}},
		})
		if got, want := string(resp.Body), "PATCH /a%2Fb?x=%20y&z hello 5"; got != want || resp.Status != 418 {
			t.Errorf("got %d %q, want 418 %q", resp.Status, got, want)
		}
		seen := resp.Header.Get("X-Seen")
		for _, want := range []string{"Traceparent:[00-1]", "X-Two:[a b]", "User-Agent:[stepwell]", "Accept-Encoding:[gzip, deflate]"} {
			if !strings.Contains(seen, want) {
				t.Errorf("repeatable %v: upstream saw %s, without %s", repeatable, seen, want)
			}
		}
		if strings.Contains(seen, "Idempotency") || strings.Contains(seen, "Proxy") {
			t.Errorf("repeatable %v: upstream saw %s", repeatable, seen)
		}
	}
}

func TestEmptyBodies(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Length", fmt.Sprint(r.ContentLength, r.TransferEncoding))
		w.WriteHeader(204)
	})
	c := newClient(t, Config{})
	for _, method := range []string{"", "GET", "HEAD", "POST", "DELETE", "PUT"} {
		for _, repeatable := range []bool{true, false} {
			resp := do(t, c, Request{Method: method, URL: s.URL, Repeatable: repeatable})
			if got := resp.Header.Get("X-Length"); got != "0 []" || len(resp.Body) != 0 || resp.Status != 204 {
				t.Errorf("%s: length %s, body %q, status %d", method, got, resp.Body, resp.Status)
			}
		}
	}
}

func TestUserinfoBecomesBasic(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Header.Get("Authorization")) })
	c := newClient(t, Config{})
	withUser := strings.Replace(s.URL, "://", "://me:p%40ss@", 1)
	resp := do(t, c, Request{URL: withUser + "/x?token=hush#frag"})
	if string(resp.Body) != "Basic bWU6cEBzcw==" {
		t.Errorf("Authorization %q", resp.Body)
	}
	if want := s.URL + "/x?token=hush"; resp.URL != want {
		t.Errorf("URL %q, want %q", resp.URL, want)
	}
	if resp := do(t, c, Request{URL: withUser, Header: http.Header{"authorization": {"Bearer b"}}}); string(resp.Body) != "Bearer b" {
		t.Errorf("Authorization %q, want the request's own", resp.Body)
	}
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	closed := closedAddress(t)
	c := newClient(t, Config{})
	for url, reason := range map[string]Reason{
		"http://me:hush@" + closed + "/path?token=hush#hush": ConnectionRefused,
		"http://me:hush@h\x7f/?hush":                         Invalid,
		"http://me:hush@/?hush":                              Invalid,
		"http://me:hush@h:99999/?hush":                       Invalid,
		"ftp://me:hush@host/x?hush":                          UnsupportedScheme,
		"mailto:hush@example.com":                            UnsupportedScheme,
		"//me:hush@host/":                                    UnsupportedScheme,
		"http://me:hush@169.254.169.254/x?hush":              Refused,
		"http://me:hush@name.invalid./?hush":                 Unresolved,
	} {
		e := doFails(t, c, Request{Method: "POST", URL: url, Header: http.Header{"X": {"hush"}}}, reason)
		if strings.Contains(fmt.Sprint(e, e.Err), "hush") || e.Sent {
			t.Errorf("%s: sent %v, %v", url, e.Sent, e)
		}
	}
	e := doFails(t, c, Request{Method: "POST", URL: "http://me:x@" + closed + "/path?token=x"}, ConnectionRefused)
	if want := "POST http://" + closed + "/path: connection refused"; e.Error() != want {
		t.Errorf("message %q, want %q", e.Error(), want)
	}
	long := "http://" + closed + "/" + strings.Repeat("ü", 1000)
	if e := doFails(t, c, Request{URL: long}, ConnectionRefused); len(e.Error()) > 400 || !utf8.ValidString(e.Error()) {
		t.Errorf("%d bytes: %q", len(e.Error()), e.Error())
	}
	doFails(t, c, Request{URL: "http://" + closed, Header: http.Header{"X-A": {"a\r\nb: c"}}}, Invalid)
	doFails(t, c, Request{URL: "http://" + closed, Header: http.Header{"X A": {"a"}}}, Invalid)
	doFails(t, c, Request{URL: "http://" + closed, Method: "GET /"}, Invalid)
}

// closedAddress is a loopback address where nobody listens.
func closedAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestTimeoutCountsTheWholeRequest(t *testing.T) {
	t.Parallel()
	drip := func(head string) func(net.Conn) {
		return func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			io.WriteString(conn, head)
			for {
				if _, err := conn.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond) // the drip itself
			}
		}
	}
	for name, head := range map[string]string{"silent": "", "head": "HTTP/1.1 200 OK\r\nX: ", "body": "HTTP/1.1 200 OK\r\n\r\n"} {
		for _, repeatable := range []bool{true, false} {
			t.Run(fmt.Sprint(name, repeatable), func(t *testing.T) {
				t.Parallel()
				handler := drip(head)
				if name == "silent" {
					handler = func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
				}
				address, connections := rawServer(t, handler)
				start := time.Now()
				e := doFails(t, newClient(t, Config{}), Request{URL: "http://" + address, Repeatable: repeatable, Timeout: 100 * time.Millisecond}, Timeout)
				if took := time.Since(start); took < 100*time.Millisecond || took > 20*time.Second || !e.Sent {
					t.Errorf("took %v, sent %v", took, e.Sent)
				}
				if n := connections.Load(); n != 1 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

func TestCancelClosesTheConnectionAtOnce(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{"before the answer": "", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"} {
		for _, repeatable := range []bool{true, false} {
			t.Run(fmt.Sprint(name, repeatable), func(t *testing.T) {
				t.Parallel()
				arrived, closed := make(chan struct{}), make(chan time.Time, 1)
				address, _ := rawServer(t, func(conn net.Conn) {
					r := bufio.NewReader(conn)
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					io.WriteString(conn, head)
					close(arrived)
					_, _ = r.ReadByte()
					closed <- time.Now()
				})
				ctx, cancel := context.WithCancel(t.Context())
				cancelled := make(chan time.Time, 1)
				go func() { <-arrived; cancelled <- time.Now(); cancel() }()
				_, err := newClient(t, Config{}).Do(ctx, Request{URL: "http://" + address, Repeatable: repeatable})
				returned, at := time.Now(), <-cancelled
				var e *Error
				if !errors.As(err, &e) || e.Reason != Cancelled || !e.Sent {
					t.Fatalf("error %v", err)
				}
				if d, s := returned.Sub(at), (<-closed).Sub(at); d > 10*time.Second || s > 10*time.Second {
					t.Errorf("Do returned after %v, the server saw the end after %v", d, s)
				}
			})
		}
	}
}

func TestCancelledBeforeSending(t *testing.T) {
	t.Parallel()
	address, connections := rawServer(t, answering("HTTP/1.1 204 No Content\r\n\r\n"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newClient(t, Config{}).Do(ctx, Request{Method: "POST", URL: "http://" + address})
	var e *Error
	if !errors.As(err, &e) || e.Reason != Cancelled || e.Sent || connections.Load() != 0 {
		t.Errorf("error %v, %d connections", err, connections.Load())
	}
}

func TestConnectionsAreKeptForRepeatableRequests(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c := newClient(t, Config{})
	for range 5 {
		do(t, c, Request{Method: "POST", URL: s.URL, Body: []byte("x"), Repeatable: true})
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for repeatable requests", n)
	}
	for range 5 {
		do(t, c, Request{Method: "POST", URL: s.URL, Body: []byte("x")})
	}
	if n := connections.Load(); n != 6 {
		t.Errorf("%d connections, want one more for each request with effects", n)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{Mode: "open"}, {Mode: ModeAllowlist}, {Mode: ModeAllowlist, Allow: []string{"https://x/"}}, {Mode: ModeAllowlist, Allow: []string{""}},
		{Refuse: []string{"host"}}, {Refuse: []string{"host:0"}}, {Refuse: []string{"host:x"}},
		{MaxAnswer: -1}, {MaxAnswer: 10, Buffer: 19},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	body := strings.Repeat("x", 18<<10)
	s := serve(b, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
	for _, repeatable := range []bool{true, false} {
		b.Run(fmt.Sprintf("repeatable=%v", repeatable), func(b *testing.B) {
			c := newClient(b, Config{})
			b.ReportAllocs()
			for b.Loop() {
				resp, err := c.Do(b.Context(), Request{URL: s.URL, Repeatable: repeatable})
				if err != nil {
					b.Fatal(err)
				}
				resp.Close()
			}
		})
	}
}
