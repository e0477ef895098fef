package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell"
)

// request is what a handler sees of an HTTP request.
type request struct {
	caller *stepwell.Caller
	vars   map[string]string // of the path, decoded
	query  url.Values
	body   object // of routes that take one
	fields *reader
	base   string // address of the API with the /v1, for links
	trace  string // X-Trace-Id of the answer; a run's own replaces it

	tool *stepwell.Tool // of routes on a {toolId}
	run  *stepwell.Run  // of routes on a {runId}
}

// response is what a handler answers. At most one of body, parts and stream is set.
type response struct {
	status int // 0 means the route's
	header http.Header
	body   any        // encoded as JSON
	parts  [][]byte   // JSON (or another type, with its Content-Type in header) as it is
	stream JSONWriter // JSON, sent as it is written
}

// action is the part of a request that differs from route to route. It parses (400),
// then calls admit, which finds the tool or run and checks the permission (404, 403),
// then acts.
type action func(ctx context.Context, req *request, admit func() error) (*response, error)

// on makes an action of a parser and a handler.
func on[T any](parse func(*request) (T, error), handle func(context.Context, *request, T) (*response, error)) action {
	return func(ctx context.Context, req *request, admit func() error) (*response, error) {
		in, err := parse(req)
		if err != nil {
			return nil, err
		}
		if err := admit(); err != nil {
			return nil, err
		}
		return handle(ctx, req, in)
	}
}

// none is the input of a route that reads nothing but its path.
type none struct{}

func nothing(*request) (none, error) { return none{}, nil }

// serve is the one adapter between HTTP and handlers.
func (a *API) serve(w http.ResponseWriter, r *http.Request, rt *route, vars map[string]string) {
	started := time.Now()
	req := &request{vars: vars, trace: traceOf(r), base: a.base(r)}
	out := a.newAnswer(r.Context(), w, &req.trace)
	if r.ContentLength != 0 {
		out.readSoon() // holds for what net/http reads of the body after a refusal, too
	}
	defer out.finish()
	defer func() { a.note(r, rt, req, out, started) }()
	defer func() {
		if v := recover(); v != nil {
			a.recovered(out, r, rt, v)
		}
	}()
	res, err := a.limited(r, out, rt, req)
	if err != nil {
		if r.Context().Err() != nil && err != errSilent && err != errBroken {
			out.cut() // the caller has hung up
		}
		res = errorAnswer(err)
		out.cause = err
	}
	out.send(rt, res)
}

