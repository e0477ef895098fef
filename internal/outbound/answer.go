package outbound

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"syscall"
)

// firstChunk is the memory that every request holds before it is sent, in
// bytes; most answers fit.
const firstChunk = 32 << 10

// hugeChunk is the memory, in bytes, before which garbage is collected
// and given back.
const hugeChunk = 32 << 20

// maxDrained bounds what is read of a body only to keep its connection, in bytes.
const maxDrained = 2 << 10

// answerError is a failure to read an answer that has a reason of its own.
type answerError struct {
	reason Reason
	text   string
	err    error
}

func (e *answerError) Error() string { return e.text }
func (e *answerError) Unwrap() error { return e.err }

// read reads the answer of the last hop to its end and closes it.
func (x *exchange) read(h *hop, answer *http.Response) (*Response, error) {
	wire := &wireReader{r: answer.Body, left: x.client.maxAnswer + firstChunk}
	defer func() { _ = answer.Body.Close() }()
	tooLarge := &answerError{reason: TooLarge, text: "the answer is larger than " + size(x.client.maxAnswer)}

	encoding := strings.ToLower(strings.TrimSpace(strings.Join(answer.Header.Values("Content-Encoding"), ",")))
	if encoding == "identity" {
		encoding = ""
	}
	if encoding == "" && h.method != http.MethodHead && answer.ContentLength > x.client.maxAnswer {
		return nil, tooLarge
	}
	var body []byte
	if h.method != http.MethodHead {
		decoded, err := decode(encoding, wire)
		if err == nil {
			body, err = x.fill(decoded, answer.ContentLength)
		}
		if err == nil && encoding != "" {
			// Past the end of the compressed stream, so that the connection is kept.
			_, _ = io.CopyN(io.Discard, wire, maxDrained)
		}
		switch {
		case err == nil:
		case errors.Is(err, errTooLarge):
			return nil, tooLarge
		case errors.Is(err, io.ErrUnexpectedEOF): // of the connection, or of the compressed stream in it
			return nil, &answerError{Network, "the answer was cut off", err}
		case wire.err == nil && encoding != "" && x.ctx.Err() == nil:
			return nil, &answerError{BadAnswer, "the answer's Content-Encoding cannot be undone", err}
		default:
			return nil, err
		}
	}
	header := answer.Header
	if encoding != "" {
		header.Del("Content-Encoding")
		header.Del("Content-Length")
	}
	return &Response{Status: answer.StatusCode, Header: header, Body: body, URL: h.url.String(), lease: x.lease}, nil
}

// errTooLarge is met by more bytes than one answer may have.
var errTooLarge = errors.New("answer too large")

// fill reads r to its end, growing the lease before the buffer. hint is the
// length that the server claims, negative when it claims none; it only saves
// copies and is believed up to 1 MiB, or when a quarter of it has come.
func (x *exchange) fill(r io.Reader, hint int64) ([]byte, error) {
	limit := x.client.maxAnswer
	capacity := int64(firstChunk)
	if hint >= capacity && hint < 1<<20 {
		capacity = hint + 1 // room to see the end
		if err := x.lease.grow(x.ctx, capacity-firstChunk); err != nil {
			return nil, err
		}
	} else if hint >= 0 && hint < capacity {
		capacity = hint + 1
	}
	buf := make([]byte, 0, capacity)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, errTooLarge
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) < cap(buf) {
			continue
		}
		grown := min(max(2*int64(cap(buf)), firstChunk), limit+1)
		if hint >= grown && hint <= limit && int64(len(buf)) >= hint/4 {
			grown = hint + 1
		}
		if grown >= hugeChunk {
			debug.FreeOSMemory() // else garbage as large as all that is live stands beside the new memory
		}
		if err := x.lease.grow(x.ctx, grown-int64(cap(buf))); err != nil {
			return nil, err
		}
		larger := make([]byte, len(buf), grown)
		copy(larger, buf)
		buf = larger
	}
}

// decode undoes a Content-Encoding. Only one coding is undone; an empty body
// needs none.
func decode(encoding string, wire io.Reader) (io.Reader, error) {
	if encoding == "" {
		return wire, nil
	}
	buffered := bufio.NewReader(wire)
	head, err := buffered.Peek(2)
	if len(head) == 0 {
		if err == io.EOF {
			return buffered, nil
		}
		return nil, err
	}
	switch encoding {
	case "gzip", "x-gzip":
		if len(head) == 2 && (head[0] != 0x1f || head[1] != 0x8b) {
			return nil, gzip.ErrHeader // the reader would call a short one cut off
		}
		return gzip.NewReader(buffered)
	case "deflate":
		// The standard means zlib; some servers send the bare format.
		if len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			return zlib.NewReader(buffered)
		}
		return flate.NewReader(buffered), nil
	}
	return nil, &answerError{reason: BadAnswer, text: fmt.Sprintf("the answer's Content-Encoding %.40q is not supported", encoding)}
}

// wireReader bounds the compressed bytes too (a compressed stream can be
// endless and yield nothing), and remembers how the connection failed, so that
// a cut answer is told from a broken compression.
type wireReader struct {
	r    io.Reader
	left int64
	err  error
}

func (w *wireReader) Read(p []byte) (int, error) {
	if w.left <= 0 {
		w.err = errTooLarge
		return 0, errTooLarge
	}
	n, err := w.r.Read(p[:min(int64(len(p)), w.left)])
	w.left -= int64(n)
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}

// size writes a number of bytes for a message.
func size(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// fail classifies what went wrong on a hop. Only what is certain becomes a
// reason of its own; all else is Network, which promises nothing.
func (x *exchange) fail(h *hop, err error) *Error {
	reason, text := x.classify(err)
	failure := h.fail(reason, text, err)
	failure.Sent = x.sent.Load()
	return failure
}

func (x *exchange) classify(err error) (Reason, string) {
	var (
		refused     *refusal
		answer      *answerError
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		notTLS      tls.RecordHeaderError
	)
	switch {
	case x.caller.Err() != nil:
		return Cancelled, "cancelled"
	case x.ctx.Err() != nil:
		return Timeout, "no complete answer within " + x.timeout.String()
	case errors.As(err, &answer):
		return answer.reason, answer.text
	case errors.As(err, &refused):
		return Refused, "not allowed: " + refused.why
	case errors.As(err, &dns):
		return Unresolved, "the host name cannot be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return ConnectionRefused, "connection refused"
	case errors.As(err, &certificate):
		return TLS, "the server's certificate is not trusted"
	case errors.As(err, &notTLS):
		return TLS, "the server does not speak TLS"
	case !x.sent.Load() && handshakeFailed(err):
		return TLS, "the TLS handshake failed"
	case !x.sent.Load():
		return Network, "no connection"
	case x.answered.Load() && !x.http2 && !x.connectionEnded():
		return BadAnswer, "the answer is not valid HTTP, or its head is over " + size(maxHeaderBytes)
	}
	return Network, "the connection broke before the answer was complete"
}

// handshakeFailed reports whether an error before anything was sent is a
// disagreement about TLS and not a connection that failed.
func handshakeFailed(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op == "remote error" // how crypto/tls reports an alert
	}
	var failed net.Error
	return !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &failed)
}
