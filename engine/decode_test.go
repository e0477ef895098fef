package engine_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"stepwell/engine"
)

func decodeBody(contentType string, body string) (string, error) {
	a := &engine.Answer{Status: 200, Header: http.Header{}, Body: []byte(body), URL: "https://api.test/x"}
	if contentType != "" {
		a.Header.Set("Content-Type", contentType)
	}
	data, err := engine.Decode(a)
	return string(data), err
}

func gzipped(t *testing.T, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Name = name
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// zipped packs pairs of name and content.
func zipped(t *testing.T, pairs ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		f, err := w.Create(pairs[i])
		if err == nil {
			_, err = f.Write([]byte(pairs[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDecodeFormats(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<20)
	for _, c := range []struct{ name, media, body, want string }{
		{"ndjson", "application/x-ndjson", "{\"a\":12345678901234567890}\r\n\n[2]\n", `[{"a":12345678901234567890},[2]]`},
		{"ndjson by content", "text/plain", "{\"a\":1}\n{\"a\":2}", `[{"a":1},{"a":2}]`},
		{"no ndjson by content", "text/plain", "{\"a\":1}\n{\"a\":", `"{\"a\":1}\n{\"a\":"`},
		{"ndjson of one long line", "application/jsonl", `{"a":"` + long + `"}`, `[{"a":"` + long + `"}]`},

		{"csv", "text/csv; header=present", "id,name\r\n1,\"a, \"\"b\"\"\nc\"\r\n2,\r\n", `[{"id":"1","name":"a, \"b\"\nc"},{"id":"2","name":""}]`},
		{"csv by content", "", "id;name\n1;x\n", `[{"id":"1","name":"x"}]`},
		{"csv of odd names", "text/csv", "a,,a,a_2\n1,2,3,4\n", `[{"a":"1","column_2":"2","a_2":"3","a_2_2":"4"}]`},
		{"csv of a header alone", "text/csv", "a,b\n", `[]`},
		{"csv with a mark", "text/csv", "\xef\xbb\xbfa,b\n1,2\n", `[{"a":"1","b":"2"}]`},
		{"csv of utf-16", "text/csv", "\xff\xfea\x00,\x00b\x00\n\x001\x00,\x00\xe4\x00\n\x00", `[{"a":"1","b":"ä"}]`},
		{"csv of one long line", "text/csv", "a\n" + long, `[{"a":"` + long + `"}]`},
		{"tsv", "text/tab-separated-values", "a\tb\n1,5\t2\n", `[{"a":"1,5","b":"2"}]`},
		{"prose", "text/plain", "Hello, world\nand, well, more\n", `"Hello, world\nand, well, more\n"`},
		{"unequal rows", "", "a,b\n1,2,3\n", `"a,b\n1,2,3\n"`},

		{"xml", "application/atom+xml", `<?xml version="1.0"?><!DOCTYPE r SYSTEM "x.dtd"><r id="7"><!-- c --><a>1</a><b/><a x="&lt;"> 2 </a><n:c>t<![CDATA[<&>]]></n:c>  </r>`,
			`{"r":{"@id":"7","a":["1",{"@x":"<","#text":"2"}],"b":"","n:c":"t<&>"}}`},
		{"xml with text between", "text/xml", "<p>one <b>two</b> three</p>", `{"p":{"b":"two","#text":"one  three"}}`},
		{"xml by content", "", "\n<list><i>1</i></list>", `{"list":{"i":"1"}}`},
		{"xml of latin-1", "application/xml", "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>", `{"a":"ä"}`},
		{"xml declared and converted", "application/xml; charset=ISO-8859-1", "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>", `{"a":"ä"}`},
		{"xml of one long line", "application/xml", "<a>" + long + "</a>", `{"a":"` + long + `"}`},
		{"html", "text/html", "<p>&nbsp;</p>", `"<p>&nbsp;</p>"`},
		{"xhtml", "application/xhtml+xml", "<html>&nbsp;</html>", `"<html>&nbsp;</html>"`},
		{"html by content", "text/plain", "<!doctype html><html></html>", `"<!doctype html><html></html>"`},

		{"yaml", "application/yaml", "a: 12345678901234567890\nb: [0x10, yes, true, ~, .inf, 1.50, 2020-01-02]\nc: &x {d: e}\nf: *x\ng: {<<: *x, h: 1}\n",
			`{"a":12345678901234567890,"b":[16,"yes",true,null,".inf",1.50,"2020-01-02"],"c":{"d":"e"},"f":{"d":"e"},"g":{"h":1,"d":"e"}}`},
		{"yaml documents", "text/yaml", "---\na: 1\n---\nb\n", `[{"a":1},"b"]`},
		{"yaml by content", "text/plain", "---\na: 1\n", `{"a":1}`},
		{"text with a colon", "text/plain", "Note: this", `"Note: this"`},

		{"gzip", "application/gzip", gzipped(t, "", `{"a":1}`), `{"a":1}`},
		{"gzip by content", "", gzipped(t, "t.csv", "a\n1\n"), `[{"a":"1"}]`},
		{"zip of one", "application/zip", zipped(t, "d/", "", "d/x.json", "[1]"), `[1]`},
		{"zip of several", "", zipped(t, "../a.csv", "x\n1\n", "b.txt", "hi", "c.json.gz", gzipped(t, "", "{}")), `{"../a.csv":[{"x":"1"}],"b.txt":"hi","c.json.gz":{}}`},
		{"empty", "application/zip", "", `null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := decodeBody(c.media, c.body)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("%.200s\nwant %.200s", got, c.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	good := zipped(t, "a.json", strings.Repeat(`{"a":1} `, 1000))
	nested := "[]"
	for range 4 {
		nested = gzipped(t, "x.gz", nested)
	}
	for _, c := range []struct{ name, media, body, want string }{
		{"ndjson", "application/x-ndjson", "{}\n{", "not valid NDJSON: line 2"},
		{"bare quote", "text/csv", "a,b\n1,5\" wide\n", "line 2: a quote stands in a field"},
		{"open quote", "text/csv", "a,b\n1,\"2\n3,4\n", "a quoted field does not end"},
		{"unequal rows", "text/csv", "a,b\n1,2\n3\n", "line 3: it has another number of fields"},
		{"entity", "application/xml", "<a>&nbsp;</a>", "line 1: it has an entity"},
		{"entities", "application/xml", `<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY d "&b;&b;">]><a>&d;</a>`, "a DTD of its own"},
		{"outer entity", "text/xml", `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>`, "a DTD of its own"},
		{"open element", "application/xml", "<a><b></b>", "<a> is not closed"},
		{"crossed elements", "application/xml", "<a><b></a></b>", "</a> closes no open element"},
		{"two roots", "application/xml", "<a/><b/>", "more than one root"},
		{"cut xml", "application/xml", "<a><b x=", "it ends too early"},
		{"deep xml", "application/xml", strings.Repeat("<a>", 1001) + strings.Repeat("</a>", 1001), "more than 1000 levels"},
		{"many elements", "application/xml", "<a>" + strings.Repeat("<b/>", 1_000_001) + "</a>", "more than 1000000 elements"},
		{"yaml", "application/yaml", "a: [1\nb: 2", "not valid YAML"},
		{"yaml bomb", "application/yaml", yamlBomb(), "more than 100 MiB"},
		{"yaml in itself", "application/yaml", "a: &a [*a]", "an anchor that holds itself"},
		{"equal keys", "application/yaml", "a: 1\na: 2", "two keys are equal"},
		{"many values", "application/yaml", "[" + strings.Repeat("1,", 1_000_001) + "]", "more than 1000000 values"},
		{"deep yaml", "application/yaml", strings.Repeat("[", 1001) + strings.Repeat("]", 1001), "more than 1000 levels"},
		{"cut gzip", "application/gzip", gzipped(t, "", long(1<<20))[:500], "not valid gzip"},
		{"no gzip", "application/gzip", "hello", "not valid gzip"},
		{"gzip bomb", "", gzipped(t, "", strings.Repeat("\x00", 101<<20)), "more than 100 MiB"},
		{"cut zip", "application/zip", good[:len(good)-30], "not a valid zip archive"},
		{"damaged zip", "application/zip", strings.Replace(good, good[50:60], "0123456789", 1), "not a valid zip archive"},
		{"zip bomb", "", zipped(t, "a", strings.Repeat("a", 60<<20), "b", strings.Repeat("b", 60<<20)), "more than 100 MiB"},
		{"equal names", "application/zip", zipped(t, "a", "1", "a", "2"), "two files of one name"},
		{"empty zip", "application/zip", zipped(t, "d/", ""), "without a file"},
		{"nested archives", "application/gzip", nested, "in an archive too often"},
		{"broken content", "application/zip", zipped(t, "a.json", "{"), "not valid JSON"},
		{"wide table", "text/csv", long(1<<20) + ",b\n" + strings.Repeat(",\n", 200), "more than 100 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := decodeBody(c.media, c.body)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%.100s, error %.300v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := decodeBody("application/zip", zipped(t, "a.json", "1", "b.bin", "\xff\xfe\xfd")); !errors.Is(err, engine.ErrFile) {
		t.Error("an archive with a binary file is a file: ", err)
	}
	if _, err := decodeBody("", "\x89PNG\r\n\x1a\n\x00"); !errors.Is(err, engine.ErrFile) {
		t.Error("an image is a file: ", err)
	}
}

// A bomb takes no memory, and what is packed not much more than it has bytes.
func TestDecodeArchiveMemory(t *testing.T) {
	big := `["` + strings.Repeat("x", 16<<20) + `"]`
	for _, c := range []struct {
		name, body string
		most       uint64 // MiB
	}{
		{"gzip bomb", gzipped(t, "", strings.Repeat("\x00", 101<<20)), 8},
		{"zip bomb", zipped(t, "a", strings.Repeat("a", 101<<20)), 8},
		{"gzip", gzipped(t, "a.json", big), 40},
		{"zip", zipped(t, "a.json", big), 40},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeBody("", c.body)
		runtime.ReadMemStats(&after)
		if bomb := strings.HasSuffix(c.name, "bomb"); bomb != (err != nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > c.most {
			t.Errorf("%s: %d MiB were allocated", c.name, used)
		}
	}
}

func long(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprint(&b, i*7919%1000003, " ")
	}
	return b.String()
}

// yamlBomb is nine levels of ten aliases each.
func yamlBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	return b.String()
}

func FuzzDecode(f *testing.F) {
	f.Add("text/csv", []byte("a,b\n1,2"))
	f.Add("application/xml", []byte("<a b='c'>d</a>"))
	f.Add("application/yaml", []byte("a: &x [1]\nb: *x"))
	f.Add("", []byte("PK\x03\x04"))
	f.Fuzz(func(t *testing.T, media string, body []byte) {
		data, err := decodeBody(media, string(body))
		if err == nil && !json.Valid([]byte(data)) {
			t.Errorf("decoded to what is no JSON: %q", data)
		}
	})
}
