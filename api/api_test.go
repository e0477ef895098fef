package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"go.yaml.in/yaml/v3"
)

// document is openapi.yaml, made strict: an answer with a field that is not in it is
// wrong.
type document struct {
	*openapi3.T
	router routers.Router
}

func loadDocument(t *testing.T) *document {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPIDocument)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background(), openapi3.EnableSchemaPatternValidation()); err != nil {
		t.Fatal(err)
	}
	for _, s := range doc.Components.Schemas {
		strict(s.Value)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &document{doc, router}
}

func strict(s *openapi3.Schema) {
	if len(s.Properties) > 0 {
		no := false
		s.AdditionalProperties.Has = &no
	}
	for _, p := range s.Properties {
		if p.Ref == "" {
			strict(p.Value)
		}
	}
}

// check compares an answer with the document. A path or method that is not in it is
// compared with the schema of errors only.
func (d *document) check(t *testing.T, method, path string, res *http.Response, body []byte) {
	t.Helper()
	if res.Header.Get("X-Trace-Id") == "" {
		t.Error("no X-Trace-Id")
	}
	bare, _, _ := strings.Cut(path, "?")
	req := httptest.NewRequest("GET", "/v1/health", nil)
	req.URL.Path, req.Method = strings.TrimSuffix(bare, "/"), method
	route, vars, err := d.router.FindRoute(req)
	if err != nil {
		if res.StatusCode != 404 && res.StatusCode != 405 {
			t.Errorf("status %d of a path that is not in openapi.yaml", res.StatusCode)
		}
		op := d.Paths.Value("/me").Get
		route = &routers.Route{Spec: d.T, Operation: op}
	} else if route.Operation.Responses.Status(res.StatusCode) == nil && res.StatusCode < 500 && res.StatusCode != 405 {
		t.Errorf("status %d is not in openapi.yaml", res.StatusCode)
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: vars, Route: route},
		Status:                 res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true, ExcludeResponseBody: strings.HasSuffix(bare, ".yaml") || res.Header.Get("Content-Type") == "text/event-stream" || res.Header.Get("Content-Disposition") != ""},
	})
	if err != nil {
		t.Errorf("answer %d %s: %v", res.StatusCode, body, err)
	}
}

// ask sends one request through the handler.
func ask(h http.Handler, req *http.Request) (*http.Response, []byte) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	res := w.Result()
	body, _ := io.ReadAll(res.Body)
	return res, body
}

// newRequest makes a request as it comes from the network: the path is parsed, not
// cleaned.
func newRequest(t *testing.T, method, target string, body io.Reader) *http.Request {
	t.Helper()
	req := httptest.NewRequest("GET", target, body)
	req.Method = method
	return req
}

type badCase struct {
	Name, Method, Path, Body, Bytes, Code, Message, Allow string

	Key     *string
	Headers map[string]string
	Nested  int
	Padding int
	Chunked bool
	Status  int
}

func (c badCase) target() string {
	if strings.HasPrefix(c.Path, "//") {
		return c.Path[1:]
	}
	return prefix + c.Path
}

func (c badCase) body(t *testing.T) []byte {
	t.Helper()
	switch {
	case c.Bytes != "":
		b, err := base64.StdEncoding.DecodeString(c.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return b
	case c.Nested > 0:
		return []byte(`{"inputs":{"a":` + strings.Repeat("[", c.Nested) + strings.Repeat("]", c.Nested) + `}}`)
	case c.Padding > 0:
		return []byte(`{"name":"` + strings.Repeat("a", c.Padding) + `"}`)
	default:
		return []byte(c.Body)
	}
}

func TestBadInputs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/bad.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []badCase
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&cases); err != nil {
		t.Fatal(err)
	}
	doc := loadDocument(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			h := newTestAPI(m, func(c *Config) { c.MaxBody = 4 << 20 })
			var reader io.Reader = bytes.NewReader(c.body(t))
			if c.Chunked {
				reader = io.MultiReader(reader) // hides its length
			}
			req := newRequest(t, c.Method, c.target(), reader)
			switch {
			case c.Key == nil:
				req.Header.Set("Authorization", "Bearer admin-key")
			case *c.Key != "":
				req.Header.Set("Authorization", "Bearer "+*c.Key)
			}
			for name, v := range c.Headers {
				req.Header.Set(name, v)
			}
			res, body := ask(h, req)
			if res.StatusCode != c.Status || !strings.Contains(string(body), `"code":"`+c.Code+`"`) || !strings.Contains(string(body), c.Message) {
				t.Errorf("got %d %s, want %d %s %q", res.StatusCode, body, c.Status, c.Code, c.Message)
			}
			if got := res.Header.Get("Allow"); got != c.Allow {
				t.Errorf("Allow is %q, want %q", got, c.Allow)
			}
			if got := res.Header.Get("WWW-Authenticate"); (got == "Bearer") != (c.Status == 401) {
				t.Errorf("WWW-Authenticate is %q", got)
			}
			doc.check(t, c.Method, c.target(), res, body)
			if n := h.bodyMemory.Load() + h.inFlight.Load() + h.waiting.Load(); n != 0 {
				t.Errorf("%d of the limits is still taken", n)
			}
		})
	}
}

// TestDocumentHasRoutes compares the table of routes with openapi.yaml.
func TestDocumentHasRoutes(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	inTable := map[string]bool{}
	for _, rt := range newTestAPI(newMemory(), nil).routes() {
		name := rt.method + " " + rt.path
		inTable[name] = true
		item := doc.Paths.Value(rt.path)
		if item == nil || item.GetOperation(rt.method) == nil {
			t.Errorf("%s is not in openapi.yaml", name)
			continue
		}
		op := item.GetOperation(rt.method)
		if op.Responses.Status(rt.success) == nil {
			t.Errorf("%s: success %d is not in openapi.yaml", name, rt.success)
		}
		if (op.RequestBody != nil) != (rt.body != noBody) || op.RequestBody != nil && op.RequestBody.Value.Required != (rt.body == requiredBody) {
			t.Errorf("%s: the request body differs", name)
		}
		if (op.Security != nil && len(*op.Security) == 0) != (rt.needs == open) {
			t.Errorf("%s: whether a key is needed differs", name)
		}
		if (op.Responses.Status(403) != nil) != (rt.needs > known) {
			t.Errorf("%s: whether 403 is possible differs", name)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !inTable[method+" "+path] {
				t.Errorf("%s %s is in openapi.yaml only", method, path)
			}
		}
	}
}
