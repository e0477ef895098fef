package e2e

import (
	"net"
	"sync"
	"testing"
)

// link passes connections on to an address, and can be cut: then nothing passes and
// nothing is refused or closed, as in a network that loses everything.
type link struct {
	address string // where it listens
	target  string

	mu    sync.Mutex
	open  map[net.Conn]bool
	whole chan struct{} // closed while the link is whole
	pipes sync.WaitGroup
}

func newLink(t testing.TB, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{address: listener.Addr().String(), target: target, open: map[net.Conn]bool{}, whole: make(chan struct{})}
	close(l.whole)
	l.pipes.Go(func() { l.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.mend()
		l.mu.Lock()
		for c := range l.open {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.pipes.Wait()
	})
	return l
}

// cut makes the link lose everything until mend.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole = make(chan struct{})
}

// mend lets pass what was held back and all that follows.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.whole:
	default:
		close(l.whole)
	}
}

func (l *link) passable() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole
}

func (l *link) accept(listener net.Listener) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return // closed
		}
		out, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		l.mu.Lock()
		l.open[in], l.open[out] = true, true
		l.mu.Unlock()
		l.pipes.Go(func() { l.pipe(in, out) })
		l.pipes.Go(func() { l.pipe(out, in) })
	}
}

// pipe copies from one connection to another until one of them ends.
func (l *link) pipe(from, to net.Conn) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		l.mu.Lock()
		delete(l.open, from)
		l.mu.Unlock()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		<-l.passable()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
