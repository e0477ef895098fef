package app_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "stepwell/api/v1"
)

// TestRepeats sends each kind of request to upstreams that fail in each way: what is
// sent again, how often, and with which key.
func TestRepeats(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	var mu sync.Mutex
	asked := map[string]int{}
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		mu.Lock()
		asked[q.Get("run")]++
		count := asked[q.Get("run")]
		mu.Unlock()
		if times, _ := strconv.Atoi(q.Get("times")); count > times {
			fmt.Fprint(w, `{"done":true}`)
			return
		}
		if after := q.Get("after"); after != "" {
			w.Header().Set("Retry-After", after)
		}
		status, _ := strconv.Atoi(q.Get("status"))
		w.WriteHeader(status)
		fmt.Fprint(w, "not now")
	})
	for _, x := range []struct {
		method, more string
		status       int
		after        string
		times        int
		requests     int
		success      bool
	}{
		{method: "GET", status: 400, times: 9, requests: 1},
		{method: "GET", status: 401, times: 9, requests: 1},
		{method: "GET", status: 404, times: 9, requests: 1},
		{method: "PUT", status: 409, times: 9, requests: 1},
		{method: "DELETE", status: 410, times: 9, requests: 1},
		{method: "POST", status: 400, times: 9, requests: 1},
		{method: "POST", status: 403, times: 9, requests: 1},
		{method: "POST", status: 422, after: "1", times: 9, requests: 1},
		{method: "PATCH", status: 404, times: 9, requests: 1},
		{method: "POST", status: 500, times: 9, requests: 1},
		{method: "POST", status: 502, after: "1", times: 9, requests: 1},
		{method: "POST", status: 503, times: 9, requests: 1},
		{method: "POST", status: 408, times: 9, requests: 1},
		{method: "GET", more: `,"modify":true`, status: 500, times: 9, requests: 1},
		{method: "POST", status: 429, times: 1, requests: 2, success: true},
		{method: "POST", status: 429, after: "1", times: 2, requests: 3, success: true},
		{method: "POST", status: 503, after: "1", times: 1, requests: 2, success: true},
		{method: "PATCH", status: 503, after: "1", times: 1, requests: 2, success: true},
		{method: "POST", more: `,"modify":false`, status: 500, times: 1, requests: 2, success: true},
		{method: "GET", status: 503, times: 2, requests: 3, success: true},
		{method: "GET", status: 408, times: 1, requests: 2, success: true},
		{method: "PUT", status: 425, times: 1, requests: 2, success: true},
		{method: "DELETE", status: 500, times: 1, requests: 2, success: true},
		{method: "GET", status: 429, after: "7200", times: 9, requests: 1},
	} {
		id := fmt.Sprintf("%s-%d-%s-%d-%d", x.method, x.status, x.after, x.times, len(x.more))
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			tool := n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"a"%s,"config":{"method":%q,"url":"%s/x?run=%s&status=%d&after=%s&times=%d"}}]}`,
				id, x.more, x.method, up.URL, id, x.status, x.after, x.times))
			run := n.run(t, tool, v1.RunRequest{})
			if success := run.Status == "success"; success != x.success {
				t.Errorf("the run is a %s: %s", run.Status, run.Error)
			}
			if !x.success && !strings.Contains(run.Error, fmt.Sprintf("%s %s/x answered %d", x.method, up.URL, x.status)) {
				t.Errorf("the error is %q", run.Error)
			}
			requests := up.of(id)
			if len(requests) != x.requests {
				t.Errorf("%d requests, want %d", len(requests), x.requests)
			}
			for i, r := range requests {
				key := r.header.Get("Idempotency-Key")
				if want := x.method == "POST" || x.method == "PATCH" || x.more != ""; want != (key == run.RunID+"/a/0/1") {
					t.Errorf("request %d has the key %q", i+1, key)
				}
				if after, _ := strconv.Atoi(x.after); i > 0 && r.began.Sub(requests[i-1].ended) < time.Duration(after)*time.Second {
					t.Errorf("request %d came after %s", i+1, r.began.Sub(requests[i-1].ended))
				}
			}
		})
	}
}

// TestRefusedPostIsSentLater posts to an upstream that is not there yet: nothing can have
// been done, so it is sent when the upstream is.
func TestRefusedPostIsSentLater(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	tool := n.tool(t, fmt.Sprintf(`{"id":"later","steps":[{"id":"a","config":{"method":"POST","url":"http://%s/x","body":"{}"}}]}`, address))
	n.run(t, tool, v1.RunRequest{RunID: "later", Options: &v1.RunOptions{Async: true}})
	eventually(t, 10*time.Second, func() error {
		run, err := n.api.GetRun(t.Context(), "later")
		if err == nil && (run.Progress == nil || run.Progress.WaitingFor == nil || !strings.Contains(run.Progress.WaitingFor.Reason, "refused")) {
			err = fmt.Errorf("the run does not wait: %s %s %+v", run.Status, run.Error, run.Progress)
		}
		return err
	})
	if l, err = net.Listen("tcp", address); err != nil {
		t.Skip("the port was taken meanwhile: ", err)
	}
	var keys []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key")) // one at a time; read after the run
		fmt.Fprint(w, `1`)
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	if run := n.waitFinal(t, "later", 30*time.Second); run.Status != "success" {
		t.Errorf("the run ended as %s: %s", run.Status, run.Error)
	}
	if len(keys) != 1 || keys[0] != "later/a/0/1" {
		t.Errorf("the requests had the keys %q", keys)
	}
}

// TestCutConnections cuts the connection of a POST after each of many bytes of the
// exchange: never is there a second POST, and no run succeeds without the whole answer.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	tool := n.tool(t, `{"id":"cut","steps":[{"id":"a","config":{"method":"POST","url":"http://<<address>>/x","body":"{\"some\":\"body of the request\"}"}}]}`)
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\nX-More: header\r\n\r\n{\"done\":true}"
	const chunked = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"done\"\r\n6\r\n:true}\r\n0\r\n\r\n"
	whole := &cutter{readAll: true, answer: answer, write: len(answer)}
	whole.serve(t, n, tool)
	length := whole.longest
	if length < 150 || whole.status != "success" {
		t.Fatalf("a whole exchange has %d bytes of request and is a %s: %s", length, whole.status, whole.problem)
	}
	step := 11
	if *long {
		step = 1
	}
	var cutters []*cutter
	for read := 0; read <= length; read += step {
		cutters = append(cutters, &cutter{read: read})
	}
	for _, answer := range []string{answer, chunked} {
		for write := 0; write <= len(answer); write += step {
			cutters = append(cutters, &cutter{readAll: true, answer: answer, write: write})
		}
		cutters = append(cutters, &cutter{readAll: true, answer: answer, write: len(answer) - 1}, &cutter{readAll: true, answer: answer, write: len(answer)})
	}
	t.Run("all", func(t *testing.T) {
		for i, c := range cutters {
			t.Run(fmt.Sprintf("%d-%d-%d", i, c.read, c.write), func(t *testing.T) {
				t.Parallel()
				c.serve(t, n, tool)
				if c.begun > 1 || c.posts > 1 {
					t.Errorf("%d requests began, %d were whole", c.begun, c.posts)
				}
				if complete := c.readAll && c.write == len(c.answer); complete != (c.status == "success") {
					t.Errorf("the run is a %s: %s", c.status, c.problem)
				}
				if c.status != "success" && c.posts == 1 && !strings.Contains(c.problem, "outcome is unknown") {
					t.Errorf("the error says nothing of an unknown outcome: %s", c.problem)
				}
			})
		}
	})
}

// cutter is an upstream that takes read bytes of a request, or all of it, gives write
// bytes of its answer, and cuts the connection.
type cutter struct {
	read    int
	readAll bool
	answer  string
	write   int

	begun   int // connections with a byte of a request
	posts   int // whole requests
	longest int // bytes of a request
	status  string
	problem string
}

// serve runs the tool against the cutter.
func (c *cutter) serve(t *testing.T, n *node, tool string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.exchange(conn.(*net.TCPConn)) // one at a time: there should be one only
		}
	})
	run, err := n.api.Run(t.Context(), tool, v1.RunRequest{Inputs: fmt.Appendf(nil, `{"address":%q}`, l.Addr())})
	_ = l.Close()
	serving.Wait()
	if err != nil {
		t.Fatal(err)
	}
	c.status, c.problem = run.Status, run.Error
}

func (c *cutter) exchange(conn *net.TCPConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	var seen bytes.Buffer
	if !c.readAll {
		if c.read > 0 {
			got, _ := io.CopyN(&seen, conn, int64(c.read))
			if got > 0 {
				c.begun++
			}
		}
		_ = conn.SetLinger(0) // what is unread is lost with a reset
		return
	}
	r := bufio.NewReader(io.TeeReader(conn, &seen))
	req, err := http.ReadRequest(r)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	if seen.Len() > 0 {
		c.begun++
	}
	if err != nil {
		return
	}
	c.posts++
	c.longest = max(c.longest, seen.Len())
	_, _ = io.WriteString(conn, c.answer[:c.write])
}
