package api

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strings"

	"stepwell"
)

// formFields are the fields of a form, by name.
type formFields struct {
	values map[string][]string
	read   int
}

var errManyFields = stepwell.Invalid("too_many_fields", "The form has too many fields: at most 10,000 are taken")

func (f *formFields) add(name, value string) error {
	if f.read++; f.read > maxFields {
		return errManyFields
	}
	if f.values == nil {
		f.values = map[string][]string{}
	}
	f.values[name] = append(f.values[name], value)
	return nil
}

// object is the form as a JSON object: texts, of a repeated name an array of them.
func (f *formFields) object() (json.RawMessage, error) {
	out := make(map[string]any, len(f.values))
	for name, values := range f.values {
		if out[name] = values; len(values) == 1 {
			out[name] = values[0]
		}
	}
	return encodeValue(out)
}

// readForm reads an urlencoded form as browsers do: nothing is malformed, and a percent
// sign that begins no escape stands for itself.
func readForm(body []byte) (*formFields, error) {
	f := &formFields{}
	for pair := range strings.SplitSeq(string(body), "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		if err := f.add(formText(name), formText(value)); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func formText(s string) string {
	if decoded, err := url.QueryUnescape(s); err == nil {
		return decoded
	}
	return strings.ReplaceAll(s, "+", " ")
}

var errMultipart = stepwell.Invalid("malformed_body", "The request body is not a whole multipart form with the boundary of its Content-Type")

// readMultipart reads the fields of a multipart form; files are left out.
func readMultipart(body []byte, boundary string) (*formFields, error) {
	if boundary == "" {
		return nil, errMultipart
	}
	f := &formFields{}
	parts := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := parts.NextPart()
		if err == io.EOF { // one that is wrapped says that the last boundary is missing
			return f, nil
		}
		if err != nil {
			return nil, errMultipart
		}
		_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if _, isFile := params["filename"]; isFile || part.FormName() == "" {
			continue
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return nil, errMultipart
		}
		if err := f.add(part.FormName(), string(value)); err != nil {
			return nil, err
		}
	}
}
