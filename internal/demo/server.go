// Package demo is the bundled demo upstream: the HTTP API of an order system
// with made-up customers and orders, equal for equal seeds. It is what the demo
// tool, the documentation's examples, the benchmarks and the chaos tests call,
// so it is fast, can be slow, flaky or strict when asked, and counts what it is
// asked for. It knows nothing of stepwell, keeps everything in memory, and its
// credentials are public: it must not be reachable from outside the machine.
//
// Every route takes these query values (Options hold their defaults):
//
//	run=KEY        counts the request under this key (or header X-Run-Key)
//	delay=500ms    waits before it answers, at most 10m
//	fail=N         answers every N-th page with failStatus first (1: every page)
//	failTimes=N    that many times in a row, then once as usual (default 1)
//	failStatus=N   with this status, 400 to 599 (default 500)
//	retryAfter=S   and with this Retry-After header
//	lose=N         like fail, but does its work and cuts the connection instead
//	               of answering
//	rate=N         at most N requests a second for each run key and route, else
//	               429 with Retry-After: 1
//
// The same routes stand under /auth/bearer, /auth/basic and /auth/header, where
// they ask for credentials: see Token, User and Password.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// The credentials that the routes under /auth accept: Authorization: Bearer
// Token, Basic User:Password, and header X-API-Key: Token. They protect nothing.
const (
	Token    = "demo-token"
	User     = "demo"
	Password = "demo-password"
)

// DefaultAddr is the address that the documentation's examples call. `stepwell
// dev` tries it first; tests and other programs listen on a free port.
const DefaultAddr = "127.0.0.1:4010"

// Options configure a Server. The zero value is a fast and friendly one of
// 20,000 orders in 200 pages.
type Options struct {
	Addr      string        // where it listens; default 127.0.0.1:0, a free port
	Seed      uint64        // of the data; default 1
	Customers int           // default 100
	Pages     int           // of orders; default 200
	PageSize  int           // orders of a page when the request names no limit; default 100, at most 1,000
	Delay     time.Duration // before every answer of a page; default none
	FailEvery int           // every N-th page fails first; default none
	FailTimes int           // how often in a row it fails; default 1
}

// Server is a running demo upstream.
type Server struct {
	opts     Options
	data     *data
	recorder *recorder
	orders   *orderBook
	limiter  *limiter
	auth     *authority

	url    string
	server *http.Server
	stop   context.CancelFunc // ends waiting handlers
	served chan struct{}      // closed when the accept loop has ended
	close  sync.Once
}

// NewServer starts a demo upstream. The caller owns it and must Close it.
func NewServer(opts Options) (*Server, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("demo upstream: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opts:     opts,
		data:     newData(opts.Seed, opts.Customers, opts.Pages*opts.PageSize),
		recorder: newRecorder(),
		orders:   newOrderBook(),
		limiter:  newLimiter(),
		auth:     newAuthority(),
		url:      "http://" + listener.Addr().String(),
		stop:     stop,
		served:   make(chan struct{}),
	}
	s.server = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       maxDelay + time.Minute, // it would end the context of a waiting handler
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 20,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(discard{}, "", 0), // its callers are crash tests: broken connections are no news
	}
	go func() {
		defer close(s.served)
		_ = s.server.Serve(listener) // always ErrServerClosed: the listener is ours alone
	}()
	return s, nil
}

// discard is a log's writer for what nobody needs to read.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// setDefaults fills in what is absent and refuses what cannot be.
func (o *Options) setDefaults() error {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	for _, v := range []struct {
		value    *int
		fallback int
	}{{&o.Customers, 100}, {&o.Pages, 200}, {&o.PageSize, 100}, {&o.FailTimes, 1}} {
		if *v.value == 0 {
			*v.value = v.fallback
		}
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Customers < 0 || o.Pages < 0 || o.PageSize < 0 || o.FailEvery < 0 || o.FailTimes < 0 || o.Delay < 0 {
		return errors.New("demo upstream: options must not be negative")
	}
	if o.PageSize > maxPageSize || o.Pages > maxOrders/o.PageSize || o.Customers > maxOrders {
		return fmt.Errorf("demo upstream: at most %d records of a page and %d in all", maxPageSize, maxOrders)
	}
	return nil
}

// URL is the address of the upstream without a slash at its end, for example
// http://127.0.0.1:40123.
func (s *Server) URL() string { return s.url }

// Orders is the number of orders that a pull without `pages` gives.
func (s *Server) Orders() int { return s.data.orders }

// Order gives order i as GET /orders gives it, i from 0 to Orders()-1.
func (s *Server) Order(i int) Order { return s.data.order(i) }

// Hits is how many requests for a page have begun.
func (s *Server) Hits(key PageKey) int { return s.recorder.page(key).Hits }

// MaxConcurrent is the most requests for a page that were in flight at once.
func (s *Server) MaxConcurrent(key PageKey) int { return s.recorder.page(key).MaxConcurrent }

// Starts gives the requests that brought a run key, in the order of their start.
func (s *Server) Starts(run string) []Start { return s.recorder.startsOf(run) }

// Stats gives what was counted: all pages, and no starts.
func (s *Server) Stats() Stats {
	stats := s.recorder.stats("", true)
	stats.Starts = nil
	stats.Created = s.orders.count()
	return stats
}

// Reset forgets what was counted, the orders made and the limits used up.
func (s *Server) Reset() {
	s.recorder.reset()
	s.orders.reset()
	s.limiter.reset()
}

// Close stops the server: waiting requests are cut off, and those being
// answered have a second. It waits for the accept loop and may be called again.
func (s *Server) Close() error {
	var err error
	s.close.Do(func() {
		s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err = s.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			err = s.server.Close() // a connection that never asked for anything holds Shutdown
		}
	})
	<-s.served
	return err
}
