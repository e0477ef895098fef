package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"stepwell"
	"stepwell/engine"
)

var errBroken = errors.New("the evaluator is away")

// brokenEvaluator cannot work.
type brokenEvaluator struct{}

func (brokenEvaluator) Evaluate(context.Context, engine.EvalRequest) ([]engine.EvalResult, error) {
	return nil, errBroken
}

func (brokenEvaluator) Check(context.Context, []engine.Expression) ([]*engine.ExpressionError, error) {
	return nil, errBroken
}

func (brokenEvaluator) Reads(context.Context, []engine.Expression, string) ([]bool, error) {
	return nil, errBroken
}

// brokenScope cannot be read.
type brokenScope struct{}

func (brokenScope) Keys() []string { return []string{"a"} }
func (brokenScope) Get(context.Context, string) (json.RawMessage, bool, error) {
	return nil, false, errBroken
}

func compileStep(t testing.TB, s stepwell.Step) *engine.Step {
	t.Helper()
	step, err := engine.CompileStep(t.Context(), pool, &stepwell.Tool{Steps: []stepwell.Step{s}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return step
}

// What is not the step's fault is no StepError: the caller tries again.
func TestForeignErrorsStayForeign(t *testing.T) {
	t.Parallel()
	s := compileStep(t, stepwell.Step{ID: "s", Config: stepwell.StepConfig{URL: "https://x/<<a>>/<<(s) => s.b + 1>>"}})
	scope := engine.MapScope{"a": json.RawMessage("1")}
	var step *engine.StepError
	if _, err := s.Build(t.Context(), brokenEvaluator{}, scope, nil); !errors.Is(err, errBroken) || errors.As(err, &step) {
		t.Errorf("evaluator: %v", err)
	}
	if _, err := s.Build(t.Context(), pool, brokenScope{}, nil); !errors.Is(err, errBroken) || errors.As(err, &step) {
		t.Errorf("scope: %v", err)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ contentType, body, want string }{
		"json":            {"application/json", " {\"a\":1.0} \n", `{"a":1.0}`},
		"json suffix":     {"application/vnd.api+json; charset=utf-8", `[1]`, `[1]`},
		"upper case":      {"Application/JSON", `1`, `1`},
		"byte order mark": {"application/json", "\xef\xbb\xbf[1]", `[1]`},
		"html":            {"text/html", `<p>"x"</p>`, `"<p>\"x\"</p>"`},
		"latin 1":         {"text/plain; charset=ISO-8859-1", "caf\xe9", `"café"`},
		"json in latin 1": {"application/json; charset=iso-8859-1", "[\"\xe9\"]", `["é"]`},
		"unknown charset": {"text/plain; charset=x-none", "abc", `"abc"`},
		"no type":         {"", `{"a":1}`, `{"a":1}`},
		"plain number":    {"text/plain", `0123`, `"0123"`},
		"broken header":   {"application/json;;=", `[1]`, `[1]`},
		"space":           {"application/json", " \n", `null`},
		"broken":          {"application/json", `{`, `!says that it is JSON, and is not valid JSON`},
		"deep":            {"application/json", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), `!more than 1000 levels`},
		"deep untyped":    {"", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), `!more than 1000 levels`},
		"image":           {"image/png", "\x89PNG", `!is a file`},
		"bytes":           {"", "\xff\xfe\x00", `!is a file`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if c.contentType != "" {
				h.Set("Content-Type", c.contentType)
			}
			got, err := engine.Decode(&engine.Answer{Status: 200, Header: h, Body: []byte(c.body)})
			if want, fails := strings.CutPrefix(c.want, "!"); fails {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s %v, want %s", got, err, want)
				}
			} else if err != nil || string(got) != c.want {
				t.Errorf("%s %v, want %s", got, err, c.want)
			}
		})
	}
}

// A secret that the cut of an answer would halve is masked whole.
func TestStatusErrorMasksBeforeItCuts(t *testing.T) {
	t.Parallel()
	s := compileStep(t, stepwell.Step{ID: "s", Config: stepwell.StepConfig{URL: "https://x"}})
	const secret = "hunter2hunter2"
	err := s.CheckStatus(&engine.Answer{
		Status: 500, URL: "https://u:p@x.test/" + secret + "/a?k=v#f", Body: []byte(strings.Repeat("é", 493) + secret),
		Mask: func(s string) string { return strings.ReplaceAll(s, secret, "[masked]") },
	})
	if got := err.Error(); !strings.Contains(got, "Step 1 (s): GET https://x.test/[masked]/a answered 500 Internal Server Error: é") || strings.Contains(got, "hunter") || !strings.HasSuffix(got, "é[masked…") {
		t.Error(got)
	}
	if err := s.CheckStatus(&engine.Answer{Status: 204}); err != nil {
		t.Error(err)
	}
}

