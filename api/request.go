package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stepwell"
)

// keyOf gives the SHA-256 of the key in the Authorization header or in
// ?token=. Several different keys are refused, whichever of them is right.
func keyOf(r *http.Request, query url.Values) (hash [32]byte, err error) {
	key := ""
	for _, header := range r.Header["Authorization"] {
		scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			continue
		}
		if err := oneKey(&key, strings.TrimSpace(token)); err != nil {
			return hash, err
		}
	}
	for _, token := range query["token"] {
		if err := oneKey(&key, token); err != nil {
			return hash, err
		}
	}
	if key == "" {
		return hash, errNoKey
	}
	return sha256.Sum256([]byte(key)), nil
}

func oneKey(key *string, token string) error {
	if token == "" || token == *key {
		return nil
	}
	if *key != "" {
		return errTwoKeys
	}
	*key = token
	return nil
}

// readBody reads the whole body, of routes that take none too: what is left on a
// connection would be taken for the next request.
func (a *API) readBody(r *http.Request, out *answerWriter) ([]byte, error) {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	tooLarge := stepwell.Errorf(stepwell.KindTooLarge, "too_large", "The request body is too large: at most %d bytes are taken", a.MaxBody)
	if r.ContentLength > a.MaxBody {
		return nil, tooLarge
	}
	b := newBody(a, r.ContentLength)
	out.onFinish(b.release)
	for {
		if err := b.grow(); err != nil {
			return nil, err
		}
		n, err := r.Body.Read(b.free())
		b.took(n)
		if int64(len(b.bytes)) > a.MaxBody {
			return nil, tooLarge
		}
		switch {
		case err == io.EOF:
			return b.bytes, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, errSilent
		case err != nil:
			return nil, errBroken
		case n > 0:
			out.readSoon()
		}
	}
}

// bodyBuffer is a body as it arrives; what it holds counts against the memory for
// all bodies.
type bodyBuffer struct {
	api   *API
	bytes []byte
	held  int64
}

// smallBody is what a buffer starts with when the length is not known, and what one
// grows by at least.
const smallBody = 4 << 10

// startBody bounds what an announced length makes us set aside before any of it came.
const startBody = 1 << 20

func newBody(a *API, length int64) *bodyBuffer {
	size := int64(smallBody)
	if length > 0 {
		size = min(length+1, startBody) // one more, to see the end without growing
	}
	return &bodyBuffer{api: a, bytes: make([]byte, 0, size), held: 0}
}

// grow makes room for a read and takes what the buffer needs from the memory for
// bodies.
func (b *bodyBuffer) grow() error {
	if len(b.bytes) == cap(b.bytes) {
		b.bytes = slices.Grow(b.bytes, max(smallBody, len(b.bytes)))
	}
	more := int64(cap(b.bytes)) - b.held
	if more == 0 {
		return nil
	}
	b.held += more
	if b.api.bodyMemory.Add(more) > b.api.BodyMemory {
		return errOverload
	}
	return nil
}

func (b *bodyBuffer) free() []byte { return b.bytes[len(b.bytes):cap(b.bytes)] }

func (b *bodyBuffer) took(n int) { b.bytes = b.bytes[:len(b.bytes)+n] }

func (b *bodyBuffer) release() { b.api.bodyMemory.Add(-b.held) }

// parseBody reads the body as a JSON object. What parses is JSON, whatever its type
// says; the type decides only how the refusal of anything else is called.
func (req *request) parseBody(h http.Header, body []byte, use bodyUse) error {
	req.fields = &reader{}
	req.body = object{reader: req.fields}
	if len(body) == 0 {
		if use == requiredBody {
			return errBodyMissing
		}
		return nil
	}
	if err := plainEncoding(h); err != nil {
		return err
	}
	text, wrong := checkJSON(body)
	if err := wrong.refusal(h.Get("Content-Type"), body); err != nil {
		return err
	}
	text = bytes.Trim(text, " \t\r\n")
	if string(text) == "null" { // as if absent
		if use == requiredBody {
			return errBodyMissing
		}
		return nil
	}
	var ok bool
	if req.body, ok = req.fields.readObject(text, ""); !ok {
		return stepwell.Invalid("malformed_body", "The request body must be a JSON object")
	}
	return nil
}

