package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"

	"stepwell"
)

// ErrFile says that an answer is to be kept as a file: it is an attachment, or of no
// type that Decode knows.
var ErrFile = errors.New("the answer is a file")

// maxDecoded is how many bytes one answer may become, unpacked or as JSON: what an
// upstream packs into little must not fill memory. It equals the default limit of an
// answer as it is received.
const maxDecoded = 100 << 20

// errTooLarge is met by a bomb.
var errTooLarge = plainError("more than 100 MiB when it is decoded")

// decoder turns the body of an answer into JSON. Adding a format is adding one
// to the list below.
type decoder struct {
	name string
	// claims says whether a Content-Type (media, in lower case, without
	// parameters) is of this format.
	claims func(media string) bool
	// sniff says whether a body whose type says nothing (text/plain, or none) looks
	// like this format; nil when it never does. A body that then does not decode is
	// passed on to the next decoder.
	sniff func(body []byte) bool
	// packed formats are of bytes, not of text, and cannot be taken for another.
	packed bool
	// decode gives compact or original JSON. Its error reads on after `is`.
	decode func(body []byte, b *budget) (json.RawMessage, error)
}

// decoders are asked in this order. It is filled in by init because archives decode
// what is in them by the same list.
var decoders []decoder

func init() {
	decoders = []decoder{
		{name: "gzip", claims: among("application/gzip", "application/x-gzip"), sniff: startsWith("\x1f\x8b\x08"), packed: true, decode: decodeGzip},
		{name: "a zip archive", claims: among("application/zip", "application/x-zip-compressed"), sniff: startsWith("PK\x03\x04"), packed: true, decode: decodeZip},
		{
			name:   "JSON",
			claims: func(m string) bool { return m == typeJSON || m == "text/json" || strings.HasSuffix(m, "+json") },
			sniff:  looksLikeJSON,
			decode: decodeJSON,
		},
		{
			name:   "NDJSON",
			claims: among("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines"),
			sniff:  looksLikeJSON,
			decode: decodeLines,
		},
		{name: "CSV", claims: among("text/csv", "application/csv"), sniff: looksLikeCSV, decode: decodeCSV},
		{name: "TSV", claims: among("text/tab-separated-values"), decode: decodeTSV},
		// A page of XHTML is a page, with entities of its own.
		{name: "text", claims: among("application/xhtml+xml"), decode: decodeText},
		{
			name:   "XML",
			claims: func(m string) bool { return m == "application/xml" || m == "text/xml" || strings.HasSuffix(m, "+xml") },
			sniff:  looksLikeXML,
			decode: decodeXML,
		},
		{
			name: "YAML",
			claims: func(m string) bool {
				return among("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/vnd.yaml")(m) || strings.HasSuffix(m, "+yaml")
			},
			sniff:  looksLikeYAML,
			decode: decodeYAML,
		},
		{
			name: "text",
			claims: func(m string) bool {
				return strings.HasPrefix(m, "text/") || m == "application/javascript" || m == typeForm
			},
			sniff:  utf8.Valid,
			decode: decodeText,
		},
	}
}

func among(names ...string) func(string) bool {
	return func(m string) bool { return slices.Contains(names, m) }
}

func startsWith(magic string) func([]byte) bool {
	return func(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }
}

// budget bounds what one answer may become, over all that is packed in it.
type budget struct {
	left  int64 // bytes that may still be unpacked
	depth int   // of archives in archives
}

// Decode turns the body of an answer into JSON: by its Content-Type, and when that
// is text/plain or missing, by its content. An empty body is null. JSON keeps its
// text. The error is ErrFile, or says which format the body fails to be.
func Decode(a *Answer) (json.RawMessage, error) {
	if disposition, _, _ := strings.Cut(a.Header.Get("Content-Disposition"), ";"); strings.EqualFold(strings.TrimSpace(disposition), "attachment") {
		return nil, ErrFile
	}
	media, charset := mediaType(a.Header.Get("Content-Type"))
	return decodeAs(media, charset, a.Body, &budget{left: maxDecoded})
}

