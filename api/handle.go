package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/tracing"
)

// request is what a handler sees of an HTTP request.
type request struct {
	caller *stepwell.Caller
	key    [32]byte          // hash of the caller's key
	vars   map[string]string // of the path, decoded
	query  url.Values
	header http.Header
	host   string
	body   object // of routes that take one
	raw    []byte // of routes that take any
	fields *reader
	base   string // address of the API with the /v1, for links
	trace  string // X-Trace-Id of the answer; a run's own replaces it

	tool *stepwell.Tool // of routes on a {toolId}
	run  *stepwell.Run  // of routes on a {runId}
}

// about gives the ids of the tool and the run that the request turned out to be about.
func (req *request) about() (tool, run string) {
	if req.tool != nil {
		tool = req.tool.ID
	}
	if req.run != nil {
		tool, run = req.run.ToolID, req.run.ID
	}
	return tool, run
}

// response is what a handler answers. At most one of body, parts and stream is set.
type response struct {
	status int // 0 means the route's
	header http.Header
	body   any        // encoded as JSON
	parts  [][]byte   // JSON (or another type, with its Content-Type in header) as it is
	stream JSONWriter // JSON, sent as it is written
	made   string     // id of what was made, for the audit log
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
	r, span := a.Tracer.Receive(r, rt.path)
	req := &request{vars: vars, trace: traceOf(r, span.TraceID()), base: a.base(r)}
	out := a.newAnswer(r.Context(), w, &req.trace)
	if r.ContentLength != 0 {
		out.readSoon() // holds for what net/http reads of the body after a refusal, too
	}
	defer out.finish()
	defer func() { a.note(r, rt, req, out, started, span) }()
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
	req.header, req.host = r.Header, r.Host
	var queryErr error
	if req.query, queryErr = url.ParseQuery(r.URL.RawQuery); queryErr != nil {
		queryErr = stepwell.Invalid("invalid_query", "The query is malformed: percent-encode its names and values")
	}
	if rt.needs != open {
		if req.key, err = keyOf(r, req.query); err != nil {
			return nil, err
		}
		if req.caller, err = a.Keys.Authenticate(ctx, req.key); err != nil {
			return nil, err
		}
	}
	body, err := a.readBody(r, out)
	if err != nil {
		return nil, err
	}
	switch rt.body {
	case noBody:
	case anyBody:
		req.raw = body
	default:
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
	if res, err = rt.do(ctx, req, func() error { return a.admit(ctx, req, rt) }); err == nil {
		a.record(ctx, req, rt, res)
	}
	return res, err
}

// admit finds what the path is about and checks that the caller may do this to it.
func (a *API) admit(ctx context.Context, req *request, rt *route) (err error) {
	if rt.needs == open {
		return nil
	}
	var about subject
	if id, ok := req.vars["toolId"]; ok {
		if req.tool, err = a.findTool(ctx, req.caller.OrgID, id); err != nil {
			if rt.method == http.MethodDelete && stepwell.KindOf(err) == stepwell.KindNotFound {
				return stepwell.Errorf(stepwell.KindNotFound, "not_found", "Tool not found (404)") // clients match this text
			}
			return err
		}
		about.toolID = req.tool.ID
	}
	if id, ok := req.vars["runId"]; ok {
		if !validRunID(id) {
			return stepwell.NotFound("Run")
		}
		if req.run, err = a.Runs.Get(ctx, req.caller.OrgID, id); err != nil {
			return err
		}
		about = runSubject(req.run)
	}
	if id, ok := req.vars["deliveryId"]; ok {
		d, err := a.Deliveries.Delivery(ctx, req.caller.OrgID, id)
		if err != nil {
			return err
		}
		about.toolID = d.ToolID
	}
	if id, ok := req.vars["endUserId"]; ok {
		about.owned, about.endUserID = true, strings.ToLower(id)
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

// traceOf gives the caller's trace id when it has an acceptable one, else that of the
// span, else a new one.
func traceOf(r *http.Request, ofSpan string) string {
	if t := r.Header.Get("X-Trace-Id"); t != "" && tracePattern.MatchString(t) {
		return t
	}
	if ofSpan != "" {
		return ofSpan
	}
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// refuse answers a request that reaches no route.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error, header http.Header) {
	started := time.Now()
	trace := traceOf(r, "")
	out := a.newAnswer(r.Context(), w, &trace)
	res := errorAnswer(err)
	for name, values := range header {
		res.header[name] = values
	}
	if r.ContentLength != 0 {
		out.readSoon() // net/http reads on after the answer
	}
	defer func() { a.Measure(r.Method, "", out.status, time.Since(started)) }()
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

// note counts each request, ends its span and logs one line for it: failures of the
// service as errors, the rest for debugging. None of them holds a query or a header,
// where keys may be.
func (a *API) note(r *http.Request, rt *route, req *request, out *answerWriter, started time.Time, span *tracing.Span) {
	took := time.Since(started)
	a.Measure(r.Method, rt.path, out.status, took)
	toolID, runID := req.about()
	if span != nil {
		span.Set("stepwell.trace", req.trace)
		span.Set("stepwell.tool", toolID)
		span.Set("stepwell.run", runID)
		if req.caller != nil {
			span.Set("stepwell.org", req.caller.OrgID)
		}
		span.End(out.status, "no answer")
	}
	level := zap.DebugLevel
	if out.status >= 500 && out.cause != error(errOverload) { // overload is no time for a line each
		level = zap.ErrorLevel
	}
	entry := a.Log.Check(level, "request")
	if entry == nil {
		return
	}
	fields := []zap.Field{zap.String("method", r.Method), zap.String("route", rt.path), zap.Int("status", out.status),
		zap.Duration("took", took), zap.String("trace", req.trace)}
	if toolID != "" {
		fields = append(fields, zap.String("tool", toolID))
	}
	if runID != "" {
		fields = append(fields, zap.String("run", runID))
	}
	if req.caller != nil {
		fields = append(fields, zap.String("org", req.caller.OrgID), zap.String("key", req.caller.KeyID))
	}
	if out.cause != nil {
		fields = append(fields, zap.Error(out.cause))
	}
	entry.Write(fields...)
}
