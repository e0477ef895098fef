package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Every answer needs nearly all memory; all of them end.
func TestManyLargeAnswersEnd(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	body := strings.Repeat("x", limit-1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // so that no length is claimed
		io.WriteString(w, body)
	})
	c := newClient(t, Config{MaxAnswer: limit, Buffer: 2 * limit})
	var requests sync.WaitGroup
	for range 40 {
		requests.Go(func() {
			resp, err := c.Do(t.Context(), Request{URL: s.URL, Repeatable: true})
			if err != nil {
				t.Error(err)
				return
			}
			if len(resp.Body) != len(body) {
				t.Errorf("%d bytes", len(resp.Body))
			}
			resp.Close()
			resp.Close() // counts once
		})
	}
	requests.Wait()
	if c.memory.free != limit || !c.memory.reserve || len(c.memory.waiting) != 0 {
		t.Errorf("memory afterwards: %+v", c.memory)
	}
}

func TestAnswersCountUntilClose(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	body := strings.Repeat("x", 900_000)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		io.WriteString(w, body)
	})
	c := newClient(t, Config{MaxAnswer: limit, Buffer: 5 * limit})
	first, second := do(t, c, Request{URL: s.URL}), do(t, c, Request{URL: s.URL})
	if free := freeOf(c.memory); free > 4*limit-2*int64(len(body)) {
		t.Errorf("%d bytes free with two answers held", free)
	}
	first.Close()
	second.Close()
	if free := freeOf(c.memory); free != 4*limit {
		t.Errorf("%d bytes free afterwards", free)
	}
}

func TestNothingIsSentWithoutMemory(t *testing.T) {
	t.Parallel()
	address, connections := rawServer(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	c := newClient(t, Config{MaxAnswer: firstChunk, Buffer: 2 * firstChunk})
	url := "http://" + address
	first, second := do(t, c, Request{URL: url}), do(t, c, Request{URL: url})
	if e := doFails(t, c, Request{URL: url, Timeout: 20 * time.Millisecond}, Timeout); e.Sent {
		t.Error("sent")
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	first.Close()
	do(t, c, Request{URL: url}).Close()
	second.Close()
	do(t, c, Request{URL: url})
}

// Who forgets Close holds memory until the collector finds the response.
func TestLostResponseGivesItsMemoryBack(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "x") })
	c := newClient(t, Config{MaxAnswer: firstChunk, Buffer: 2 * firstChunk})
	for range 4 { // twice what fits
		if _, err := c.Do(t.Context(), Request{URL: s.URL, Timeout: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); freeOf(c.memory) == 0; runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatal("the memory of a lost response stays taken")
			}
		}
	}
}

func freeOf(m *memory) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free
}

func TestMemoryServesInOrder(t *testing.T) {
	t.Parallel()
	m := newMemory(200, 100) // 100 and the reserve
	grow := func(l *lease, n int64) <-chan error {
		done := make(chan error, 1)
		before := waitingIn(m)
		go func() { done <- l.grow(t.Context(), n) }()
		for waitingIn(m) == before && len(done) == 0 {
			time.Sleep(time.Millisecond) // polls until it waits or has it
		}
		return done
	}
	a, b, c, d := m.lease(), m.lease(), m.lease(), m.lease()
	if err := errors.Join(<-grow(a, 60), <-grow(b, 60), <-grow(b, 1000)); err != nil {
		t.Fatal(err) // b has the reserve and is never refused
	}
	large, small := grow(c, 80), grow(d, 10)
	if len(large) != 0 || len(small) != 0 {
		t.Fatal("served without memory, or out of order")
	}
	a.release()
	if err := errors.Join(<-large, <-small); err != nil {
		t.Fatal(err)
	}
	again, cancelled := grow(d, 50), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		return m.lease().grow(ctx, 10)
	}()
	if !errors.Is(cancelled, context.DeadlineExceeded) {
		t.Errorf("a waiter that gave up: %v", cancelled)
	}
	b.release() // the reserve passes on
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	c.release()
	d.release()
	if m.free != 100 || !m.reserve || len(m.waiting) != 0 {
		t.Errorf("afterwards: %+v", m)
	}
}

func waitingIn(m *memory) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting)
}
