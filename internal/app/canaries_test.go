package app_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/config"
)

var twelve = flag.Bool("canaries", false, "run TestCanaries: `make test` ends with it")

// flock are the canaries, by what they are. Each is sent on purpose where it belongs.
type flock map[string]string

// find gives the first canary that a text holds in any form.
func (f flock) find(text string) string {
	for name, secret := range f {
		for _, form := range forms(secret) {
			if strings.Contains(text, form) {
				return name + " as " + form
			}
		}
	}
	return ""
}

// canaryNest is an upstream that repeats what it was told, and a token endpoint.
func canaryNest(f flock) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fine":
			fmt.Fprint(w, `{"ok":true}`)
		case "/slow":
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case "/token":
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": f["access token"], "refresh_token": f["rotated refresh token"], "expires_in": 3600})
		default:
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "no: %s %v", r.URL, r.Header)
			_, _ = w.Write(body[:min(len(body), 200)])
		}
	}
}

// TestCanaries uses a secret of every kind in runs that succeed, fail, run into timeouts
// and limits, are cancelled, run again and call back, and looks for all of them in every
// log line, answer, row of every database (Temporal's histories are rows), span and figure.
func TestCanaries(t *testing.T) {
	if !*twelve {
		t.Skip("runs alone, with -canaries")
	}
	collector := startCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	n := startNode(t, func(c *config.Config) { c.MetricsListen = "127.0.0.1:0" })
	f := flock{}
	for _, name := range []string{"run-time credential", "stored credential", "password of a Basic pair", "end user's credential", "OAuth client secret",
		"access token", "refresh token", "rotated refresh token", "token of a callback address"} {
		f[name] = fmt.Sprintf("Canary/+=&ü-%d-%x", len(f), time.Now().UnixNano()+int64(len(f)))
	}
	up := startUpstream(t, canaryNest(f))
	x := &canaryFlight{node: n, flock: f, up: up}
	x.keys(t)
	x.systems(t)
	answers := x.fly(t)

	for _, text := range answers {
		if found := f.find(text); found != "" {
			t.Errorf("an answer holds the %s: %.300s", found, text)
		}
	}
	n.stop() // with the last spans
	for _, entry := range n.log.All() {
		if found := f.find(fmt.Sprint(entry.Message, entry.ContextMap())); found != "" {
			t.Errorf("the log holds the %s: %.300s", found, fmt.Sprint(entry.Message, entry.ContextMap()))
		}
	}
	collector.mu.Lock()
	spans := fmt.Sprint(collector.all)
	collector.mu.Unlock()
	if found := f.find(spans); found != "" || len(spans) < 10_000 {
		t.Errorf("%d bytes of spans hold the %s", len(spans), found)
	}
	searchDatabases(t, n.cfg.DatabaseURL, func(row string) string { return f.find(callbackAddress.ReplaceAllString(row, "")) })
	t.Logf("%d canaries, %d answers, %d log lines, %d bytes of spans", len(f), len(answers), n.log.Len(), len(spans))
	if len(f) < 12 {
		t.Errorf("only %d canaries", len(f))
	}
}

// callbackAddress is where a callback's address stands in a row: it is kept as it was
// given, for it is sent there.
var callbackAddress = regexp.MustCompile(`webhookUrl\\?"+:\\?"+[^"]*`)

// canaryFlight is the use of all canaries on a node.
type canaryFlight struct {
	*node
	flock   flock
	up      *upstream
	endUser *v1.EndUser
}

