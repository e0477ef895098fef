package template

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
)

func load(t testing.TB, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type parseCase struct {
	Name   string
	Text   string
	Parses []string // sources that parse, beside plain ones
	Parts  []string // expressions begin with "="
	Error  string
}

// show writes parts as a parseCase does.
func show(parts []Part) []string {
	shown := []string{}
	for _, p := range parts {
		if p.IsExpr {
			shown = append(shown, "="+p.Expr)
		} else {
			shown = append(shown, p.Text)
		}
	}
	return shown
}

func TestParse(t *testing.T) {
	t.Parallel()
	var cases []parseCase
	load(t, "parse.json", &cases)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			parts, err := Parse(c.Text, func(source string) (string, error) {
				if slices.Contains(c.Parses, source) {
					return "", nil
				}
				return "no", nil
			})
			if c.Error != "" {
				var se *SyntaxError
				if !errors.As(err, &se) || err.Error() != c.Error {
					t.Fatalf("error is %v, want %s", err, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := show(parts); !slices.Equal(got, c.Parts) {
				t.Errorf("parts are %q, want %q", got, c.Parts)
			}
			for _, p := range parts {
				if !strings.HasPrefix(c.Text[p.Offset:], p.Expr+p.Text) {
					t.Errorf("offset %d of %+v is wrong", p.Offset, p)
				}
			}
		})
	}
}

func TestParseAsksWithinBounds(t *testing.T) {
	t.Parallel()
	asked := 0
	_, err := Parse("<<a b"+strings.Repeat(">>", 10_000), func(string) (string, error) {
		asked++
		return "no", nil
	})
	if err == nil || asked > maxAsked {
		t.Errorf("asked %d times, error %v", asked, err)
	}

	asked = 0
	if _, err := Parse("<<a>> <<(s) => s.b>> <<f()>>", func(string) (string, error) { asked++; return "", nil }); err != nil || asked != 1 {
		t.Errorf("asked %d times, want once: plain expressions need no question (%v)", asked, err)
	}

	trouble := errors.New("the evaluator is away")
	if _, err := Parse("<<f()>>", func(string) (string, error) { return "", trouble }); !errors.Is(err, trouble) {
		t.Errorf("error is %v, want the checker's own", err)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Source string
		Bare   string
		Path   []string
	}
	load(t, "plain.json", &cases)
	for _, c := range cases {
		path, ok := PlainPath(c.Source)
		if ok != (c.Path != nil) || ok && !slices.Equal(path, c.Path) {
			t.Errorf("PlainPath(%q) is %q, %v; want %q", c.Source, path, ok, c.Path)
		}
		if name, ok := Bare(c.Source); ok != (c.Bare != "") || name != c.Bare {
			t.Errorf("Bare(%q) is %q, %v; want %q", c.Source, name, ok, c.Bare)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value     string
		undefined bool
		want      string
	}{
		{`"a\u00e4\"b"`, false, `aä"b`},
		{`""`, false, ``},
		{`null`, false, `null`},
		{``, false, `null`},
		{``, true, `null`},
		{`true`, false, `true`},
		{`12345678901234567890.10`, false, `12345678901234567890.10`},
		{` {"a" : [1, "<&>"]} `, false, `{"a":[1,"<&>"]}`},
		{"[1,\n2]", false, `[1,2]`},
	} {
		if got := Text(json.RawMessage(c.value), c.undefined); got != c.want {
			t.Errorf("Text(%s) is %q, want %q", c.value, got, c.want)
		}
	}
}

// FuzzParse checks that a split loses nothing: the parts, written back, are the text.
func FuzzParse(f *testing.F) {
	var cases []parseCase
	load(f, "parse.json", &cases)
	for _, c := range cases {
		f.Add(c.Text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parts, err := Parse(text, func(source string) (string, error) {
			if len(source)%3 == 0 {
				return "no", nil
			}
			return "", nil
		})
		var se *SyntaxError
		if errors.As(err, &se) {
			if !strings.HasPrefix(text[se.Offset:], opening) {
				t.Fatalf("the error's offset %d is at no template of %q", se.Offset, text)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var back strings.Builder
		for i, p := range parts {
			if p.IsExpr {
				back.WriteString(opening + p.Expr + closing)
				continue
			}
			if p.Text == "" || i > 0 && !parts[i-1].IsExpr {
				t.Fatalf("%q has an empty or a split literal: %+v", text, parts)
			}
			back.WriteString(p.Text)
		}
		if back.String() != text {
			t.Fatalf("%q came back as %q", text, back.String())
		}
	})
}

func FuzzPlainPath(f *testing.F) {
	f.Add("(s) => s['a'].b[0]")
	f.Fuzz(func(t *testing.T, source string) {
		path, ok := PlainPath(source)
		if ok && len(path) == 0 {
			t.Fatalf("%q has an empty path", source)
		}
	})
}
