package secret

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func TestMaskEveryForm(t *testing.T) {
	t.Parallel()
	const value = `p@ss/w?rd "ü<&>+~`
	m := NewMasker([]string{value})
	quoted, _ := json.Marshal(value)
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + value))
	for name, text := range map[string]string{
		"plain":      value,
		"query":      url.QueryEscape(value),
		"path":       url.PathEscape(value),
		"lower":      strings.ToLower(url.QueryEscape(value)),
		"component":  "p%40ss%2Fw%3Frd%20%22%C3%BC%3C%26%3E%2B~",
		"json":       strings.Trim(string(quoted), `"`),
		"json plain": `p@ss/w?rd \"ü<&>+~`,
		"json php":   `p@ss\/w?rd \"ü<&>+~`,
		"json ascii": `p@ss/w?rd \"\u00fc<&>+~`,
		"base64":     base64.StdEncoding.EncodeToString([]byte(value)),
		"raw":        base64.RawStdEncoding.EncodeToString([]byte(value)),
		"url":        base64.URLEncoding.EncodeToString([]byte(value)),
		"raw url":    base64.RawURLEncoding.EncodeToString([]byte(value)),
	} {
		if got := m.Mask("<" + text + ">"); got != "<[masked]>" {
			t.Errorf("%s: %q becomes %q", name, text, got)
		}
	}
	for before := range 5 {
		text := base64.StdEncoding.EncodeToString([]byte("12345"[:before] + value + "tail"))
		if got := m.Mask(text); !strings.Contains(got, Masked) || len(got) > 8+len(Masked)+8 {
			t.Errorf("inside base64: %q becomes %q", text, got)
		}
	}
	if got := m.Mask("Basic " + basic); strings.Contains(got, basic[10:20]) {
		t.Errorf("basic: %q", got)
	}
}

func TestMaskOverlaps(t *testing.T) {
	t.Parallel()
	m := NewMasker([]string{"abcd", "abcdef", "defghi", "aaaa", "abc", "", "abcd"})
	for text, want := range map[string]string{
		"":                     "",
		"abc":                  "abc", // too short to be masked
		"xabcdefy":             "x[masked]y",
		"abcdefghi":            "[masked]",
		"abcd abcd":            "[masked] [masked]",
		"aaaaaaa.":             "[masked].",
		"abcddefghi":           "[masked]",
		"nothing to see, here": "nothing to see, here",
	} {
		if got := m.Mask(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got := NewMasker([]string{"a text full of one secret stays cheap", "aaaa"}).Mask(strings.Repeat("a", 1<<20)); got != Masked {
		t.Errorf("%d bytes left", len(got))
	}
}

func TestAnEmptyMaskerMasksNothing(t *testing.T) {
	t.Parallel()
	var none *Masker
	if none.Mask("x") != "x" || new(Masker).Mask("x") != "x" {
		t.Error("an empty masker masks")
	}
}

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                   "",
		"tool:orders":                        "tool:orders",
		"https://h/p":                        "https://h/p",
		"https://h/p?a=1&b=%20#x":            "https://h/p?a=1&b=%20#x",
		"https://u:p@h:1/p?q=a@b":            "https://…@h:1/p?q=a@b",
		"https://u:p@ss@h":                   "https://…@h",
		"https://h/@me?x=//a@b":              "https://h/@me?x=//a@b",
		"https://h?token=abc":                "https://h?token=…",
		"https://h/?a=1&TOKEN=abc&b=2":       "https://h/?a=1&TOKEN=…&b=2",
		"https://h/?%74oken=a%26b&x":         "https://h/?%74oken=…&x",
		"https://h/?key=a;secret=b&c;key=":   "https://h/?key=…;secret=…&c;key=",
		"https://h/?token=a&token=b":         "https://h/?token=…&token=…",
		"https://h/?token=a?b=c":             "https://h/?token=…",
		"https://h/#access_token=a&state=b":  "https://h/#access_token=…&state=b",
		"https://h/?api_key=a&password=b":    "https://h/?api_key=…&password=…",
		"https://h/?signature=a%zz&monkey=1": "https://h/?signature=…&monkey=1",
		"://u:p@h\x7f?token=a":               "://…@h\x7f?token=…",
		"/relative?token=a&":                 "/relative?token=…&",
	} {
		if got := RedactURL(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}
