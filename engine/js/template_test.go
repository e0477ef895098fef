package js

import (
	"context"
	"strings"
	"testing"

	"stepwell/engine"
	"stepwell/engine/template"
)

// TestTemplatesEndWhereTheyParse splits texts with the real parser.
func TestTemplatesEndWhereTheyParse(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	check := func(source string) (string, error) {
		errs, err := p.Check(context.Background(), []engine.Expression{{Source: source, Params: []string{inputName}}})
		if err != nil || errs[0] == nil {
			return "", err
		}
		return errs[0].Message, nil
	}
	for text, want := range map[string]string{
		"<<(s) => s.a >> 2>>":                    "{(s) => s.a >> 2}",
		"<<(s) => s.a << 2>>":                    "{(s) => s.a << 2}",
		"<<(s) => s.a >>> 2>>/x":                 "{(s) => s.a >>> 2}/x",
		"a<<(s) => s.a > 1>>b":                   "a{(s) => s.a > 1}b",
		"<<(s) => s.a>>>":                        "{(s) => s.a}>",
		"<<(s) => '>>' + s.a>>":                  "{(s) => '>>' + s.a}",
		"<<(s) => '<<' + s.a>>":                  "{(s) => '<<' + s.a}",
		"<<(s) => s.a()>>-<<(s) => s.b()>>":      "{(s) => s.a()}-{(s) => s.b()}",
		`{"q":"<<(s) => s.a + "x">>","n":<<n>>}`: `{"q":"{(s) => s.a + "x"}","n":{n}}`,
		"<<(s) => { return s.a }>> >> <<b>>":     "{(s) => { return s.a }} >> {b}",
		"x << y":                                 "x << y",
		"<<(s) => s.a +>>":                       "the template at 1:1 does not parse: SyntaxError: Unexpected end of input at 1:13",
	} {
		parts, err := template.Parse(text, check)
		var b strings.Builder
		for _, part := range parts {
			if part.IsExpr {
				b.WriteString("{" + part.Expr + "}")
			} else {
				b.WriteString(part.Text)
			}
		}
		if err != nil {
			b.WriteString(err.Error())
		}
		if b.String() != want {
			t.Errorf("%s\n is %s\nnot %s", text, b.String(), want)
		}
	}
}
