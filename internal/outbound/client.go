package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"sync/atomic"
	"time"

	"stepwell"
)

// Defaults and limits of the client. The size of answers and the number of
// redirects are the interface's; the rest is ours.
const (
	DefaultMaxAnswer = 100 << 20 // bytes of one answer after decompression
	DefaultBuffer    = 512 << 20 // bytes of all answers in memory
	MaxRedirects     = 5
	maxHeaderBytes   = 256 << 10 // bytes of an answer's head
	idleTimeout      = 30 * time.Second
	maxIdlePerHost   = 64
	maxIdle          = 1024
	handshakeTimeout = 10 * time.Second
)

// Config says what the client may reach and hold. The zero value is usable.
type Config struct {
	// Mode is ModePrivate (also when empty), ModePublic or ModeAllowlist.
	Mode string
	// Allow lists what ModeAllowlist opens: a host, host:port, address or CIDR.
	// A listed host may resolve to any address that is not always refused.
	Allow []string
	// Refuse lists host:port of the service's own Postgres, Temporal and
	// listeners; no mode opens them. No host, a directory (of Unix sockets), an
	// unspecified or a local address means this port on every address of this machine. Names are resolved when
	// a request goes to the same port.
	Refuse []string
	// MaxAnswer bounds one answer, in bytes after decompression.
	MaxAnswer int64
	// Buffer bounds the bytes of all answers in memory, from their first byte
	// until Response.Close. It must be at least twice MaxAnswer, as one largest
	// answer is kept in reserve. While an answer grows, its old buffer exists
	// beside the new one for a moment, uncounted.
	Buffer int64
	// Roots are the trusted certificate authorities, nil for the system's.
	Roots *x509.CertPool
}

// Client sends requests. It is safe for concurrent use; make one for a process.
type Client struct {
	kept      *http.Transport // repeatable requests: keeps connections, HTTP/2
	fresh     *http.Transport // requests with effects: a new HTTP/1.1 connection each
	memory    *memory
	maxAnswer int64
}

// New makes a client. It fails when the configuration makes no sense.
func New(c Config) (*Client, error) {
	if c.MaxAnswer == 0 {
		c.MaxAnswer = DefaultMaxAnswer
	}
	if c.Buffer == 0 {
		c.Buffer = max(DefaultBuffer, 2*c.MaxAnswer)
	}
	if c.MaxAnswer < 1 || c.Buffer < 2*c.MaxAnswer {
		return nil, fmt.Errorf("outbound: %d bytes in memory are less than twice the largest answer of %d bytes", c.Buffer, c.MaxAnswer)
	}
	e, err := newEgress(c.Mode, c.Allow, c.Refuse)
	if err != nil {
		return nil, fmt.Errorf("outbound: %w", err)
	}
	// net/http sends a request again by itself when a reused connection breaks,
	// and HTTP/2 does when the server says that it did not look at it. A new
	// HTTP/1.1 connection for each request rules out both, and also the plain
	// failure of a request on a connection that its server just closed.
	fresh := newTransport(e, c.Roots)
	fresh.DisableKeepAlives = true
	fresh.Protocols.SetHTTP2(false)
	return &Client{kept: newTransport(e, c.Roots), fresh: fresh, memory: newMemory(c.Buffer, c.MaxAnswer), maxAnswer: c.MaxAnswer}, nil
}

// newTransport makes a transport that keeps connections and knows HTTP/2.
func newTransport(e *egress, roots *x509.CertPool) *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // proxies of the environment would hide the address from the check
		DialContext:            e.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(256)},
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true, // undone here, bounded
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		Protocols:              new(http.Protocols),
		// Without pings a dead HTTP/2 connection fails every request on it by
		// timeout until the operating system notices.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second, MaxReceiveBufferPerStream: 1 << 20},
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}

// Close closes idle connections. Requests in flight go on.
func (c *Client) Close() {
	c.kept.CloseIdleConnections()
	c.fresh.CloseIdleConnections()
}

// Request is one HTTP request. Do does not change it; Header and Body must not
// change either, not even soon after Do returned (net/http may still hold them).
type Request struct {
	Method string // as it is sent; empty means GET
	URL    string // absolute, http or https; userinfo becomes Basic authorization unless Header has one
	Header http.Header
	Body   []byte
	// Repeatable allows the request to be sent again when a kept connection
	// breaks. When false, it leaves at most once (and once more for each
	// redirect that its server answers).
	Repeatable bool
	// HeadOnly asks for the head of the first answer alone: redirects are not followed,
	// and the body is not read, however large or slow it is.
	HeadOnly bool
	// NoRedirects gives the answer of a redirect in place of following it: for a body with
	// secrets, which another origin would get with 307 and 308.
	NoRedirects bool
	// Timeout bounds everything until the last byte of the answer, redirects
	// included; 0 means stepwell.DefaultTimeout.
	Timeout time.Duration
	// CredentialHeaders are names of headers that hold credentials, beside those
	// that are known to; a redirect to another origin drops them.
	CredentialHeaders []string
}

