package app_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/docs"
	"stepwell/internal/app"
	"stepwell/internal/config"
)

// signedTool checks the signature of the call that started it and gives back what it saw.
const signedTool = `{"id":"signed","steps":[{"id":"check","config":{"type":"transform","transformCode":"(s) => { const want = crypto.createHmac('sha256', 'shared secret').update(s.__rawBody__).digest(); const got = Buffer.from(s.__headers__['x-signature'] || '', 'hex'); if (got.length !== want.length || !crypto.timingSafeEqual(got, want)) throw new Error('the signature is wrong'); return {event: s.event, length: s.__rawBody__.length}; }"}}]}`

func sign(body []byte) string {
	mac := hmac.New(sha256.New, []byte("shared secret"))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// hook calls a hook and waits for the end of its run.
func (n *node) hook(t *testing.T, tool string, call client.HookCall) *v1.Run {
	t.Helper()
	accepted, err := n.api.Hook(t.Context(), tool, call)
	if err != nil || accepted.Status != "accepted" || accepted.ToolID != tool {
		t.Fatal(accepted, err)
	}
	return n.waitFinal(t, accepted.RunID, 20*time.Second)
}

// TestHookSignature: a tool checks the signature of calls of all sizes, in a run and in
// its rerun; the payload is what the call brought.
func TestHookSignature(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	tool := n.tool(t, signedTool)
	random := make([]byte, 600<<10) // which no compression makes fit a row
	rand.Read(random)               // never fails
	for name, body := range map[string][]byte{
		"small": []byte("{\"event\": \"paid\",\n \"amount\": 10.00}"),
		"large": []byte(`{"event":"paid","blob":"` + base64.StdEncoding.EncodeToString(random) + `"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := client.HookCall{Body: body, Header: http.Header{"X-Signature": {sign(body)}}}
			run := n.hook(t, tool, call)
			want := fmt.Appendf(nil, `{"event":"paid","length":%d}`, len(body))
			if run.Status != "success" || docs.Match(want, run.Data) != "" {
				t.Fatalf("%s %s: %s", run.Status, run.Error, run.Data)
			}
			if !sameText(run.ToolPayload, body) || run.RequestSource != "webhook" || run.ExecutionMode != "prod" || !run.Options.Async {
				t.Errorf("the run is %.200s", run.ToolPayload)
			}
			again, err := n.api.Rerun(t.Context(), run.RunID, v1.RerunRequest{FromStep: "check", Options: &v1.RerunOptions{Async: new(bool)}})
			if err != nil || again.Status != "success" || docs.Match(want, again.Data) != "" || again.RequestSource != "webhook" {
				t.Errorf("the rerun: %v %+v", err, again)
			}
			call.Header = http.Header{"X-Signature": {sign([]byte("another"))}}
			if run := n.hook(t, tool, call); run.Status != "failed" || !strings.Contains(run.Error, "the signature is wrong") {
				t.Errorf("with a wrong signature: %s %s", run.Status, run.Error)
			}
		})
	}
}

func sameText(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && x.String() == y.String()
}

// TestHookCall: what expressions see of a call, also by a bare name, and that a run that
// no hook started has nothing of it.
func TestHookCall(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	tool := n.tool(t, `{"id":"call","outputTransform":"(s) => ({type: s.__headers__ && s.__headers__['content-type'], auth: s.__headers__ && 'authorization' in s.__headers__, raw: s.__rawBody__ ?? null, base64: s.__rawBodyBase64__ ?? null, keys: Object.keys(s).filter((k) => k.startsWith('__')).sort(), inputs: {a: s.a ?? null, body: s.body ?? null}})"}`)
	for _, c := range []struct {
		contentType, body, want string
	}{
		{"application/x-www-form-urlencoded", "a=1&a=2", `{"type":"application/x-www-form-urlencoded","auth":false,"raw":"a=1&a=2","base64":null,"keys":["__headers__","__rawBody__"],"inputs":{"a":["1","2"],"body":null}}`},
		{"image/png", "\x89PNG", `{"raw":null,"base64":"iVBORw==","keys":["__headers__","__rawBodyBase64__"],"inputs":{"body":"iVBORw=="}}`},
		{"text/plain", "", `{"raw":"","base64":null,"inputs":{"body":null}}`},
		{"text/plain", "a\x00b", `{"raw":"a\u0000b","inputs":{"body":"a\u0000b"}}`},
	} {
		run := n.hook(t, tool, client.HookCall{Body: []byte(c.body), ContentType: c.contentType})
		if d := docs.Match(json.RawMessage(c.want), run.Data); run.Status != "success" || d != "" {
			t.Errorf("%s %q: %s %s %s: %s", c.contentType, c.body, run.Status, run.Error, run.Data, d)
		}
	}
	run := n.run(t, tool, v1.RunRequest{Inputs: json.RawMessage(`{"__rawBody__":"mine"}`), Options: &v1.RunOptions{RequestSource: "webhook"}})
	if d := docs.Match(json.RawMessage(`{"raw":null,"keys":[]}`), run.Data); d != "" {
		t.Errorf("a run without a hook: %s %s", run.Data, d)
	}
	bare := n.tool(t, `{"id":"bare","steps":[{"id":"a","config":{"url":"http://127.0.0.1:1/<<__rawBody__>>"}}]}`)
	if run := n.run(t, bare, v1.RunRequest{}); run.Status != "failed" || !strings.Contains(run.Error, "'__rawBody__' is not known") {
		t.Errorf("a bare name without a hook: %s", run.Error)
	}
}

// TestHookRace: of many equal calls on two servers at once one starts a run, and all are
// told of it.
func TestHookRace(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	other := startParts(t, n.cfg, app.Parts{Server: true})
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	tool := n.tool(t, fmt.Sprintf(`{"id":"raced","steps":[{"id":"a","config":{"method":"POST","url":"%s/?run=race"}}]}`, up.URL))
	clients := []*client.Client{n.api, other.api}
	runs := make([]string, 50)
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i := range runs {
		all.Go(func() {
			<-begin
			a, err := clients[i%2].Hook(t.Context(), tool, client.HookCall{Body: []byte(`{}`), Key: "the same"})
			if err != nil {
				t.Error(err)
				return
			}
			runs[i] = a.RunID
		})
	}
	close(begin)
	all.Wait()
	for _, run := range runs {
		if run != runs[0] {
			t.Errorf("run %s beside %s", run, runs[0])
		}
	}
	if run := n.waitFinal(t, runs[0], 20*time.Second); run.Status != "success" {
		t.Error(run.Status, run.Error)
	}
	list, err := n.api.ListRuns(t.Context(), client.Page{}, client.RunFilter{ToolID: tool})
	if err != nil || list.Total != 1 || len(up.of("race")) != 1 {
		t.Errorf("%v: %d runs, %d requests", err, list.Total, len(up.of("race")))
	}
}

// TestHookSecret: the key in a hook's address reaches no answer, log, row or history.
func TestHookSecret(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	made, err := n.api.CreateAPIKey(t.Context(), v1.APIKeyCreate{Name: "hook", Role: "runner"})
	if err != nil {
		t.Fatal(err)
	}
	find := func(text string) string {
		if strings.Contains(text, made.Key) || strings.Contains(text, hex.EncodeToString([]byte(made.Key))) {
			return made.Key
		}
		return ""
	}
	tool := n.tool(t, `{"id":"quiet","steps":[{"id":"a","config":{"type":"transform","transformCode":"(s) => s"}}]}`)
	var texts []string
	for _, path := range []string{"/hooks/" + tool + "?", "/hooks/none?", "/hooks/" + tool + "/x?", "/hooks/" + tool + "?mode=x&"} {
		res, err := http.Post(n.url+path+"token="+made.Key, "application/json", strings.NewReader(`{"a":1}`))
		if err != nil {
			t.Fatal(err)
		}
		header, body := fmt.Sprint(res.Header), readAll(t, res)
		texts = append(texts, header, body)
		if run := field([]byte(body), "runId"); run != "" {
			n.waitFinal(t, run, 20*time.Second)
			texts = append(texts, n.answers(t, run)...)
		}
	}
	for _, entry := range n.log.All() {
		texts = append(texts, fmt.Sprint(entry.Message, entry.ContextMap()))
	}
	for _, text := range texts {
		if find(text) != "" {
			t.Errorf("an answer or the log holds the key: %.300s", text)
		}
	}
	searchDatabases(t, n.cfg.DatabaseURL, find)
}

// TestHookLimits: above the limit of unfinished runs a hook is told to come back, and its
// call is not remembered; a repeat of one that was accepted is still answered.
func TestHookLimits(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *config.Config) { c.MaxOpenRuns = 2 })
	open := make(chan struct{})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-open:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, `{}`)
	})
	tool := n.tool(t, fmt.Sprintf(`{"id":"held","steps":[{"id":"a","config":{"url":"%s/"}}]}`, up.URL))
	call := func(key string) (*http.Response, string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/hooks/"+tool+"?token="+adminKey, strings.NewReader(`{}`))
		req.Header.Set("webhook-id", key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return res, field([]byte(readAll(t, res)), "runId")
	}
	_, first := call("one")
	_, second := call("two")
	if res, _ := call("three"); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("the third: %s", res.Status)
	}
	if res, run := call("one"); res.StatusCode != 202 || run != first {
		t.Errorf("the first again: %s %s, not %s", res.Status, run, first)
	}
	close(open)
	for _, run := range []string{first, second} {
		if run := n.waitFinal(t, run, 30*time.Second); run.Status != "success" {
			t.Error(run.Status, run.Error)
		}
	}
	res, third := call("three")
	if res.StatusCode != 202 || third == "" || third == first || third == second {
		t.Errorf("the third, later: %s %s", res.Status, third)
	}
}
