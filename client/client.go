// Package client calls the HTTP API from Go, for the command line, end-to-end tests
// and other programs. Its types are those of api/v1.
//
// It must not know the service's inside: it imports the wire types and the standard
// library only. Keys reach no error and no log.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"stepwell/api/v1"
)

// Client calls one service with one API key. It is safe for concurrent use.
type Client struct {
	base    string
	key     string
	http    *http.Client
	retries int
	pause   time.Duration
}

// Option changes a new Client.
type Option func(*Client)

// WithHTTPClient sets the HTTP client. The default has no overall timeout, because a
// synchronous run may take minutes: use contexts.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithRetries sets how often a call that may be repeated is repeated (default 3,
// 0 means never) and the first pause between two tries (default 200 ms), which
// doubles each time. A Retry-After of the answer counts instead when it is longer.
func WithRetries(n int, pause time.Duration) Option {
	return func(c *Client) { c.retries, c.pause = n, pause }
}

// New makes a client for a base address, which includes the version: for example
// http://localhost:8080/v1.
func New(baseURL, key string, options ...Option) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns // all calls go to one host
	c := &Client{
		base: strings.TrimSuffix(baseURL, "/"), key: key, retries: 3, pause: 200 * time.Millisecond,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	for _, o := range options {
		o(c)
	}
	return c
}

// Error is an answer of the service that is no success.
type Error struct {
	Status  int    // HTTP status
	Code    string // stable snake_case word; empty when the answer was not the service's
	Message string
	TraceID string
}

// Error gives the message with status and trace id.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s (HTTP %d", e.Message, e.Status)
	if e.TraceID != "" {
		s += ", trace " + e.TraceID
	}
	return s + ")"
}

// Status gives the HTTP status of an error of this package, 0 when it has none.
func Status(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// call is one request to make.
type call struct {
	method string
	path   string // below the base address, escaped
	query  url.Values
	body   any    // nil for none
	raw    []byte // a body as it is, in place of body
	header http.Header
	// repeatable says that doing it twice is the same as doing it once.
	repeatable bool
}

// errorBytes bounds what is read of an answer that is no success.
const errorBytes = 1 << 20

// do makes a call and decodes a success into out, when there is one. It gives the
// HTTP status.
func (c *Client) do(ctx context.Context, in call, out any) (int, error) {
	res, err := c.send(ctx, in)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body)
	} else {
		err = json.NewDecoder(res.Body).Decode(out)
	}
	if err != nil {
		return res.StatusCode, fmt.Errorf("read the answer to %s %s: %w", in.method, in.path, err)
	}
	return res.StatusCode, nil
}

// send makes a call, again where that is safe, and gives the answer if it is a
// success. The caller closes its body.
func (c *Client) send(ctx context.Context, in call) (*http.Response, error) {
	body := in.raw
	if in.body != nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false) // inputs are shown again as they were sent
		if err := e.Encode(in.body); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = b.Bytes()
	}
	pause := c.pause
	for try := 0; ; try++ {
		res, wait, err := c.once(ctx, in, body)
		if err == nil {
			return res, nil
		}
		if try >= c.retries || !mayRepeat(in, err) || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(max(pause, wait)):
		}
		pause *= 2
	}
}

// mayRepeat reports whether a failed call is worth and safe to make again. 429 and
// 503 promise that nothing was done; after anything else only a repeatable call is.
func mayRepeat(in call, err error) bool {
	switch status := Status(err); {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return true
	case status == 0 || status >= 500:
		return in.repeatable
	default:
		return false
	}
}

// once makes a call one time. wait is what the answer asks to wait before the next.
func (c *Client) once(ctx context.Context, in call, body []byte) (res *http.Response, wait time.Duration, err error) {
	address := c.base + in.path
	if len(in.query) > 0 {
		address += "?" + in.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, in.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", in.method, in.path, err)
	}
	for name, values := range in.header {
		req.Header[name] = values
	}
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	res, err = c.http.Do(req)
	if err != nil {
		return nil, 0, fmt.Errorf("%s %s: %w", in.method, in.path, err)
	}
	if res.StatusCode < 300 {
		return res, 0, nil
	}
	defer res.Body.Close()
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
	return nil, time.Duration(seconds) * time.Second, errorOf(res)
}

// errorOf reads the error in an answer.
func errorOf(res *http.Response) error {
	e := &Error{Status: res.StatusCode, TraceID: res.Header.Get("X-Trace-Id"), Message: http.StatusText(res.StatusCode)}
	var body v1.Error
	b, err := io.ReadAll(io.LimitReader(res.Body, errorBytes))
	if err == nil && json.Unmarshal(b, &body) == nil && body.Error.Message != "" {
		e.Message, e.Code = body.Error.Message, body.Error.Code
	}
	return e
}

func escape(id string) string { return url.PathEscape(id) }
