package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"
)

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
	if s.held.Len()+len(p) < sendPart {
		return s.held.Write(p)
	}
	if err := s.flush(); err != nil {
		return 0, err
	}
	if len(p) < sendPart {
		return s.held.Write(p)
	}
	n := 0
	for n < len(p) {
		s.out.writeSoon()
		m, err := s.out.Write(p[n:min(n+sendPart, len(p))])
		if n += m; err != nil {
			return n, err
		}
		s.out.moved()
	}
	return n, nil
}

// push sends what is held at once, through to the network.
func (s *streamWriter) push() error {
	if err := s.flush(); err != nil {
		return err
	}
	return s.out.control.Flush()
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

// encodeValue is encode without the end of the line.
func encodeValue(v any) (json.RawMessage, error) {
	b, err := encode(v)
	return bytes.TrimSuffix(b, []byte("\n")), err
}

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