// keys makes those canaries that the service itself makes.
func (x *canaryFlight) keys(t *testing.T) {
	t.Helper()
	for _, name := range []string{"API key", "key in a hook's address"} {
		key, err := x.api.CreateAPIKey(t.Context(), v1.APIKeyCreate{Name: name, Role: "member"})
		if err != nil {
			t.Fatal(err)
		}
		x.flock[name] = key.Key
	}
	x.api = client.New(x.url, x.flock["API key"])
	admin := client.New(x.url, adminKey)
	secrets, err := admin.WebhookSecrets(t.Context())
	if err != nil || len(secrets) == 0 {
		t.Fatalf("%v %v", secrets, err)
	}
	x.flock["signing secret"] = strings.TrimPrefix(secrets[0].Secret, "whsec_")
	if x.endUser, err = x.api.CreateEndUser(t.Context(), v1.EndUserCreate{ExternalID: "u1", AllowedSystems: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	x.flock["end user's key"] = x.endUser.APIKey
	link, err := x.api.PortalLink(t.Context(), x.endUser.ID)
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(link.PortalURL)
	if err != nil {
		t.Fatal(err)
	}
	x.flock["portal token"] = address.Query().Get("token")
	res, err := http.Get(link.PortalURL)
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, res)
}

func (x *canaryFlight) systems(t *testing.T) {
	t.Helper()
	x.system(t, v1.SystemCreate{ID: "crm", URL: x.up.URL, Credentials: map[string]string{"key": x.flock["stored credential"], "password": x.flock["password of a Basic pair"]}})
	x.system(t, v1.SystemCreate{ID: "oauth", URL: x.up.URL, Credentials: map[string]string{"grant_type": "refresh_token", "client_id": "client",
		"client_secret": x.flock["OAuth client secret"], "token_url": x.up.URL + "/token", "refresh_token": x.flock["refresh token"],
		"expires_at": time.Now().UTC().Format(time.RFC3339)}})
	x.system(t, v1.SystemCreate{ID: "tenant", URL: x.up.URL, MultiTenancyMode: "enabled", CredentialKeys: []string{"key"}})
	if err := x.api.ConnectEndUser(t.Context(), x.endUser.ID, "tenant", map[string]string{"key": x.flock["end user's credential"]}); err != nil {
		t.Fatal(err)
	}
}

// step is a request with every secret that a run has.
func (x *canaryFlight) step(id, method, path, more string) string {
	return fmt.Sprintf(`{"id":%q,"config":{"method":%q,"systemId":"crm","url":"<<crm_url>>%s?k=<<encodeURIComponent(sourceData.credentials.key)>>&run=<<(s) => s.run || 'x'>>",
		"headers":{"X-Run":"<<(s) => s.credentials.mine>>","X-Stored":"<<crm_key>>","X-Token":"<<oauth_access_token>>","X-Tenant":"<<tenant_key>>","Authorization":"Basic me:<<(s) => s.crm_password>>"}%s}}`,
		id, method, path, more)
}

// fly runs everything and gives all that was answered.
func (x *canaryFlight) fly(t *testing.T) (answers []string) {
	t.Helper()
	oauth := fmt.Sprintf(`{"id":"o","config":{"systemId":"oauth","url":"%s/fine"}},{"id":"t","config":{"systemId":"tenant","url":"%s/fine"}}`, x.up.URL, x.up.URL)
	tool := func(id string, steps ...string) string {
		return x.tool(t, fmt.Sprintf(`{"id":%q,"steps":[%s]}`, id, strings.Join(append(steps, oauth), ",")))
	}
	credentials, err := json.Marshal(map[string]string{"mine": x.flock["run-time credential"]})
	if err != nil {
		t.Fatal(err)
	}
	callback := x.up.URL + "/callback?token=" + url.QueryEscape(x.flock["token of a callback address"])
	request := func(more v1.RunOptions) v1.RunRequest {
		more.EndUserID, more.WebhookURL = x.endUser.ID, callback
		return v1.RunRequest{Credentials: credentials, Options: &more}
	}
	see := func(run *v1.Run, status string) *v1.Run {
		t.Helper()
		if run.Status != status {
			t.Errorf("%s: %s, %s; want %s", run.ToolID, run.Status, run.Error, status)
		}
		text, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(append(answers, string(text)), x.answers(t, run.RunID)...)
		return run
	}
	const thrown = "(s) => { console.log(JSON.stringify(s)); throw new Error('no ' + JSON.stringify(s.credentials) + s.crm_key) }"
	see(x.run(t, tool("fine", x.step("a", "GET", "/fine", "")), request(v1.RunOptions{})), "success")
	failed := see(x.run(t, tool("refused", x.step("a", "GET", "/refused", "")), request(v1.RunOptions{})), "failed")
	see(x.run(t, tool("posted", x.step("a", "POST", "/refused", `,"body":"<<(s) => JSON.stringify(s.credentials)>>"`)), request(v1.RunOptions{})), "failed")
	see(x.run(t, tool("in-path", x.step("a", "GET", "/<<(s) => encodeURIComponent(s.crm_key)>>/<<(s) => btoa(encodeURIComponent(s.tenant_key))>>", "")), request(v1.RunOptions{})), "failed")
	see(x.run(t, tool("slow", x.step("a", "POST", "/slow", "")), request(v1.RunOptions{Timeout: 300})), "failed")
	see(x.run(t, tool("thrown", transform("a", thrown, "")), request(v1.RunOptions{})), "failed")
	see(x.run(t, tool("killed", transform("a", "(s) => [s.crm_key, s.credentials.mine].join('').repeat(2 ** 28)", "")), request(v1.RunOptions{})), "failed")
	see(x.run(t, tool("deep", transform("a", "(s) => { const f = () => f() + s.crm_key; return f() }", "")), request(v1.RunOptions{})), "failed")
	unreachable := strings.Replace(x.step("a", "POST", "/x", ""), "<<crm_url>>", "http://127.0.0.1:1", 1)
	see(x.run(t, tool("no-address", strings.Replace(unreachable, "127.0.0.1:1", "<<(s) => encodeURIComponent(s.credentials.mine)>>", 1)), request(v1.RunOptions{})), "failed")

	for _, id := range []string{tool("cancelled", x.step("a", "GET", "/slow", "")), tool("unreachable", unreachable)} {
		r := request(v1.RunOptions{Async: true})
		r.Inputs = json.RawMessage(`{"run":"cancelled"}`)
		run := x.run(t, id, r)
		eventually(t, 20*time.Second, func() error {
			if len(x.up.of("cancelled")) == 0 {
				return fmt.Errorf("the slow request has not begun")
			}
			return nil
		})
		got, err := x.api.Cancel(t.Context(), run.RunID)
		if err != nil {
			t.Fatal(err)
		}
		see(got, "aborted")
	}
	again, err := x.api.Rerun(t.Context(), failed.RunID, v1.RerunRequest{Credentials: credentials})
	if err != nil {
		t.Fatal(err)
	}
	see(again, "failed")
	return append(answers, x.hooked(t)...)
}

// hooked calls a hook with its key in the address, and waits for the callback of its run.
func (x *canaryFlight) hooked(t *testing.T) (answers []string) {
	t.Helper()
	tool := x.tool(t, fmt.Sprintf(`{"id":"hooked","webhookUrl":"%s/callback","steps":[%s]}`, x.up.URL, strings.ReplaceAll(x.step("a", "GET", "/refused", ""), `,"X-Tenant":"<<tenant_key>>"`, "")))
	res, err := http.Post(x.url+"/hooks/"+tool+"?token="+x.flock["key in a hook's address"], "application/json", strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	body := readAll(t, res)
	var hook v1.HookAnswer
	if err := json.Unmarshal([]byte(body), &hook); err != nil || res.StatusCode != http.StatusAccepted {
		t.Fatalf("the hook answered %d %s", res.StatusCode, body)
	}
	x.waitFinal(t, hook.RunID, 30*time.Second)
	eventually(t, 30*time.Second, func() error {
		all, err := x.api.Deliveries(t.Context(), hook.RunID)
		if err != nil || len(all) != 1 || len(all[0].Attempts) == 0 {
			return fmt.Errorf("%d deliveries, %w", len(all), err)
		}
		text, err := json.Marshal(all)
		answers = append(answers, string(text), body)
		return err
	})
	return append(append(answers, x.answers(t, hook.RunID)...), x.scrape(t))
}

// scrape gives the node's figures.
func (n *node) scrape(t *testing.T) string {
	t.Helper()
	for _, entry := range n.log.All() {
		fields := entry.ContextMap()
		if fields["for"] != "metrics" {
			continue
		}
		res, err := http.Get(fmt.Sprintf("http://%s/metrics", fields["address"]))
		if err != nil {
			t.Fatal(err)
		}
		return readAll(t, res)
	}
	t.Fatal("the log does not say where the figures are")
	return ""
}