// decodeAs decodes a body of a media type; an empty one says nothing.
func decodeAs(media, charset string, body []byte, b *budget) (json.RawMessage, error) {
	unsaid := media == "" || media == "text/plain"
	text, err := toUTF8(body, charset)
	if err != nil {
		return nil, err
	}
	if skipSpace(text, 0) == len(text) {
		return jsonNull, nil
	}
	for _, d := range decoders {
		in := text
		if d.packed {
			in = body
		}
		if unsaid && (d.sniff == nil || !d.sniff(in)) || !unsaid && !d.claims(media) {
			continue
		}
		data, err := d.decode(in, b)
		if err == nil && deeperThan(data, stepwell.MaxJSONDepth) {
			err = errTooDeep
		}
		switch {
		case err == nil:
			return data, nil
		case errors.Is(err, ErrFile):
			return nil, ErrFile
		case !unsaid:
			return nil, plainError("the answer says that it is " + d.name + ", and is " + err.Error())
		case d.packed || errors.Is(err, errTooDeep) || errors.Is(err, errTooLarge):
			return nil, plainError("the answer looks like " + d.name + ", and is " + err.Error())
		}
	}
	return nil, ErrFile
}

func mediaType(header string) (media, charset string) {
	media, params, err := mime.ParseMediaType(header)
	if err != nil {
		media, _, _ = strings.Cut(header, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media, params["charset"]
}

// toUTF8 converts a body from the charset that its Content-Type names, or its first
// bytes when there is none. A charset that nobody knows is taken for UTF-8. A mark of
// the byte order is taken off.
func toUTF8(body []byte, charset string) ([]byte, error) {
	charset = strings.ToLower(strings.TrimSpace(charset))
	if charset == "" && len(body)%2 == 0 && (bytes.HasPrefix(body, []byte("\xff\xfe")) || bytes.HasPrefix(body, []byte("\xfe\xff"))) {
		charset = map[bool]string{true: "utf-16le", false: "utf-16be"}[body[0] == 0xff]
	}
	if charset != "" && charset != "utf-8" && charset != "utf8" && charset != "us-ascii" {
		if enc, err := htmlindex.Get(charset); err == nil {
			if body, err = enc.NewDecoder().Bytes(body); err != nil {
				return nil, plainError("the answer is not in the charset that its Content-Type names")
			}
		}
	}
	return bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), nil
}

func looksLikeJSON(b []byte) bool { k := kindOf(b); return k == '{' || k == '[' }

func decodeJSON(body []byte, _ *budget) (json.RawMessage, error) {
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(body), nil
}

func decodeText(body []byte, _ *budget) (json.RawMessage, error) { return quote(string(body)), nil }

// decodeLines reads JSON values, one on each line, into an array.
func decodeLines(body []byte, _ *budget) (json.RawMessage, error) {
	out := append(make([]byte, 0, len(body)+2), '[')
	number := 0
	for line := range bytes.Lines(body) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		switch err := checkJSON(line); {
		case errors.Is(err, errTooDeep):
			return nil, err
		case err != nil:
			return nil, plainError("not valid NDJSON: line " + string(itoa(int64(number))) + " is not valid JSON")
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, line...)
	}
	return append(out, ']'), nil
}

// jsonText collects JSON text up to maxDecoded bytes; then full is set, and what is
// added is dropped.
type jsonText struct {
	buf  []byte
	full bool
}

// room reports whether n more bytes fit.
func (t *jsonText) room(n int) bool {
	t.full = t.full || len(t.buf)+n > maxDecoded
	return !t.full
}

func (t *jsonText) raw(s string) {
	if t.room(len(s)) {
		t.buf = append(t.buf, s...)
	}
}

func (t *jsonText) string(s string) {
	if t.room(len(s) + 2) {
		t.buf = appendQuoted(t.buf, s)
	}
}

// done gives the text, or says that it was too much.
func (t *jsonText) done() (json.RawMessage, error) {
	if t.room(0) {
		return t.buf, nil
	}
	return nil, errTooLarge
}
