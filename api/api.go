package api

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"stepwell/internal/tracing"
)

// Defaults of Config.
const (
	DefaultSyncWait    = 5 * time.Minute
	DefaultMaxBody     = 16 << 20
	DefaultMaxInFlight = 1024
	DefaultMaxWaiting  = 20_000
	DefaultBodyMemory  = 512 << 20
)

// Limits that are no setting.
const (
	headerTimeout  = 10 * time.Second // for a request's headers to arrive
	bodySilence    = 30 * time.Second // between two reads of a body, and two writes of an answer
	idleTimeout    = 2 * time.Minute  // of a kept connection
	requestTimeout = 30 * time.Second // for handling a request, waiting for a run apart, or a part of a stream
	readyTimeout   = 5 * time.Second
	maxHeaderBytes = 64 << 10
)

// Config is what the API is made of. The ports are required; Ready, Tracer and Measure
// may be nil.
type Config struct {
	Keys      Keys
	Tools     Tools
	States    States
	Validator Validator
	Runs      Runs
	Runner    Runner
	Bulk      Bulk
	Systems   Systems
	Links     Links
	Portal    Portal // may be nil: then there is none
	EndUsers  EndUsers
	Audit     Audit

	Deliveries Deliveries
	// Ready looks at each thing that the service depends on, for GET /health/ready. It is
	// called for everybody who asks, so it should remember for a moment what it saw.
	Ready  func(context.Context) []Check
	Tracer *tracing.Tracer
	// Measure is told of every answer; route is empty for a path that there is not, status
	// 0 for a connection that was cut off.
	Measure func(method, route string, status int, took time.Duration)
	Log     *zap.Logger // default: no log

	SyncWait  time.Duration // how long a synchronous caller waits; default DefaultSyncWait
	MaxBody   int64         // bytes of a request body, below 2 GiB; default DefaultMaxBody
	PublicURL string        // public address with the /v1, for links; default: made of the request's Host
	Notice    string        // text of important_notice; none when empty

	MaxInFlight int   // requests at work at a time, more are 503; default DefaultMaxInFlight
	MaxWaiting  int   // run requests (they may wait for their run) and streams at a time; default DefaultMaxWaiting
	BodyMemory  int64 // bytes of request bodies in memory at a time, more are 503; default DefaultBodyMemory
}

// API is the HTTP handler of the whole interface.
type API struct {
	Config
	router     http.Handler
	inFlight   atomic.Int64
	silence    time.Duration // bodySilence, but in tests
	patience   time.Duration // requestTimeout, but in tests
	waiting    atomic.Int64
	bodyMemory atomic.Int64
}

// New builds the handler. Every path that it does not know, outside /v1 too, gets
// a JSON 404.
func New(c Config) *API {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Measure == nil {
		c.Measure = func(string, string, int, time.Duration) {}
	}
	orDefault(&c.SyncWait, DefaultSyncWait)
	orDefault(&c.MaxBody, DefaultMaxBody)
	orDefault(&c.MaxInFlight, DefaultMaxInFlight)
	orDefault(&c.MaxWaiting, DefaultMaxWaiting)
	orDefault(&c.BodyMemory, DefaultBodyMemory)
	a := &API{Config: c, silence: bodySilence, patience: requestTimeout}
	a.router = a.newRouter()
	return a
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// NewServer gives a server for h with the API's limits on time and size. Its
// errors, such as failed TLS handshakes, go to log. Whoever starts it ends it, with
// Shutdown.
func NewServer(addr string, h http.Handler, log *zap.Logger) *http.Server {
	return newServer(addr, h, log, headerTimeout)
}

func newServer(addr string, h http.Handler, log *zap.Logger, headers time.Duration) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: headers,
		// For answers that net/http writes itself; the adapter sets its own deadlines as a
		// body or an answer moves on.
		WriteTimeout:                 time.Minute,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true, // its answer to OPTIONS * is no JSON
		ErrorLog:                     zap.NewStdLog(log),
	}
}
