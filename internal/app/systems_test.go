package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// echo is an upstream that answers with the path, query and headers of a request.
func echo(t *testing.T) string {
	t.Helper()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/refuse") {
			w.WriteHeader(http.StatusForbidden)
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"authorization": r.Header.Get("Authorization"), "a": r.Header.Get("A"), "b": r.Header.Get("B"), "c": r.Header.Get("C")})
	}))
	t.Cleanup(up.Close)
	return up.URL
}

func (n *node) system(t *testing.T, create v1.SystemCreate) {
	t.Helper()
	if _, err := n.api.CreateSystem(t.Context(), create); err != nil {
		t.Fatal(err)
	}
}

// TestSystemCredentials binds stored credentials in expressions, those of the mode's
// environment as a whole, and run-time ones over them.
func TestSystemCredentials(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := echo(t)
	n.system(t, v1.SystemCreate{ID: "crm", URL: up, Credentials: map[string]string{"token": "crm-prod-token", "only": "in-prod"}})
	n.system(t, v1.SystemCreate{ID: "crm", URL: up + "/dev", Environment: "dev", Credentials: map[string]string{"token": "crm-dev-token"}})
	n.system(t, v1.SystemCreate{ID: "erp", URL: up, Credentials: map[string]string{"token": "erp-token"}})
	step := func(id, path string) string {
		return fmt.Sprintf(`{"id":%q,"config":{"url":"<<crm_url>>%s","systemId":"crm","headers":{"Authorization":"Bearer <<(s) => s.credentials.token>>",
			"A":"<<crm_token>>","B":"<<(s) => s.credentials.erp_token>>","C":"<<(s) => s.credentials.crm_only>>"}}}`, id, path)
	}
	tool := n.tool(t, `{"steps":[`+step("one", "/x")+`,{"id":"two","config":{"url":"<<erp_url>>/y","systemId":"erp","headers":{"A":"<<(s) => s.credentials.token>>"}}}],
		"outputTransform":"(s) => ({one: s.one.data, two: s.two.data.a, late: s.erp_token, url: s.crm_url})"}`)
	run := func(mode string, credentials string) string {
		t.Helper()
		in := v1.RunRequest{Options: &v1.RunOptions{Mode: mode}}
		if credentials != "" {
			in.Credentials = json.RawMessage(credentials)
		}
		run := n.run(t, tool, in)
		if run.Status != "success" {
			t.Fatalf("the run failed: %s", run.Error)
		}
		return string(run.Data)
	}
	for _, test := range []struct{ mode, credentials, want string }{
		{"prod", "", `{"one":{"a":"crm-prod-token","authorization":"Bearer crm-prod-token","b":"erp-token","c":"in-prod"},"two":"erp-token","late":"erp-token","url":"` + up + `"}`},
		{"dev", "", `{"one":{"a":"crm-dev-token","authorization":"Bearer crm-dev-token","b":"erp-token","c":""},"two":"erp-token","late":"erp-token","url":"` + up + `/dev"}`},
		{"prod", `{"crm_token":"mine"}`, `{"one":{"a":"mine","authorization":"Bearer mine","b":"erp-token","c":"in-prod"},"two":"erp-token","late":"erp-token","url":"` + up + `"}`},
		{"prod", `{"token":"mine"}`, `{"one":{"a":"crm-prod-token","authorization":"Bearer mine","b":"erp-token","c":"in-prod"},"two":"mine","late":"erp-token","url":"` + up + `"}`},
	} {
		if got := run(test.mode, test.credentials); !equalJSON(t, got, test.want) {
			t.Errorf("mode %s with %s: %s", test.mode, test.credentials, got)
		}
	}
	list, err := n.api.ListRuns(t.Context(), client.Page{}, client.RunFilter{SystemID: "erp"})
	if err != nil || len(list.Data) != 4 {
		t.Errorf("runs of the system: %d, %v", len(list.Data), err)
	}

	refused := n.run(t, n.tool(t, `{"steps":[`+step("one", "/refuse")+`]}`), v1.RunRequest{})
	if refused.Status != "failed" || strings.Contains(refused.Error, "crm-prod-token") || !strings.Contains(refused.Error, "[masked]") {
		t.Errorf("the error of a refused request: %s", refused.Error)
	}
	missing := n.run(t, n.tool(t, `{"steps":[{"id":"fine","failureBehavior":"continue","config":{"url":"`+up+`"}},{"id":"lost","config":{"url":"`+up+`","systemId":"nothing"}}]}`), v1.RunRequest{})
	if want := "Step 2 (lost): the system 'nothing' does not exist"; missing.Status != "failed" || !strings.HasPrefix(missing.Error, want) {
		t.Errorf("a missing system: %s %s", missing.Status, missing.Error)
	}
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	one, _ := json.Marshal(x)
	two, _ := json.Marshal(y)
	return string(one) == string(two)
}

// TestSystemCredentialsStaySecret looks for a stored credential wherever a dump of the
// database, the log and the API's answers could show it.
func TestSystemCredentialsStaySecret(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	up := echo(t)
	const canary = "canary-of-a-system-0123456789"
	n.system(t, v1.SystemCreate{ID: "crm", URL: up, Credentials: map[string]string{"token": canary}})
	tool := n.tool(t, `{"steps":[{"id":"a","config":{"url":"<<crm_url>>/refuse/<<crm_token>>?t=<<crm_token>>","systemId":"crm","headers":{"A":"<<crm_token>>"}}}]}`)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { n.run(t, tool, v1.RunRequest{}) })
	}
	wg.Wait()
	answers, err := n.api.ListRuns(t.Context(), client.Page{}, client.RunFilter{})
	if err != nil || len(answers.Data) != 5 {
		t.Fatal(len(answers.Data), err)
	}
	systems, err := n.api.ListSystems(t.Context(), client.Page{})
	if err != nil {
		t.Fatal(err)
	}
	all, _ := json.Marshal([]any{answers, systems})
	if strings.Contains(string(all), canary) {
		t.Error("an answer shows the credential")
	}
	for _, entry := range n.log.All() {
		if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, canary) {
			t.Errorf("the log shows the credential: %s", text)
		}
	}
}
