package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"stepwell"
	"stepwell/api/v1"
)

type hookCase struct {
	Name, Type, Encoding, Body, Bytes, Repeat string
	Times                                     int
	Payload                                   string // as it is written
	Binary                                    bool   // the body is no text
	Status                                    int    // of a refusal
	Code                                      string
}

func (c hookCase) bytes(t *testing.T) []byte {
	t.Helper()
	if c.Bytes == "" {
		return []byte(c.Body + strings.Repeat(c.Repeat, c.Times))
	}
	b, err := base64.StdEncoding.DecodeString(c.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHookBodies sends bodies of all types and looks at the payload of the run.
func TestHookBodies(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []hookCase
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
			body := c.bytes(t)
			req := newRequest(t, "POST", "/v1/hooks/orders?token=runner-key&mode=dev", bytes.NewReader(body))
			for name, value := range map[string]string{"Content-Type": c.Type, "Content-Encoding": c.Encoding} {
				if value != "" {
					req.Header.Set(name, value)
				}
			}
			res, answer := ask(h, req)
			doc.check(t, "POST", "/v1/hooks/orders", res, answer)
			if c.Status != 0 {
				if res.StatusCode != c.Status || !strings.Contains(string(answer), `"code":"`+c.Code+`"`) || m.last.Tool != nil {
					t.Errorf("%d %s, want %d %s and no run", res.StatusCode, answer, c.Status, c.Code)
				}
				return
			}
			n := m.last
			var got v1.HookAnswer
			if err := json.Unmarshal(answer, &got); err != nil || res.StatusCode != 202 || got != (v1.HookAnswer{RunID: n.ID, Status: "accepted", ToolID: "orders"}) {
				t.Fatalf("%d %s", res.StatusCode, answer)
			}
			if string(n.Inputs) != c.Payload {
				t.Errorf("the payload is %s, want %s", n.Inputs, c.Payload)
			}
			if !bytes.Equal(n.Hook.Body, body) || n.Hook.IsText() == c.Binary {
				t.Errorf("the body is %q, text: %v", n.Hook.Body, n.Hook.IsText())
			}
			if o := n.Options; !o.Async || o.Mode != "dev" || o.RequestSource != "webhook" || o.TraceID != res.Header.Get("X-Trace-Id") {
				t.Errorf("the options are %+v", o)
			}
		})
	}
}

// TestHookHeaders: a tool sees the headers of the call, but none that holds a secret.
func TestHookHeaders(t *testing.T) {
	t.Parallel()
	m := newMemory()
	req := newRequest(t, "POST", "/v1/hooks/orders?token=admin-key", strings.NewReader("{}"))
	req.Header = map[string][]string{"X-Signature": {"v1=a", "v0=b"}, "Authorization": {"Bearer admin-key"}, "Cookie": {"session=1"}, "Proxy-Authorization": {"x"}, "X-Latin": {"\xe9<"}}
	if res, body := ask(newTestAPI(m, nil), req); res.StatusCode != 202 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if got, want := string(m.last.Hook.Headers), `{"host":"example.com","x-latin":"\ufffd<","x-signature":"v1=a, v0=b"}`; got != want {
		t.Errorf("the headers are %s, want %s", got, want)
	}
}

// TestHookRepeats: the first of three headers decides what is a repeat, for one tool;
// refused calls are not remembered.
func TestHookRepeats(t *testing.T) {
	t.Parallel()
	m := newMemory()
	h := newTestAPI(m, nil)
	call := func(tool, body string, header ...string) (int, string) {
		t.Helper()
		req := newRequest(t, "POST", "/v1/hooks/"+tool+"?token=admin-key", strings.NewReader(body))
		for i := 0; i < len(header); i += 2 {
			req.Header.Add(header[i], header[i+1])
		}
		res, body2 := ask(h, req)
		var a v1.HookAnswer
		_ = json.Unmarshal(body2, &a) // a refusal has none
		return res.StatusCode, a.RunID
	}
	if status, _ := call("orders", `{"bad":1}`, "Idempotency-Key", "a"); status != 400 {
		t.Fatal(status)
	}
	_, first := call("orders", `{}`, "Idempotency-Key", "a", "webhook-id", "w")
	for name, c := range map[string]struct {
		tool   string
		header []string
		repeat bool
	}{
		"the same":                   {"orders", []string{"Idempotency-Key", "a", "webhook-id", "w"}, true},
		"without what counts second": {"orders", []string{"Idempotency-Key", "a"}, true},
		"another tool":               {"refunds", []string{"Idempotency-Key", "a"}, false},
		"another header":             {"orders", []string{"webhook-id", "a"}, false},
		"second header alone":        {"orders", []string{"webhook-id", "w"}, false},
		"GitHub's":                   {"orders", []string{"X-GitHub-Delivery", "a"}, false},
		"none":                       {"orders", nil, false},
		"an empty one":               {"orders", []string{"Idempotency-Key", ""}, false},
	} {
		status, run := call(c.tool, `{"other":1}`, c.header...)
		if status != 202 || (run == first) != c.repeat {
			t.Errorf("%s: %d %s, first %s, want a repeat: %v", name, status, run, first, c.repeat)
		}
		if _, again := call(c.tool, `{}`, c.header...); len(c.header) > 0 && c.header[1] != "" && again != run {
			t.Errorf("%s: called again, the run is %s, not %s", name, again, run)
		}
	}
	// A repeat is answered whatever became of the tool; others find it archived.
	archived := *m.tools["acme/orders"][0]
	archived.Archived = true
	m.tools["acme/orders"] = []*stepwell.Tool{&archived}
	if status, run := call("orders", `{}`, "Idempotency-Key", "a"); status != 202 || run != first {
		t.Error(status, run)
	}
	for _, body := range []string{`{}`, `{"challenge":"c"}`} {
		if status, _ := call("orders", body, "Idempotency-Key", "new"); status != 400 {
			t.Error(body, status)
		}
	}
}