// Response is a whole answer of any status.
type Response struct {
	Status int
	// Header has no Content-Encoding once the body's is undone.
	Header http.Header
	Body   []byte
	// URL is where the answer came from, after redirects, without userinfo and
	// fragment. Its query may hold secrets.
	URL string

	lease *lease
}

// Close says that Body is used no more and gives its memory back; call it as
// soon as the body is stored, and before the next request of the same work.
func (r *Response) Close() {
	if r.lease != nil {
		r.lease.release()
	}
}

// Do sends a request, follows redirects and reads the whole answer. Any answer
// counts, whatever its status. The error is always an *Error. When ctx ends,
// the connection is closed and Do returns at once.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	h, failure := newHop(r)
	if failure != nil {
		return nil, failure
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = stepwell.DefaultTimeout
	}
	inner, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	x := &exchange{client: c, caller: ctx, ctx: inner, timeout: timeout, lease: c.memory.lease()}
	resp, failure := x.run(h)
	if failure != nil {
		x.lease.release()
		return nil, failure
	}
	// A response that its owner lost must not hold memory for ever.
	runtime.AddCleanup(resp, (*lease).release, x.lease)
	return resp, nil
}

// exchange is one Do: its hops, and what is known about what was sent.
type exchange struct {
	client  *Client
	caller  context.Context // as given
	ctx     context.Context // with the timeout
	timeout time.Duration
	lease   *lease

	sent     atomic.Bool                 // a connection was at hand: bytes may have left
	answered atomic.Bool                 // the first byte of an answer came, on the current hop
	conn     atomic.Pointer[watchedConn] // of the current hop
	http2    bool                        // the current hop's answer comes by HTTP/2, whose errors are about the connection
}

func (x *exchange) run(h *hop) (*Response, *Error) {
	// Memory first: a service without any should not send.
	if err := x.lease.grow(x.ctx, firstChunk); err != nil {
		return nil, x.fail(h, err)
	}
	for redirects := 0; ; redirects++ {
		answer, err := x.send(h)
		if err != nil {
			return nil, x.fail(h, err)
		}
		if h.headOnly {
			_ = answer.Body.Close() // closes the connection unless the body was empty
			return &Response{Status: answer.StatusCode, Header: answer.Header, URL: h.url.String(), lease: x.lease}, nil
		}
		next, failure := h.follow(answer)
		if answer.StatusCode == http.StatusSwitchingProtocols {
			failure = h.fail(BadAnswer, "the server changed the protocol, which nobody asked for", nil)
		}
		if failure == nil && next != nil && redirects == MaxRedirects {
			failure = h.fail(TooManyRedirects, fmt.Sprintf("more than %d redirects", MaxRedirects), nil)
		}
		if failure != nil {
			_ = answer.Body.Close() // closes the connection, nothing to report
			failure.Sent = true
			return nil, failure
		}
		if next == nil {
			resp, err := x.read(h, answer)
			if err != nil {
				return nil, x.fail(h, err)
			}
			return resp, nil
		}
		if answer.ContentLength >= 0 && answer.ContentLength <= maxDrained {
			_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is kept
		}
		_ = answer.Body.Close()
		h = next
	}
}

// send gives the head of the answer to one hop.
func (x *exchange) send(h *hop) (*http.Response, error) {
	x.answered.Store(false)
	x.http2 = false
	ctx := httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			x.sent.Store(true)
			x.conn.Store(watched(info.Conn))
		},
		GotFirstResponseByte: func() { x.answered.Store(true) },
	})
	req := (&http.Request{Method: h.method, URL: h.url, Host: h.url.Host, Header: h.header.Clone()}).WithContext(ctx)
	if len(h.body) > 0 {
		req.ContentLength = int64(len(h.body))
		req.Body = io.NopCloser(bytes.NewReader(h.body))
	}
	transport := x.client.fresh
	if h.repeatable {
		transport = x.client.kept
		allowRepeat(req, h.body)
	}
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	x.http2 = answer.ProtoMajor == 2
	return answer, nil
}

// connectionEnded reports whether the current hop's connection is over.
func (x *exchange) connectionEnded() bool {
	conn := x.conn.Load()
	return conn == nil || conn.ended.Load()
}

// allowRepeat lets net/http send a request again, whatever its method, when a
// kept connection turns out to be dead.
func allowRepeat(req *http.Request, body []byte) {
	if len(body) > 0 {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	const key = "X-Idempotency-Key"
	if _, set := req.Header[key]; !set {
		req.Header[key] = []string{} // an empty list means repeatable, and is not sent
	}
}
