package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"stepwell"
)

// listen serves an API on a port of its own, with the waits of a patient server cut
// to quick ones.
func listen(t *testing.T, h *API, quick time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.silence = quick
	srv := newServer("", h, zap.NewNop(), quick)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return l.Addr().String()
}

// dial opens a connection that fails the test instead of blocking it.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

const rawKey = "Host: x\r\nAuthorization: Bearer admin-key\r\n"

// TestRawBytes sends bytes as they are and reads until the server closes.
func TestRawBytes(t *testing.T) {
	t.Parallel()
	address := listen(t, newTestAPI(newMemory(), nil), 2*time.Second)
	cases := []struct{ name, send, want string }{
		{"no HTTP at all", "hello\r\n\r\n", "HTTP/1.1 400"},
		{"no Host", "GET /v1/me HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		{"two Content-Lengths", "POST /v1/tools HTTP/1.1\r\n" + rawKey + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.1 400"},
		{"chunks of no number", "POST /v1/tools HTTP/1.1\r\n" + rawKey + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 400 Bad Request|malformed_body|Connection: close"},
		{"chunk longer than it says", "POST /v1/tools HTTP/1.1\r\n" + rawKey + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 400 Bad Request|malformed_body"},
		{"another transfer coding", "POST /v1/tools HTTP/1.1\r\n" + rawKey + "Transfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501"},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\n" + rawKey + "Connection: close\r\n\r\n", "HTTP/1.1 404|X-Trace-Id: |Path not found"},
		{"absolute address", "GET http://x/v1/me HTTP/1.1\r\n" + rawKey + "Connection: close\r\n\r\n", "HTTP/1.1 200|\"userId\":\"ann\""},
		{"CONNECT", "CONNECT x:1 HTTP/1.1\r\n" + rawKey + "Connection: close\r\n\r\n", "HTTP/1.1 404"},
		{"dots stay dots", "GET /v1/runs/../me HTTP/1.1\r\n" + rawKey + "Connection: close\r\n\r\n", "HTTP/1.1 404|Path not found"},
		{"double slash", "GET //v1/me HTTP/1.1\r\n" + rawKey + "Connection: close\r\n\r\n", "HTTP/1.1 404|Path not found"},
		{"HEAD", "HEAD /v1/me HTTP/1.1\r\n" + rawKey + "Connection: close\r\n\r\n", "HTTP/1.1 405|Allow: GET"},
		{"HTTP/1.0", "GET /v1/me HTTP/1.0\r\n" + rawKey + "\r\n", "HTTP/1.0 200|\"ann\""},
		{"expected and refused body", "POST /v1/tools HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 401|WWW-Authenticate: Bearer"},
		{"too many headers", "GET /v1/me HTTP/1.1\r\n" + rawKey + "X-Long: " + strings.Repeat("x", 100<<10) + "\r\n\r\n", "HTTP/1.1 431"},
		{"body on GET is not the next request", "GET /v1/me HTTP/1.1\r\n" + rawKey + "Content-Length: 4\r\n\r\nabcd" + "GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "\"ann\"|\"status\":\"ok\""},
		{"body of an unknown path is not the next request", "POST /v1/none HTTP/1.1\r\n" + rawKey + "Content-Length: 4\r\n\r\nabcd" + "GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 404|\"status\":\"ok\""},
		{"two requests at once", "GET /v1/me HTTP/1.1\r\n" + rawKey + "\r\nGET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "\"ann\"|\"status\":\"ok\""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, address)
			go func() { _, _ = io.WriteString(conn, c.send) }() // the server may close first
			got, _ := io.ReadAll(conn)
			for want := range strings.SplitSeq(c.want, "|") {
				if !strings.Contains(strings.ToLower(string(got)), strings.ToLower(want)) {
					t.Errorf("no %q in %q", want, got)
				}
			}
		})
	}
}

// TestSilentSenders are cut off, and only they.
func TestSilentSenders(t *testing.T) {
	t.Parallel()
	const quick = 2 * time.Second
	cases := []struct{ name, send, want string }{
		{"nothing", "", ""},
		{"half of the headers", "POST /v1/tools HTTP/1.1\r\nHost: x\r\n", ""},
		{"half of a body", "POST /v1/tools HTTP/1.1\r\n" + rawKey + "Content-Length: 9\r\n\r\n{", "408"},
		{"half of a chunk", "POST /v1/tools HTTP/1.1\r\n" + rawKey + "Transfer-Encoding: chunked\r\n\r\n9\r\n{", "408"},
		{"half of a body without a key", "POST /v1/tools HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", "401"},
		{"half of a body on an unknown path", "POST /v1/none HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", "404"},
		{"half of a body where none belongs", "GET /v1/me HTTP/1.1\r\n" + rawKey + "Content-Length: 9\r\n\r\n{", "408"},
	}
	h := newTestAPI(newMemory(), nil)
	address := listen(t, h, quick)
	t.Run("silent", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				conn := dial(t, address)
				if _, err := io.WriteString(conn, c.send); err != nil {
					t.Fatal(err)
				}
				started := time.Now()
				got, err := io.ReadAll(conn) // until the server closes
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					t.Fatalf("not cut off after %v", time.Since(started))
				}
				if c.want != "" && !strings.HasPrefix(string(got), "HTTP/1.1 "+c.want) {
					t.Errorf("got %q", got)
				}
			})
		}
	})
	t.Run("slow but not silent", func(t *testing.T) {
		conn := dial(t, address)
		body := `{"outputTransform":"(s) => s.abcdefgh"}`
		fmt.Fprintf(conn, "POST /v1/tools HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n", rawKey, len(body))
		for i := 0; i < len(body); i += 4 { // together longer than the silence that is allowed
			pass(quick / 8)
			if _, err := io.WriteString(conn, body[i:min(i+4, len(body))]); err != nil {
				t.Fatal(err)
			}
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 201 {
			t.Fatalf("%v %v", res, err)
		}
		defer res.Body.Close()
	})
	waitFor(t, func() bool { return h.inFlight.Load() == 0 && h.bodyMemory.Load() == 0 })
}

