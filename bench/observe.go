package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// event is one exchange between two parts: a round trip to Postgres, a call to Temporal,
// a request to the upstream.
type event struct {
	from   string // stepwell or temporald
	kind   string // postgres, temporal or upstream
	label  string // what: a statement's or path's beginning. Never a value
	start  time.Time
	end    time.Time
	commit bool // Postgres made something durable
}

// observers stand on the wire between the parts of a stack and note every exchange.
// They pass bytes on unchanged; a hop through one costs some 20 to 50 µs.
type observers struct {
	mu     sync.Mutex
	events []event
	taps   []*tap
}

// note keeps an event.
func (o *observers) note(e event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// take gives what was noted since the last time.
func (o *observers) take() []event {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := o.events
	o.events = nil
	return events
}

func (o *observers) close() {
	for _, t := range o.taps {
		t.close()
	}
}

// postgres gives a URL that leads to the same database through an observer.
func (o *observers) postgres(from, address string) (string, error) {
	return o.url(address, func() protocol { return newPostgresProtocol(from, o.note) })
}

// http gives a URL that leads to the same server through an observer.
func (o *observers) http(from, address string) (string, error) {
	return o.url(address, func() protocol { return &httpProtocol{from: from, note: o.note} })
}

// grpc gives an address that leads to the same server through an observer.
func (o *observers) grpc(from, address string) (string, error) {
	return o.tap(address, func() protocol { return newGRPCProtocol(from, o.note) })
}

func (o *observers) url(address string, p func() protocol) (string, error) {
	target, err := hostPort(address)
	if err != nil {
		return "", err
	}
	proxy, err := o.tap(target, p)
	if err != nil {
		return "", err
	}
	return throughProxy(address, proxy)
}

func (o *observers) tap(target string, p func() protocol) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("observe: %w", err)
	}
	t := &tap{listener: listener, target: target, protocol: p, open: map[net.Conn]bool{}}
	t.wg.Go(t.accept)
	o.taps = append(o.taps, t)
	return listener.Addr().String(), nil
}

// protocol reads along on one connection. Its methods are called with bytes in the order
// of the wire, and never at the same time.
type protocol interface {
	request(at time.Time, p []byte) // from the client
	answer(at time.Time, p []byte)  // from the server
}

// tap passes connections on and lets a protocol read along.
type tap struct {
	listener net.Listener
	target   string
	protocol func() protocol
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
	closed   bool
}

func (t *tap) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return // closed
		}
		t.wg.Go(func() { t.serve(client) })
	}
}

func (t *tap) serve(client net.Conn) {
	defer t.forget(client)
	if !t.keep(client) {
		return
	}
	server, err := net.DialTimeout("tcp", t.target, 5*time.Second)
	if err != nil {
		return // the client sees its connection end
	}
	defer t.forget(server)
	if !t.keep(server) {
		return
	}
	p := t.protocol()
	var mu sync.Mutex
	var both sync.WaitGroup
	both.Go(func() { pass(server, client, &mu, p.request) })
	both.Go(func() { pass(client, server, &mu, p.answer) })
	both.Wait()
}

// pass copies until one side ends, and then ends both.
func pass(to, from net.Conn, mu *sync.Mutex, read func(time.Time, []byte)) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			mu.Lock()
			read(time.Now(), buf[:n])
			mu.Unlock()
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return // an end or a broken connection: the same to both sides
		}
	}
}

func (t *tap) keep(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[c] = true
	return !t.closed
}

func (t *tap) forget(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
	_ = c.Close()
}

func (t *tap) close() {
	_ = t.listener.Close()
	t.mu.Lock()
	t.closed = true
	for c := range t.open {
		_ = c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
}

// splitter cuts a stream into messages of a header of fixed length and a payload, of
// which it keeps only the first bytes.
type splitter struct {
	header int
	size   func(header []byte) int // of the payload
	keep   int                     // bytes of a payload that are kept
	whole  func(header, payload []byte)

	buf  []byte // header and kept payload
	left int    // bytes of the payload that are still to come
	body bool   // the header is complete
}

func (s *splitter) write(p []byte) {
	for {
		if !s.body {
			n := min(s.header-len(s.buf), len(p))
			s.buf, p = append(s.buf, p[:n]...), p[n:]
			if len(s.buf) < s.header {
				return
			}
			s.left, s.body = max(s.size(s.buf), 0), true
		}
		n := min(s.left, len(p))
		kept := min(n, max(0, s.header+s.keep-len(s.buf)))
		s.buf = append(s.buf, p[:kept]...)
		s.left, p = s.left-n, p[n:]
		if s.left > 0 {
			return
		}
		s.whole(s.buf[:s.header], s.buf[s.header:])
		s.buf, s.body = s.buf[:0], false
		if len(p) == 0 {
			return
		}
	}
}