// Interpret knows the page size even when another process built the request.
func TestInterpretWithoutBuild(t *testing.T) {
	t.Parallel()
	s := compileStep(t, stepwell.Step{ID: "s", Config: stepwell.StepConfig{URL: "https://x", Pagination: &stepwell.Pagination{Type: "offsetBased", PageSize: json.RawMessage("3")}}})
	a := &engine.Answer{Status: 200, Body: []byte(`[1,2]`), URL: "https://x"}
	out, err := s.Interpret(t.Context(), pool, engine.MapScope{}, &engine.PageState{}, nil, a)
	if err != nil || out.EndedBy != engine.EndedByShortPage || out.Next.Offset != 3 || out.Next.Page != 2 {
		t.Errorf("%+v %v", out, err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	if got := engine.IdempotencyKey("r", "s", 0, 1); got != "r/s/0/1" {
		t.Error(got)
	}
	if got := engine.IdempotencyKey(strings.Repeat("r", 200), strings.Repeat("s", 50), 0, 1); len(got) != 255 {
		t.Error(len(got))
	}
	got := engine.IdempotencyKey(strings.Repeat("r", 200), strings.Repeat("s", 51), 0, 1)
	if len(got) != 64 || got != engine.IdempotencyKey(strings.Repeat("r", 200), strings.Repeat("s", 51), 0, 1) {
		t.Error(got)
	}
}

func TestSchemaProblems(t *testing.T) {
	t.Parallel()
	s, err := engine.CompileSchema(json.RawMessage(`{"type":"object","required":["a","b"],"additionalProperties":false,"properties":{
		"a":{"type":"integer","minimum":3},"b":{"enum":["x","y"]},"l":{"type":"array","items":{"type":"object","required":["id"]},"maxItems":2},
		"s":{"type":"string","pattern":"^a","minLength":2},"c":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{
		`{"a":3,"b":"x"}`:                                "",
		`{"a":3.0,"b":"x","c":null}`:                     "",
		`{"a":12345678901234567890123,"b":"y"}`:          "",
		`{"b":"x"}`:                                      "a: is required",
		`{"a":2,"b":"secret"}`:                           `a: must be at least 3; b: must be one of ["x","y"]`,
		`{"a":"secret","b":"x","l":[{"id":1},{}],"z":1}`: "a: must be of type integer, and is string; l[1].id: is required; z: is not allowed",
		`{"a":3,"b":"x","s":"secret","c":5}`:             "c: matches none of the allowed schemas ('anyOf'); s: must match the pattern ^a",
		`{"a":1e999999,"b":"x"}`:                         "",
		`[]`:                                             "must be of type object, and is array",
		`{`:                                              "not valid JSON",
	} {
		var got []string
		for _, p := range s.Validate(json.RawMessage(data)) {
			got = append(got, p.String())
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%s: %v, want %s", data, got, want)
		}
	}
}

func TestApplyDefaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ schema, inputs, want string }{
		"nothing missing": {`{"properties":{"a":{"default":1}}}`, ` {"a" : null} `, ` {"a" : null} `},
		"no inputs":       {`{"properties":{"a":{"default":1.50},"b":{}}}`, ``, `{"a":1.50}`},
		"kept in order":   {`{"properties":{"m":{"default":"x"},"b":{"default":[1]}}}`, `{"z":1,"a":2}`, `{"z":1,"a":2,"b":[1],"m":"x"}`},
		"nested":          {`{"properties":{"o":{"properties":{"d":{"default":true}}},"n":{"properties":{"d":{"default":1}}}}}`, `{"o":{}}`, `{"o":{"d":true}}`},
		"items":           {`{"properties":{"l":{"items":{"properties":{"d":{"default":0}}}}}}`, `{"l":[{},{"d":1},3]}`, `{"l":[{"d":0},{"d":1},3]}`},
		"ref":             {`{"properties":{"o":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"default":{"x":1}}}}`, `{}`, `{"o":{"x":1}}`},
		"all of":          {`{"allOf":[{"properties":{"a":{"default":1}}},{"properties":{"b":{"default":2}}}]}`, `{}`, `{"a":1,"b":2}`},
		"recursive":       {`{"properties":{"next":{"$ref":"#"},"d":{"default":1}}}`, `{"next":{"next":{}}}`, `{"next":{"next":{"d":1},"d":1},"d":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := engine.CompileSchema(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.ApplyDefaults(json.RawMessage(c.inputs)); err != nil || string(got) != c.want {
				t.Errorf("%s %v, want %s", got, err, c.want)
			}
		})
	}
}

// A schema that doubles the work with every level ends in an error, not in a
// worker that is busy for ever.
func TestIntricateDefaults(t *testing.T) {
	t.Parallel()
	s, err := engine.CompileSchema(json.RawMessage(`{"allOf":[{"properties":{"x":{"$ref":"#"}}},{"properties":{"x":{"$ref":"#"}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat(`{"x":`, 100) + "1" + strings.Repeat("}", 100)
	if _, err := s.ApplyDefaults(json.RawMessage(deep)); err == nil || !strings.Contains(err.Error(), "too intricate") {
		t.Error(err)
	}
}
