package outbound

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func compress(t testing.TB, coding, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "flate":
		w, _ = flate.NewWriter(&b, -1)
	}
	_, _ = io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestContentEncodings(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("stepwell ", 20_000)
	for _, tc := range []struct{ header, coding string }{
		{"", ""}, {"identity", ""}, {"gzip", "gzip"}, {"GZIP", "gzip"}, {"x-gzip", "gzip"}, {"deflate", "zlib"}, {"deflate", "flate"},
	} {
		t.Run(tc.header+" "+tc.coding, func(t *testing.T) {
			t.Parallel()
			body := []byte(text)
			if tc.coding != "" {
				body = compress(t, tc.coding, text)
			}
			connections := make(chan string, 10)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				connections <- r.RemoteAddr
				if tc.header != "" {
					w.Header().Set("Content-Encoding", tc.header)
				}
				_, _ = w.Write(body)
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Millisecond) // the end of the answer comes later than the end of the stream in it
			})
			c := newClient(t, Config{})
			for range 2 {
				resp := do(t, c, Request{URL: s.URL, Repeatable: true})
				if string(resp.Body) != text {
					t.Errorf("%d bytes, want %d", len(resp.Body), len(text))
				}
				if tc.coding != "" && (resp.Header.Get("Content-Encoding") != "" || resp.Header.Get("Content-Length") != "") {
					t.Errorf("header %v", resp.Header)
				}
			}
			if a, b := <-connections, <-connections; a != b {
				t.Error("the connection was not kept")
			}
		})
	}
}

func TestEmptyCompressedAnswers(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Encoding", "gzip") })
	c := newClient(t, Config{})
	for _, method := range []string{"GET", "HEAD"} {
		if resp := do(t, c, Request{Method: method, URL: s.URL}); len(resp.Body) != 0 {
			t.Errorf("%s: body %q", method, resp.Body)
		}
	}
}

func TestBrokenCompression(t *testing.T) {
	t.Parallel()
	whole := string(compress(t, "gzip", strings.Repeat("stepwell", 1000)))
	head := func(coding string, length int) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n", coding, length)
	}
	for name, tc := range map[string]struct {
		answer string
		want   Reason
	}{
		"no gzip":         {head("gzip", 5) + "hello", BadAnswer},
		"wrong checksum":  {head("gzip", len(whole)) + whole[:len(whole)-6] + "xxxxxx", BadAnswer},
		"unknown coding":  {head("br", 5) + "hello", BadAnswer},
		"two codings":     {head("gzip, gzip", len(whole)) + whole, BadAnswer},
		"cut connection":  {head("gzip", len(whole)) + whole[:len(whole)/2], Network},
		"cut stream":      {head("gzip", len(whole)-9) + whole[:len(whole)-9], Network},
		"one byte of two": {head("gzip", 2) + "\x1f", Network},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := rawServer(t, answering(tc.answer))
			if e := doFails(t, newClient(t, Config{}), Request{URL: "http://" + address}, tc.want); !e.Sent {
				t.Error("not sent")
			}
		})
	}
}

