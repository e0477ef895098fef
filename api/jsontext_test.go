package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	cases := []struct {
		in, out string // out empty: in is refused
		kind    faultKind
	}{
		{in: `{"a":1,"b":2}`, out: `{"a":1,"b":2}`},
		{in: ` { } `, out: ` { } `},
		{in: `{"a":1,"a":2}`, out: `{"a":2}`},
		{in: `{ "a" : {"x":1} , "b":1, "a" : 2 }`, out: `{ "b":1, "a" : 2 }`},
		{in: `{"a":1,"\u0061":2,"a":3}`, out: `{"a":3}`},
		{in: `{"a":{"b":1,"b":2},"a":{"b":3,"b":4}}`, out: `{"a":{"b":4}}`},
		{in: `[{"a":1,"a":2},{"a":3}]`, out: `[{"a":2},{"a":3}]`},
		{in: `{"a":1,"A":2}`, out: `{"a":1,"A":2}`},
		{in: `"\ud83d\ude00 \\u0000"`, out: `"\ud83d\ude00 \\u0000"`},
		{in: "\"\xc3\xa9\xef\xbf\xbd\"", out: "\"\xc3\xa9\xef\xbf\xbd\""},
		{in: `-0.5e+10`, out: `-0.5e+10`},
		{in: `"\u0000"`, kind: faultText},
		{in: "\"\xed\xa0\x80\"", kind: faultText},
		{in: `"\ud83d\ud83d\ude00"`, kind: faultText},
		{in: `["\u0000",`, kind: faultSyntax},
		{in: "\"\x00\"", kind: faultSyntax},
		{in: ``, kind: faultSyntax},
		{in: `-`, kind: faultSyntax},
		{in: `1.`, kind: faultSyntax},
		{in: `.5`, kind: faultSyntax},
		{in: `1e`, kind: faultSyntax},
		{in: `nul`, kind: faultSyntax},
		{in: `{"a"}`, kind: faultSyntax},
		{in: `{1:2}`, kind: faultSyntax},
		{in: `[1 2]`, kind: faultSyntax},
		{in: `"\u12"`, kind: faultSyntax},
		{in: strings.Repeat("[", 1000) + strings.Repeat("]", 1000), out: strings.Repeat("[", 1000) + strings.Repeat("]", 1000)},
		{in: strings.Repeat("[", 1001), kind: faultDepth},
	}
	for _, c := range cases {
		out, wrong := checkJSON([]byte(c.in))
		if string(out) != c.out || wrong.kind != c.kind {
			t.Errorf("%.60s: got %.60s and %v", c.in, out, wrong)
		}
	}
}

// TestCheckJSONManyKeys goes beyond where keys are compared one by one.
func TestCheckJSONManyKeys(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	in.WriteString(`{`)
	for i := range 100_000 {
		fmt.Fprintf(&in, `"k%d":%d,`, i%50_000, i)
	}
	in.WriteString(`"end":0}`)
	started := time.Now()
	out, wrong := checkJSON(in.Bytes())
	if wrong.kind != faultNone {
		t.Fatal(wrong)
	}
	if bytes.Count(out, []byte(`"k77":`)) != 1 || !bytes.Contains(out, []byte(`"k77":50077,`)) || bytes.Count(out, []byte(`:`)) != 50_001 {
		t.Errorf("%d bytes are left of %d", len(out), in.Len())
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// FuzzCheckJSON compares with encoding/json: what is JSON, and what remains of it.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,true,null,"x\n\u00e9"],"a":{}}`, `{"\ud800":1}`, "\"\xff\"", `[[[]],{"b":{"b":1,"b":2}}]`, `01`, `{"a":1,}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, wrong := checkJSON(in)
		if wrong.kind == faultDepth {
			return
		}
		if json.Valid(in) != (wrong.kind != faultSyntax) {
			t.Fatalf("%q: %v", in, wrong)
		}
		if wrong.kind != faultNone {
			return
		}
		if !utf8.Valid(out) {
			t.Fatalf("%q is not UTF-8", out)
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		if got, want := canonical(t, out), canonical(t, in); got != want {
			t.Fatalf("%q became %s, want %s", in, got, want)
		}
		readAll(t, out)
	})
}

func canonical(t *testing.T, in []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(in))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// readAll takes an object or array apart and checks each part.
func readAll(t *testing.T, in []byte) {
	t.Helper()
	r := &reader{}
	o, ok := r.readObject(bytes.TrimSpace(in), "")
	if !ok {
		o, _ = r.readObject(json.RawMessage(`{"a":`+string(bytes.TrimSpace(in))+`}`), "")
	}
	var want map[string]json.RawMessage
	if ok {
		if err := json.Unmarshal(in, &want); err != nil {
			t.Fatal(err)
		}
		if len(want) != len(o.members) {
			t.Fatalf("%d members of %q, want %d", len(o.members), in, len(want))
		}
	}
	for _, m := range o.members {
		if !json.Valid(m.value) || want != nil && string(want[m.key]) != string(m.value) {
			t.Fatalf("member %q of %q is %q", m.key, in, m.value)
		}
		if m.value[0] == '[' {
			var elements []json.RawMessage
			if err := json.Unmarshal(m.value, &elements); err != nil {
				t.Fatal(err)
			}
			got := o.elements(m.key)
			if len(got) != len(elements) {
				t.Fatalf("%d elements of %q, want %d", len(got), m.value, len(elements))
			}
			for i := range got {
				if string(got[i]) != string(elements[i]) {
					t.Fatalf("element %d of %q is %q", i, m.value, got[i])
				}
			}
		}
	}
}