// plainEncoding refuses a body that is compressed.
func plainEncoding(h http.Header) error {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return stepwell.Errorf(stepwell.KindUnsupported, "unsupported_media_type", "Content-Encoding is not supported: send the body as it is")
	}
	return nil
}

// refusal gives the error for a body with a fault.
func (f fault) refusal(contentType string, body []byte) error {
	where := func() string {
		before := body[:min(f.at, len(body))]
		line := bytes.Count(before, []byte("\n"))
		column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
		return "line " + strconv.Itoa(line+1) + ", column " + strconv.Itoa(column+1)
	}
	switch f.kind {
	case faultNone:
		return nil
	case faultText:
		return stepwell.Invalid("invalid_text", "The request body holds text that cannot be kept (U+0000, half a surrogate pair or invalid UTF-8) at %s", where())
	case faultDepth:
		return stepwell.Invalid("too_deep", "The request body is nested too deeply: at most %d levels are taken", stepwell.MaxJSONDepth)
	}
	if !jsonType(contentType) {
		return stepwell.Errorf(stepwell.KindUnsupported, "unsupported_media_type", "The request body is not JSON, nor is its Content-Type: send application/json")
	}
	return stepwell.Invalid("malformed_body", "The request body is not valid JSON at %s", where())
}

// jsonType reports whether a Content-Type is JSON, +json or absent.
func jsonType(contentType string) bool {
	if strings.TrimSpace(contentType) == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil && media == "" {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// checkQuery refuses text that cannot be kept.
func checkQuery(query url.Values) error {
	for name, values := range query {
		for _, v := range append([]string{name}, values...) {
			if !utf8.ValidString(v) || strings.IndexByte(v, 0) >= 0 {
				return stepwell.Invalid("invalid_text", "The query holds text that cannot be kept (U+0000 or invalid UTF-8)")
			}
		}
	}
	return nil
}

// queryReader reads query values by type and remembers the first wrong one. Of a
// repeated name the last value counts.
type queryReader struct {
	values url.Values
	err    error
}

func (q *queryReader) fail(name, must string) {
	if q.err == nil {
		q.err = stepwell.Invalid("invalid_query", "'%s' must be %s", name, must)
	}
}

func (q *queryReader) get(name string) (value string, there bool) {
	all := q.values[name]
	if len(all) == 0 {
		return "", false
	}
	return all[len(all)-1], true
}

func (q *queryReader) text(name string) string {
	v, _ := q.get(name)
	return v
}

func (q *queryReader) whole(name string, absent, low, high int) int {
	v, there := q.get(name)
	if !there {
		return absent
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		q.fail(name, wholeFrom(int64(low), int64(high)))
		return absent
	}
	return n
}

func (q *queryReader) flag(name string) bool {
	v, there := q.get(name)
	if there && v != "true" && v != "false" {
		q.fail(name, "true or false")
	}
	return v == "true"
}

// oneOf reads a value that must be one of a few; empty when absent.
func (q *queryReader) oneOf(name string, few ...string) string {
	v, there := q.get(name)
	if there && !slices.Contains(few, v) {
		q.fail(name, "one of "+strings.Join(few, ", "))
	}
	return v
}

func (q *queryReader) time(name string) (t time.Time) {
	v, there := q.get(name)
	if !there {
		return t
	}
	t, err := time.Parse(time.RFC3339, v)
	if err != nil {
		q.fail(name, mustBeTime)
	}
	return t
}

// maxPage bounds page numbers, so that page times limit stays a small number.
const maxPage = 1_000_000

// page reads page and limit.
func (q *queryReader) page(limit, maxLimit int) (page, size int) {
	return q.whole("page", 1, 1, maxPage), q.whole("limit", limit, 1, maxLimit)
}