func TestTooLargeAnswers(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	bomb := string(compress(t, "gzip", strings.Repeat("\x00", 8<<20)))
	empty := string(compress(t, "gzip", ""))
	for name, tc := range map[string]func(conn net.Conn){
		"claimed":  func(conn net.Conn) { fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n") },
		"one byte": func(conn net.Conn) { endless(conn, "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", limit+1), 1) },
		"endless":  func(conn net.Conn) { endless(conn, "HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 1000), -1) },
		"chunked": func(conn net.Conn) {
			endless(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n", -1)
		},
		"bomb":       func(conn net.Conn) { endless(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", bomb, 1) },
		"empty gzip": func(conn net.Conn) { endless(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", empty, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := rawServer(t, func(conn net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					tc(conn)
					_, _ = io.Copy(io.Discard, conn) // until the client ends it
				}
			})
			c := newClient(t, Config{MaxAnswer: limit})
			e := doFails(t, c, Request{URL: "http://" + address}, TooLarge)
			if !e.Sent || !strings.Contains(e.Error(), "1 MiB") {
				t.Errorf("sent %v: %v", e.Sent, e)
			}
			if c.memory.free != int64(DefaultBuffer-limit) || !c.memory.reserve {
				t.Errorf("memory is not given back: %d free", c.memory.free)
			}
		})
	}
}

// endless writes a head, then text a number of times, or until the client goes.
func endless(conn net.Conn, head, text string, times int) {
	w := bufio.NewWriter(conn)
	_, err := w.WriteString(head)
	for i := 0; err == nil && i != times; i++ {
		_, err = w.WriteString(text)
	}
	_ = w.Flush()
}

func TestLargestAnswer(t *testing.T) {
	t.Parallel()
	const limit = 300_000
	for _, size := range []int{0, 1, firstChunk - 1, firstChunk, firstChunk + 1, limit - 1, limit} {
		for name, head := range map[string]string{"claimed": fmt.Sprintf("Content-Length: %d\r\n", size), "open": ""} {
			t.Run(fmt.Sprintf("%s %d", name, size), func(t *testing.T) {
				t.Parallel()
				address, _ := rawServer(t, answering("HTTP/1.1 200 OK\r\n"+head+"\r\n"+strings.Repeat("x", size)))
				if resp := do(t, newClient(t, Config{MaxAnswer: limit}), Request{URL: "http://" + address}); len(resp.Body) != size {
					t.Errorf("%d bytes", len(resp.Body))
				}
			})
		}
	}
}

func TestAnswersThatAreNoHTTP(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, tc := range map[string]struct {
		head, repeated string
		want           Reason
	}{
		"garbage":             {"\x00\x01\x02\r\n\r\n", "", BadAnswer},
		"status":              {"HTTP/1.1 abc\r\n\r\n", "", BadAnswer},
		"header":              {ok + "no colon\r\n\r\n", "", BadAnswer},
		"negative length":     {ok + "Content-Length: -1\r\n\r\n", "", BadAnswer},
		"two lengths":         {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "", BadAnswer},
		"chunk size":          {ok + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "", BadAnswer},
		"unknown coding":      {ok + "Transfer-Encoding: zip\r\n\r\n", "", BadAnswer},
		"switched protocols":  {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "", BadAnswer},
		"endless status":      {"HTTP/1.1 200 ", "OK", BadAnswer},
		"endless header":      {ok + "X: ", "xxxxxxxxxx", BadAnswer},
		"endless headers":     {ok, "X: y\r\n", BadAnswer},
		"endless 103":         {"", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", BadAnswer},
		"endless chunk size":  {ok + "Transfer-Encoding: chunked\r\n\r\n", "0", BadAnswer},
		"endless chunk notes": {ok + "Transfer-Encoding: chunked\r\n\r\n1;", "note", BadAnswer},
		"endless trailers":    {ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", BadAnswer},
		"short":               {ok + "Content-Length: 10\r\n\r\nabc", "", Network},
	} {
		for _, repeatable := range []bool{true, false} {
			t.Run(fmt.Sprint(name, repeatable), func(t *testing.T) {
				t.Parallel()
				address, _ := rawServer(t, func(conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
						return
					}
					_, _ = io.WriteString(conn, tc.head)
					if tc.want == Network {
						return
					}
					if tc.repeated != "" {
						endless(conn, "", tc.repeated, -1)
					}
					_, _ = io.Copy(io.Discard, conn)
				})
				if e := doFails(t, newClient(t, Config{}), Request{URL: "http://" + address, Repeatable: repeatable}, tc.want); !e.Sent {
					t.Error("not sent")
				}
			})
		}
	}
}

// More bytes than claimed are not part of the answer, and the connection that
// brought them is not used again.
func TestMoreThanClaimed(t *testing.T) {
	t.Parallel()
	address, connections := rawServer(t, func(conn net.Conn) {
		r := bufio.NewReader(conn)
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabcdef")
		}
	})
	c := newClient(t, Config{})
	for range 3 {
		resp := do(t, c, Request{URL: "http://" + address, Repeatable: true})
		if string(resp.Body) != "abc" {
			t.Errorf("body %q", resp.Body)
		}
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}
