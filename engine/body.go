package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"mime/multipart"
	"strings"

	"stepwell/engine/template"
)

const (
	typeJSON      = "application/json"
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// setBody renders the body and encodes it as its Content-Type says: a JSON object
// under a form type becomes that form, JSON without a type goes out as
// application/json, everything else as it is written.
func (s *Step) setBody(req *Request, vals values) error {
	text := s.body.text(vals)
	if text == "" {
		return nil
	}
	req.Body = []byte(text)
	given := req.Header.Get("Content-Type")
	if given == "" {
		if checkJSON(req.Body) == nil {
			req.Header.Set("Content-Type", typeJSON)
		}
		return nil
	}
	media, params, err := mime.ParseMediaType(given)
	if err != nil || (media != typeForm && media != typeMultipart) {
		return nil
	}
	if kindOf(req.Body) != '{' || checkJSON(req.Body) != nil {
		return nil
	}
	if media == typeForm {
		req.Body = encodeForm(req.Body)
		return nil
	}
	body, boundary, err := encodeMultipart(req.Body, params["boundary"])
	if err != nil {
		return s.Errorf("body: %s", err.Error())
	}
	params["boundary"] = boundary
	req.Header.Set("Content-Type", mime.FormatMediaType(media, params))
	req.Body = body
	return nil
}

// eachField gives the fields of a form: an array repeats its name, null is left
// out, objects are JSON.
func eachField(obj json.RawMessage, yield func(name, value string)) {
	eachMember(obj, func(k, v []byte) bool {
		name := unquote(k)
		if kindOf(v) == '[' {
			eachElement(v, func(e []byte) bool {
				if !isNull(e) {
					yield(name, template.Text(e, false))
				}
				return true
			})
		} else if !isNull(v) {
			yield(name, template.Text(v, false))
		}
		return true
	})
}

func encodeForm(obj json.RawMessage) []byte {
	var pairs []string
	eachField(obj, func(name, value string) {
		pairs = append(pairs, escapeQuery(name)+"="+escapeQuery(value))
	})
	return []byte(strings.Join(pairs, "&"))
}

// encodeMultipart writes the fields as parts. Without a boundary of the author's
// it takes one from a hash of the content: a retry sends the same bytes.
func encodeMultipart(obj json.RawMessage, boundary string) (body []byte, used string, err error) {
	if boundary == "" {
		sum := sha256.Sum256(obj)
		boundary = "stepwell-" + hex.EncodeToString(sum[:16])
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if err := w.SetBoundary(boundary); err != nil {
		return nil, "", plainError("the boundary of its Content-Type is not valid")
	}
	eachField(obj, func(name, value string) {
		if err == nil {
			err = w.WriteField(name, value)
		}
	})
	if err == nil {
		err = w.Close()
	}
	return b.Bytes(), boundary, err
}