// limited handles a request within the limits on how many are at work.
func (a *API) limited(r *http.Request, out *answerWriter, rt *route, req *request) (*response, error) {
	counter, limit, timeout := &a.inFlight, a.MaxInFlight, a.patience
	if rt.long {
		counter, limit, timeout = &a.waiting, a.MaxWaiting, a.SyncWait+a.patience
	}
	if rt.needs != open {
		out.onFinish(func() { counter.Add(-1) })
		if counter.Add(1) > int64(limit) {
			return nil, errOverload
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(timeout, cancel)
	out.onFinish(func() { // not before: a stream needs the context until it is sent
		timer.Stop()
		cancel()
	})
	out.ctx, out.moved = ctx, func() { timer.Reset(a.patience) }
	return a.handle(ctx, r, out, rt, req)
}

// handle does the steps of a request in the order in which their errors answer.
func (a *API) handle(ctx context.Context, r *http.Request, out *answerWriter, rt *route, req *request) (res *response, err error) {
	var queryErr error
	if req.query, queryErr = url.ParseQuery(r.URL.RawQuery); queryErr != nil {
		queryErr = stepwell.Invalid("invalid_query", "The query is malformed: percent-encode its names and values")
	}
	if rt.needs != open {
		if req.caller, err = a.authenticate(ctx, r, req.query); err != nil {
			return nil, err
		}
	}
	body, err := a.readBody(r, out)
	if err != nil {
		return nil, err
	}
	if rt.body != noBody {
		if err := req.parseBody(r.Header, body, rt.body); err != nil {
			return nil, err
		}
	}
	if queryErr == nil {
		queryErr = checkQuery(req.query)
	}
	if queryErr != nil {
		return nil, queryErr
	}
	for name, v := range req.vars {
		if req.vars[name], err = url.PathUnescape(v); err != nil {
			return nil, errNoPath
		}
	}
	return rt.do(ctx, req, func() error { return a.admit(ctx, req, rt) })
}

// admit finds what the path is about and checks that the caller may do this to it.
func (a *API) admit(ctx context.Context, req *request, rt *route) (err error) {
	if rt.needs == open {
		return nil
	}
	about := ""
	if id, ok := req.vars["toolId"]; ok {
		if req.tool, err = a.findTool(ctx, req.caller.OrgID, id); err != nil {
			if rt.method == http.MethodDelete && stepwell.KindOf(err) == stepwell.KindNotFound {
				return stepwell.Errorf(stepwell.KindNotFound, "not_found", "Tool not found (404)") // clients match this text
			}
			return err
		}
		about = req.tool.ID
	}
	if id, ok := req.vars["runId"]; ok {
		if !validRunID(id) {
			return stepwell.NotFound("Run")
		}
		if req.run, err = a.Runs.Get(ctx, req.caller.OrgID, id); err != nil {
			return err
		}
		about = req.run.ToolID
	}
	return rt.needs.allow(req.caller, about)
}

// base is the address of the API, for links.
func (a *API) base(r *http.Request) string {
	if a.PublicURL != "" {
		return strings.TrimSuffix(a.PublicURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + prefix
}

var tracePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// traceOf gives the caller's trace id when it has an acceptable one, else a new one.
func traceOf(r *http.Request) string {
	if t := r.Header.Get("X-Trace-Id"); t != "" && tracePattern.MatchString(t) {
		return t
	}
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// refuse answers a request that reaches no route.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error, header http.Header) {
	trace := traceOf(r)
	out := a.newAnswer(r.Context(), w, &trace)
	res := errorAnswer(err)
	for name, values := range header {
		res.header[name] = values
	}
	if r.ContentLength != 0 {
		out.readSoon() // net/http reads on after the answer
	}
	out.send(&route{}, res)
}

// recovered answers after a panic in a handler.
func (a *API) recovered(out *answerWriter, r *http.Request, rt *route, v any) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	a.Log.Error("panic in a handler", zap.String("route", rt.path), zap.String("trace", *out.trace),
		zap.Any("panic", v), zap.Stack("stack"))
	if out.status != 0 {
		out.cut()
	}
	out.send(rt, errorAnswer(errors.New("panic")))
}

// note logs one line for each request: failures of the service as errors, the rest
// for debugging. It holds no query and no header, where keys may be.
func (a *API) note(r *http.Request, rt *route, req *request, out *answerWriter, started time.Time) {
	level := zap.DebugLevel
	if out.status >= 500 && out.cause != error(errOverload) { // overload is no time for a line each
		level = zap.ErrorLevel
	}
	entry := a.Log.Check(level, "request")
	if entry == nil {
		return
	}
	fields := []zap.Field{zap.String("method", r.Method), zap.String("route", rt.path), zap.Int("status", out.status),
		zap.Duration("took", time.Since(started)), zap.String("trace", req.trace)}
	if req.caller != nil {
		fields = append(fields, zap.String("org", req.caller.OrgID), zap.String("key", req.caller.KeyID))
	}
	if out.cause != nil {
		fields = append(fields, zap.Error(out.cause))
	}
	entry.Write(fields...)
}

// sendPart is how much of an answer is written before its deadline is renewed.
const sendPart = 64 << 10

// answerWriter sends one answer and knows what was sent.
type answerWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context // of the request's work
	moved   func()          // gives the work, which moves on, more time
	silence time.Duration
	trace   *string
	status  int // 0 until headers are out
	cause   error
	after   []func()
}

func (a *API) newAnswer(ctx context.Context, w http.ResponseWriter, trace *string) *answerWriter {
	return &answerWriter{w: w, control: http.NewResponseController(w), ctx: ctx, moved: func() {}, silence: a.silence, trace: trace}
}

// onFinish has f called when the request is over, however it ends.
func (o *answerWriter) onFinish(f func()) { o.after = append(o.after, f) }

func (o *answerWriter) finish() {
	for _, f := range o.after {
		f()
	}
}

// readSoon lets the next read of the request's body wait for as long as a sender may
// be silent. net/http takes the deadline away at the end of the body.
func (o *answerWriter) readSoon() {
	_ = o.control.SetReadDeadline(time.Now().Add(o.silence)) // fails only with a writer that has no connection
}

// writeSoon does the same for the next write, and a reader that takes nothing.
func (o *answerWriter) writeSoon() { _ = o.control.SetWriteDeadline(time.Now().Add(o.silence)) }

// cut ends the connection without an answer, or in the middle of one.
func (o *answerWriter) cut() { panic(http.ErrAbortHandler) }

// send encodes into a buffer, then writes headers, then the body.
func (o *answerWriter) send(rt *route, res *response) {
	parts := res.parts
	if res.body != nil {
		b, err := encode(res.body)
		if err != nil {
			o.cause = err
			res = errorAnswer(err)
			b, _ = encode(res.body)
		}
		parts = [][]byte{b}
	}
	status := res.status
	if status == 0 {
		status = rt.success
	}
	h := o.w.Header()
	for name, values := range res.header {
		h[name] = values
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("X-Trace-Id", *o.trace)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	if res.stream != nil {
		o.sendStream(status, res.stream)
		return
	}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	h.Set("Content-Length", strconv.Itoa(size))
	o.begin(status)
	for _, p := range parts {
		if _, err := o.Write(p); err != nil {
			return // the caller has hung up
		}
	}
}

// begin writes the headers. Before they go out, net/http may read what is left of the
// request's body, as long as a sender may be silent; the writing has its time after that.
func (o *answerWriter) begin(status int) {
	o.status = status
	_ = o.control.SetWriteDeadline(time.Now().Add(2 * o.silence))
	o.w.WriteHeader(status)
}

// Write sends a part of the body. The caller has to take each 64 KiB within 30 s.
func (o *answerWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		if n > 0 {
			o.writeSoon()
		}
		var m int
		m, err = o.w.Write(p[n:min(n+sendPart, len(p))])
		n += m
	}
	return n, err
}

// sendStream holds the first part back, so that a stream that fails at once is a
// proper error; one that fails later is cut off.
func (o *answerWriter) sendStream(status int, write JSONWriter) {
	s := &streamWriter{out: o, status: status}
	err := write(o.ctx, s)
	if err == nil {
		err = s.flush()
	}
	switch {
	case err == nil:
	case o.status == 0:
		o.cause = err
		o.send(&route{}, errorAnswer(err))
	default:
		o.cause = err
		o.cut()
	}
}

// streamWriter sends in parts of 64 KiB.
type streamWriter struct {
	out    *answerWriter
	status int
	held   bytes.Buffer
}

func (s *streamWriter) Write(p []byte) (int, error) {
	s.held.Write(p)
	if s.held.Len() < sendPart {
		return len(p), nil
	}
	return len(p), s.flush()
}

func (s *streamWriter) flush() error {
	if s.out.status == 0 {
		s.out.begin(s.status)
	} else {
		s.out.writeSoon()
	}
	s.out.moved()
	_, err := s.out.Write(s.held.Bytes())
	s.held.Reset()
	return err
}

var _ io.Writer = (*streamWriter)(nil)

// encode writes JSON without escapes for HTML: templates are full of < and >.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
