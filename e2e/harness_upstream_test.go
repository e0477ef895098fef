package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/internal/demo"
)

// upstream is the demo upstream behind a front that notes every request: which page of
// which run, when it began and ended, and which process sent it.
type upstream struct {
	demo  *demo.Server
	front *httptest.Server

	mu      sync.Mutex
	byRun   map[string][]*request
	changed chan struct{} // closed and made anew at every change
}

// request is one request for a page, counted from 1. A request of a stopped process
// goes on until the demo upstream has answered.
type request struct {
	page  int
	pid   int    // of the sender; 0 when it was not found
	key   string // Idempotency-Key, of a request with effects
	began time.Time
	ended time.Time // zero while it goes on
}

// sender is the key of a connection's sending process in its requests' context.
type sender struct{}

func newUpstream(t testing.TB) *upstream {
	t.Helper()
	server, err := demo.NewServer(demo.Options{})
	if err != nil {
		t.Fatal("start the upstream: ", err)
	}
	target, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal("the upstream's address: ", err)
	}
	u := &upstream{demo: server, byRun: map[string][]*request{}, changed: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 100}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	u.front = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pid, _ := r.Context().Value(sender{}).(int)
		end := u.begin(r, pid)
		defer end()
		proxy.ServeHTTP(w, r)
	}))
	u.front.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		pid := 0
		for try := 0; pid == 0 && try < 10; try++ { // the system's table may miss rows while it changes
			pid = ownerOf(c)
		}
		return context.WithValue(ctx, sender{}, pid)
	}
	u.front.Start()
	t.Cleanup(func() {
		u.front.CloseClientConnections()
		u.front.Close()
		proxy.Transport.(*http.Transport).CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error("close the upstream: ", err)
		}
	})
	return u
}

func (u *upstream) begin(from *http.Request, pid int) (end func()) {
	q := from.URL.Query()
	r := &request{page: pageOf(q), pid: pid, key: from.Header.Get("Idempotency-Key"), began: time.Now()}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byRun[q.Get("run")] = append(u.byRun[q.Get("run")], r)
	u.change()
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		r.ended = time.Now()
		u.change()
	}
}

// change wakes those who wait; the lock is held.
func (u *upstream) change() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// requests gives the requests of a run in the order of their start.
func (u *upstream) requests(run string) []request {
	list, _ := u.look(run)
	return list
}

func (u *upstream) look(run string) ([]request, <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]request, len(u.byRun[run]))
	for i, r := range u.byRun[run] {
		list[i] = *r
	}
	return list, u.changed
}

// await waits until a page of a run, or a later one, is asked for, and gives the last
// request; ok is false when ctx ends first.
func (u *upstream) await(ctx context.Context, run string, page int) (last request, ok bool) {
	for {
		list, changed := u.look(run)
		for _, r := range list {
			if r.page >= page {
				return list[len(list)-1], true
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, false
		}
	}
}

// awaitCount waits until a run has sent a number of requests; false when ctx ends first.
func (u *upstream) awaitCount(ctx context.Context, run string, n int) bool {
	for {
		list, changed := u.look(run)
		if len(list) >= n {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// pageOf gives the page that a request for /orders asks for.
func pageOf(q url.Values) int {
	raw, err := base64.RawURLEncoding.DecodeString(q.Get("cursor"))
	if err != nil || len(raw) == 0 {
		return 1
	}
	after, _ := strconv.Atoi(strings.TrimPrefix(string(raw), "after:"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	return after/max(limit, 1) + 1
}

// ownerOf gives the process at the other end of a connection from this machine, the one
// that holds the other socket; 0 when it is not found.
func ownerOf(c net.Conn) int {
	there, ok := c.RemoteAddr().(*net.TCPAddr)
	here, also := c.LocalAddr().(*net.TCPAddr)
	if !ok || !also {
		return 0
	}
	inode := inodeOf(there.Port, here.Port)
	if inode == "" {
		return 0
	}
	owner := 0
	eachProcess(func(pid int, name string) {
		if owner != 0 || name != "stepwell" && name != "worker" {
			return
		}
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		files, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, file := range files {
			if target, err := os.Readlink(dir + "/" + file.Name()); err == nil && target == "socket:["+inode+"]" {
				owner = pid
			}
		}
	})
	return owner
}

// inodeOf finds the socket from a local to a remote port in the system's table: after
// the row's number, local and remote address in hexadecimal, state and six more, the
// inode. One local port may serve several connections.
func inodeOf(local, remote int) string {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 9 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", local)) && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", remote)) {
			return fields[9]
		}
	}
	return ""
}
