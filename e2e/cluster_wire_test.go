package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/api/v1"
	"stepwell/client"
)

const (
	headerLimit = 10 * time.Second // in which a request's headers have to arrive
	bodyLimit   = 30 * time.Second // for which a body may be silent
	wireSlack   = 5 * time.Second
	moreMemory  = 512 << 20 // bytes that hundreds of bad clients may cost: results being read have half of that, and garbage is as much
)

// TestBadClientsAreHarmless: slow clients, lying lengths and broken chunks at the real
// server are answered or cut off in time, start nothing, cost little memory, and others
// are served meanwhile.
func TestBadClientsAreHarmless(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1)
	c.save(v1.ToolCreate{ID: "made", OutputTransform: "() => 'x'.repeat(20000000)"})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if run, err := c.client.Run(ctx, "made", v1.RunRequest{RunID: "large"}); err != nil || run.Status != "success" {
		t.Fatal("the run with a large result: ", err)
	}
	before, files := c.memory(), c.files()

	idle := c.takeNothing(200)
	var clients sync.WaitGroup
	for name, w := range c.wireCases() {
		for range w.clients {
			clients.Go(func() {
				if err := c.speak(w); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() { // ends with the clients, which have deadlines
		defer close(ended)
		clients.Wait()
	}()
	c.servedUntil(ctx, ended)
	if !eventually(2*bodyLimit+wireSlack+*slack, func() bool { return c.files() < files+len(idle)/4 }) {
		t.Errorf("the server had %d open files and has %d: it does not give up answers that nobody takes", files, c.files())
	}
	for _, conn := range idle {
		_ = conn.Close()
	}

	if now := c.memory(); now > before+moreMemory {
		t.Errorf("bad clients cost the server %d MiB", (now-before)>>20)
	} else {
		t.Logf("at most %d MiB more memory", (now-before)>>20)
	}
	list, err := c.client.ListRuns(ctx, client.Page{}, client.RunFilter{})
	if err != nil || list.Total != 1 {
		t.Errorf("broken requests started runs: %d, not 1 (%v)", list.Total, err)
	}
}

// wireCase is a client that misbehaves.
type wireCase struct {
	clients int
	send    string
	half    bool          // closes its side after that
	status  int           // of the answer; 0: cut off, with or without one
	within  time.Duration // for the end of the connection
}

func (c *cluster) wireCases() map[string]wireCase {
	head := func(method, path, more string) string {
		return method + " /v1" + path + " HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer " + adminKey + "\r\n" + more + "\r\n"
	}
	run := func(more string) string { return head("POST", "/tools/made/run", more) }
	soon := wireSlack
	return map[string]wireCase{
		"headers that never end":           {clients: 300, send: "GET /v1/me HTTP/1.1\r\nHost: test\r\nX-Slow: ", within: headerLimit + wireSlack},
		"nothing at all":                   {clients: 20, within: headerLimit + wireSlack},
		"a body that stops":                {clients: 20, send: run("Content-Length: 1000\r\n") + `{"runId":"never`, within: bodyLimit + wireSlack},
		"a chunk that stops":               {clients: 20, send: run("Transfer-Encoding: chunked\r\n") + "ff\r\n{", within: bodyLimit + wireSlack},
		"fewer bytes than said":            {clients: 10, send: run("Content-Length: 1000\r\n") + `{"runId":"short"}`, half: true, status: 400, within: soon},
		"a chunk's size that is none":      {clients: 10, send: run("Transfer-Encoding: chunked\r\n") + "zz\r\n{}\r\n0\r\n\r\n", status: 400, within: soon},
		"a chunk longer than said":         {clients: 10, send: run("Transfer-Encoding: chunked\r\n") + "2\r\n{}garbage\r\n0\r\n\r\n", status: 400, within: soon},
		"a length and chunks":              {clients: 10, send: run("Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n") + "1\r\n{\r\n0\r\n\r\n", status: 400, within: soon},
		"two lengths":                      {clients: 10, send: run("Content-Length: 2\r\nContent-Length: 9\r\n") + "{}", status: 400, within: soon},
		"a negative length":                {clients: 10, send: run("Content-Length: -1\r\n") + "{}", status: 400, within: soon},
		"a length beyond all limits":       {clients: 10, send: run("Content-Length: 99999999999\r\n") + "{}", status: 413, within: bodyLimit + wireSlack},
		"no HTTP":                          {clients: 10, send: "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", status: 400, within: soon},
		"a caller that hangs up in a body": {clients: 10, send: run("Content-Length: 1000\r\n") + `{"runId`, within: 0},
	}
}

// speak plays one client and checks how its connection ends.
func (c *cluster) speak(w wireCase) error {
	address, err := url.Parse(c.bases[0])
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, w.send); err != nil {
		return err
	}
	if w.within == 0 {
		return nil
	}
	if w.half {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
	}
	if err := conn.SetDeadline(time.Now().Add(w.within + *slack)); err != nil {
		return err
	}
	return readEnd(conn, w.status)
}

// readEnd reads an answer and the connection's end.
func readEnd(conn net.Conn, status int) error {
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("neither answered nor cut off in time")
	case status == 0:
		return nil
	case err != nil:
		return fmt.Errorf("cut off without an answer: %w", err)
	case res.StatusCode != status:
		return fmt.Errorf("answered with %d, not with %d", res.StatusCode, status)
	}
	return nil
}

// takeNothing opens connections that ask for the large result and read nothing of it.
func (c *cluster) takeNothing(n int) []net.Conn {
	c.t.Helper()
	address, err := url.Parse(c.bases[0])
	if err != nil {
		c.t.Fatal(err)
	}
	conns := make([]net.Conn, n)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", address.Host); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _ = conns[i].Close() })
		_, err := io.WriteString(conns[i], "GET /v1/runs/large/results HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer "+adminKey+"\r\n\r\n")
		if err != nil {
			c.t.Fatal(err)
		}
	}
	return conns
}

// files gives how many files and connections the server has open.
func (c *cluster) files() int {
	c.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", c.servers[0].pid()))
	if err != nil {
		c.t.Fatal(err)
	}
	return len(entries)
}

// servedUntil calls the server as others do, until the bad clients are gone.
func (c *cluster) servedUntil(ctx context.Context, ended <-chan struct{}) {
	c.t.Helper()
	call, slowest, calls := newCaller(), time.Duration(0), 0
	for {
		a := call.call(ctx, c.bases[0]+"/runs/large", "")
		if a.err != nil || a.status != 200 {
			c.t.Errorf("another caller: %d %v", a.status, a.err)
			return
		}
		slowest = max(slowest, a.took)
		calls++
		select {
		case <-ended:
			c.t.Logf("%d calls of others meanwhile, the slowest took %s", calls, slowest.Round(time.Millisecond))
			if slowest > time.Second+*slack {
				c.t.Errorf("another caller waited %s", slowest)
			}
			return
		case <-time.After(pollEvery):
		}
	}
}

// memory gives the most memory that the server has had, in bytes.
func (c *cluster) memory() int {
	c.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.servers[0].pid()))
	if err != nil {
		c.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		c.t.Fatal("the system does not say how much memory the server has")
	}
	kib, _ := strconv.Atoi(fields[0])
	return kib << 10
}
