package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
)

// ErrFile says that an answer is to be kept as a file: it is an attachment, or of no
// type that Decode knows.
var ErrFile = errors.New("the answer is a file")

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
	sniff  func(body []byte) bool
	decode func(body []byte) (json.RawMessage, error)
}

// decoders are asked in this order.
var decoders = []decoder{
	{
		name:   "JSON",
		claims: func(m string) bool { return m == typeJSON || m == "text/json" || strings.HasSuffix(m, "+json") },
		sniff:  func(b []byte) bool { k := kindOf(b); return k == '{' || k == '[' },
		decode: decodeJSON,
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

// Decode turns the body of an answer into JSON: by its Content-Type, and when that
// is text/plain or missing, by its content. An empty body is null. JSON keeps its
// text. The error is ErrFile, or says which format the body fails to be.
func Decode(a *Answer) (json.RawMessage, error) {
	if disposition, _, _ := strings.Cut(a.Header.Get("Content-Disposition"), ";"); strings.EqualFold(strings.TrimSpace(disposition), "attachment") {
		return nil, ErrFile
	}
	media, charset := mediaType(a.Header.Get("Content-Type"))
	body, err := toUTF8(a.Body, charset)
	if err != nil {
		return nil, err
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	if skipSpace(body, 0) == len(body) {
		return jsonNull, nil
	}
	unsaid := media == "" || media == "text/plain"
	for _, d := range decoders {
		switch {
		case unsaid && d.sniff != nil && d.sniff(body):
			data, err := d.decode(body)
			if err == nil || errors.Is(err, errTooDeep) {
				return data, err
			}
		case !unsaid && d.claims(media):
			data, err := d.decode(body)
			if err != nil {
				return nil, plainError("the answer says that it is " + d.name + ", and is " + err.Error())
			}
			return data, nil
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

// toUTF8 converts a body from the charset that its Content-Type names. A charset
// that nobody knows is taken for UTF-8.
func toUTF8(body []byte, charset string) ([]byte, error) {
	charset = strings.ToLower(strings.TrimSpace(charset))
	if charset == "" || charset == "utf-8" || charset == "utf8" || charset == "us-ascii" {
		return body, nil
	}
	enc, err := htmlindex.Get(charset)
	if err != nil {
		return body, nil
	}
	converted, err := enc.NewDecoder().Bytes(body)
	if err != nil {
		return nil, plainError("the answer is not in the charset that its Content-Type names")
	}
	return converted, nil
}

func decodeJSON(body []byte) (json.RawMessage, error) {
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(body), nil
}

func decodeText(body []byte) (json.RawMessage, error) { return quote(string(body)), nil }