// TestLongWaitOutlivesDeadlines: the limits on silence do not touch a caller who waits
// for a run, nor the connection afterwards.
func TestLongWaitOutlivesDeadlines(t *testing.T) {
	t.Parallel()
	const quick = 100 * time.Millisecond
	m := newMemory()
	m.hold = make(chan struct{})
	m.finish = func(NewRun, *stepwell.Run) {}
	conn := dial(t, listen(t, newTestAPI(m, nil), quick))
	answers := bufio.NewReader(conn)
	answer := func(status int) {
		t.Helper()
		res, err := http.ReadResponse(answers, nil)
		if err != nil || res.StatusCode != status {
			t.Fatalf("%v %v", res, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintf(conn, "POST /v1/tools/orders/run HTTP/1.1\r\n%sContent-Length: 2\r\n\r\n{}", rawKey)
	pass(4 * quick)
	close(m.hold)
	answer(200)
	pass(4 * quick)
	fmt.Fprintf(conn, "PUT /v1/tools/orders HTTP/1.1\r\n%sExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", rawKey)
	answer(100)
	fmt.Fprint(conn, "{}")
	answer(200)
}

// pass lets time pass where that time is what is tested.
func pass(d time.Duration) { <-time.After(d) }

// TestLongStream: a stream may take longer than any deadline, as long as it moves.
func TestLongStream(t *testing.T) {
	t.Parallel()
	const quick = 2 * time.Second
	m := newMemory()
	m.results["acme/run-1"].Data = func(ctx context.Context, w io.Writer) error {
		for range 16 {
			pass(quick / 8)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if _, err := io.WriteString(w, strings.Repeat(" ", sendPart)); err != nil {
				return err
			}
		}
		_, err := io.WriteString(w, "1")
		return err
	}
	h := newTestAPI(m, func(c *Config) { c.SyncWait = time.Millisecond })
	h.patience = quick
	res, err := http.Get("http://" + listen(t, h, quick) + "/v1/runs/run-1/results?token=admin-key")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 16*sendPart {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestTooLargeIsAnswered: who sends first and reads later gets its 413, too.
func TestTooLargeIsAnswered(t *testing.T) {
	t.Parallel()
	const size = 24 << 20
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked %v", chunked), func(t *testing.T) {
			t.Parallel()
			conn := dial(t, listen(t, newTestAPI(newMemory(), nil), 5*time.Second))
			if chunked {
				fmt.Fprintf(conn, "POST /v1/tools HTTP/1.1\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n", rawKey, size)
			} else {
				fmt.Fprintf(conn, "POST /v1/tools HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n", rawKey, size)
			}
			_, _ = io.WriteString(conn, strings.Repeat(" ", size)) // fails when the server closes first
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || res.StatusCode != 413 {
				t.Fatalf("%v %v", res, err)
			}
			defer res.Body.Close()
		})
	}
}

// TestHangUp: a caller who goes away frees its place at once, and its run stays.
func TestHangUp(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.hold = make(chan struct{})
	defer close(m.hold)
	h := newTestAPI(m, nil)
	conn := dial(t, listen(t, h, 30*time.Second))
	fmt.Fprintf(conn, "POST /v1/tools/orders/run HTTP/1.1\r\n%sContent-Length: 16\r\n\r\n{\"runId\":\"gone\"}", rawKey)
	waitFor(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.runs["acme/gone"] != nil
	})
	conn.Close()
	waitFor(t, func() bool { return h.waiting.Load() == 0 })
}

// TestSlowReader: who takes nothing of an answer is cut off.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.results["acme/run-1"].Data = writes(`"` + strings.Repeat("x", 64<<20) + `"`)
	h := newTestAPI(m, nil)
	conn := dial(t, listen(t, h, 300*time.Millisecond))
	fmt.Fprintf(conn, "GET /v1/runs/run-1/results HTTP/1.1\r\n%s\r\n", rawKey)
	waitFor(t, func() bool { return h.waiting.Load() == 1 })
	waitFor(t, func() bool { return h.waiting.Load() == 0 })
}
