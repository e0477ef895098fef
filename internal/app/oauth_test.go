package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/config"
)

// provider is a token endpoint and an upstream that takes its tokens. Each exchange takes
// the refresh token out of use and gives another one.
type provider struct {
	t       *testing.T
	url     string
	mu      sync.Mutex
	grants  int    // tokens given
	asked   int    // requests to the endpoint
	refresh string // the one refresh token that is good
	lives   int    // seconds of a token
	before  func(n int, w http.ResponseWriter, r *http.Request) (answered bool)
	wrong   atomic.Int64 // requests with another than the newest token
	served  atomic.Int64
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t, refresh: "refresh-secret-0", lives: 3600}
	up := httptest.NewServer(p)
	t.Cleanup(up.Close)
	p.url = up.URL
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/token" {
		p.token(w, r)
		return
	}
	p.mu.Lock()
	want := fmt.Sprintf("Bearer access-secret-%d", p.grants)
	p.mu.Unlock()
	p.served.Add(1)
	if got := r.Header.Get("Authorization"); got != want {
		p.wrong.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "no good: " + got})
		return
	}
	_, _ = w.Write([]byte(`{"ok":true}`))
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // until the body is read, a server does not notice that its client is gone
	p.mu.Lock()
	p.asked++
	n, before := p.asked, p.before
	p.mu.Unlock()
	if before != nil && before(n, w, r) {
		return
	}
	id, secret, _ := r.BasicAuth()
	p.mu.Lock()
	defer p.mu.Unlock()
	refuse := func(reason string) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": reason})
	}
	switch {
	case id != "client" || secret != "client-secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.FormValue("grant_type") == "refresh_token" && r.FormValue("refresh_token") != p.refresh:
		refuse("the token " + r.FormValue("refresh_token") + " was used before")
	default:
		p.grants++
		p.refresh = fmt.Sprintf("refresh-secret-%d", p.grants)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": fmt.Sprintf("access-secret-%d", p.grants), "refresh_token": p.refresh, "expires_in": p.lives})
	}
}

func (p *provider) counts() (asked, grants int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.grants
}

// expired saves a system whose token has just expired, and a tool over it.
func (p *provider) expired(t *testing.T, n *node, grant string) (tool string) {
	t.Helper()
	n.system(t, v1.SystemCreate{ID: "crm", URL: p.url, Credentials: map[string]string{
		"grant_type": grant, "client_id": "client", "client_secret": "client-secret", "token_url": p.url + "/token",
		"access_token": "access-secret-old", "refresh_token": "refresh-secret-0", "expires_at": time.Now().UTC().Format(time.RFC3339),
	}})
	return n.tool(t, `{"id":"call","steps":[{"id":"a","config":{"url":"<<crm_url>>/x","systemId":"crm","headers":{"Authorization":"Bearer <<(s) => s.credentials.access_token>>"}}}]}`)
}

// runs runs a tool so many times at once and gives the errors of those that failed.
func (n *node) runs(t *testing.T, tool string, times int) (failed []string) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range times {
		wg.Go(func() {
			run, err := n.api.Run(t.Context(), tool, v1.RunRequest{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, err.Error())
			} else if run.Status != "success" {
				failed = append(failed, run.Error)
			}
		})
	}
	wg.Wait()
	return failed
}

// TestTokenIsRenewedOnce starts 100 runs at once over a system whose token has just
// expired, on two workers, and again when the new one has expired.
func TestTokenIsRenewedOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	startWorker(t, n.cfg)
	p := newProvider(t)
	tool := p.expired(t, n, "authorization_code")
	for round := 1; round <= 2; round++ {
		if failed := n.runs(t, tool, 100); len(failed) > 0 {
			t.Fatalf("round %d: %d of 100 runs failed: %s", round, len(failed), failed[0])
		}
		if asked, grants := p.counts(); asked != round || grants != round {
			t.Errorf("after round %d the token endpoint was asked %d times and gave %d tokens", round, asked, grants)
		}
		past := time.Now().UTC().Format(time.RFC3339)
		if _, err := n.api.UpdateSystem(t.Context(), "crm", "", v1.SystemUpdate{Credentials: v1.Some(map[string]*string{"expires_at": &past})}); err != nil {
			t.Fatal(err)
		}
	}
	if p.wrong.Load() != 0 {
		t.Errorf("%d requests had an old token", p.wrong.Load())
	}
}

// TestTokenOfClientCredentials fetches a first token, from an endpoint that knows the
// client by the form only.
func TestTokenOfClientCredentials(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := newProvider(t)
	var scope atomic.Value
	p.before = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if _, _, ok := r.BasicAuth(); ok {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		scope.Store(r.FormValue("scope"))
		r.SetBasicAuth(r.FormValue("client_id"), r.FormValue("client_secret"))
		return false
	}
	n.system(t, v1.SystemCreate{ID: "crm", URL: p.url, Credentials: map[string]string{
		"grant_type": "client_credentials", "client_id": "client", "client_secret": "client-secret", "token_url": p.url + "/token", "scopes": "read write"}})
	tool := n.tool(t, `{"steps":[{"id":"a","config":{"url":"<<crm_url>>/x","systemId":"crm","headers":{"Authorization":"Bearer <<crm_access_token>>"}}}]}`)
	if failed := n.runs(t, tool, 5); len(failed) > 0 {
		t.Fatal(failed[0])
	}
	if _, grants := p.counts(); grants != 1 || scope.Load() != "read write" {
		t.Errorf("%d tokens for the scopes %q", grants, scope.Load())
	}
}

// TestTokenEndpointRecovers answers with errors first, then slowly.
func TestTokenEndpointRecovers(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := newProvider(t)
	p.before = func(asked int, w http.ResponseWriter, r *http.Request) bool {
		switch asked {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
			return true
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		select { // longer than a local activity waits
		case <-time.After(2500 * time.Millisecond):
		case <-r.Context().Done():
		}
		return false
	}
	tool := p.expired(t, n, "refresh_token")
	if failed := n.runs(t, tool, 20); len(failed) > 0 {
		t.Fatalf("%d runs failed: %s", len(failed), failed[0])
	}
	if asked, grants := p.counts(); grants != 1 || asked > 10 {
		t.Errorf("asked %d times, %d tokens", asked, grants)
	}
}

// TestRefusedRenewal fails the step, names the system and shows no secret.
func TestRefusedRenewal(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := newProvider(t)
	tool := p.expired(t, n, "refresh_token")
	p.refresh = "another"
	run := n.run(t, tool, v1.RunRequest{})
	want := "Step 1 (a): the access token of the system 'crm' was not renewed: the token endpoint refused it with status 400 (invalid_grant: the token [masked] was used before)"
	if run.Status != "failed" || run.Error != want {
		t.Errorf("%s: %s", run.Status, run.Error)
	}
	if p.served.Load() != 0 {
		t.Error("the request was sent without a token")
	}
	own := n.run(t, tool, v1.RunRequest{Credentials: json.RawMessage(`{"crm_access_token":"access-secret-0"}`)})
	if own.Status != "success" {
		t.Errorf("with a token of its own the run failed: %s", own.Error)
	}
}

// TestRefusedTokenIsRenewedNext: an upstream refuses a token before its end. The request is
// not repeated; the next run has a new token.
func TestRefusedTokenIsRenewedNext(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := newProvider(t)
	tool := p.expired(t, n, "refresh_token")
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if _, err := n.api.UpdateSystem(t.Context(), "crm", "", v1.SystemUpdate{Credentials: v1.Some(map[string]*string{"expires_at": &future})}); err != nil {
		t.Fatal(err)
	}
	if run := n.run(t, tool, v1.RunRequest{}); run.Status != "failed" || !strings.Contains(run.Error, "401") || strings.Contains(run.Error, "access-secret-old") {
		t.Errorf("%s: %s", run.Status, run.Error)
	}
	if p.served.Load() != 1 {
		t.Errorf("%d requests were sent", p.served.Load())
	}
	if run := n.run(t, tool, v1.RunRequest{}); run.Status != "success" {
		t.Errorf("the next run failed: %s", run.Error)
	}
}

// TestRenewalOutlivesACrash kills a worker while it waits for the token endpoint: another
// one renews the token.
func TestRenewalOutlivesACrash(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *config.Config) { c.StopWait = time.Second })
	p := newProvider(t)
	asked := make(chan struct{}, 10)
	p.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		asked <- struct{}{}
		<-r.Context().Done()
		return true
	}
	tool := p.expired(t, n, "refresh_token")
	// A server alone, so that the run begins in the process that dies.
	n.stop()
	server := startParts(t, n.cfg, app.Parts{Server: true})
	first := startWorker(t, n.cfg)
	if _, err := server.api.Run(t.Context(), tool, v1.RunRequest{RunID: "r", Options: &v1.RunOptions{Async: true}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Fatal("the token endpoint was not asked")
	}
	first.kill()
	began := time.Now()
	startWorker(t, n.cfg)
	run := server.waitFinal(t, "r", time.Minute)
	if run.Status != "success" {
		t.Errorf("%s: %s", run.Status, run.Error)
	}
	t.Logf("the run ended %s after the crash", time.Since(began).Round(100*time.Millisecond))
	if _, grants := p.counts(); grants != 1 {
		t.Errorf("%d tokens", grants)
	}
}

// TestTokensOfEndUsers renews an end user's token with the client of the system, and keeps
// it apart from the system's own and from other end users'.
func TestTokensOfEndUsers(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := newProvider(t)
	n.system(t, v1.SystemCreate{ID: "crm", URL: p.url, MultiTenancyMode: "enabled", Credentials: map[string]string{
		"grant_type": "refresh_token", "client_id": "client", "client_secret": "client-secret", "token_url": p.url + "/token",
		"access_token": "of-the-organization", "refresh_token": "of-the-organization-too"}})
	tool := n.tool(t, `{"steps":[{"id":"a","config":{"url":"<<crm_url>>/x","systemId":"crm","headers":{"Authorization":"Bearer <<crm_access_token>>"}}}]}`)
	org, err := n.Service.Store.FirstOrganization(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ann, err := n.api.CreateEndUser(t.Context(), v1.EndUserCreate{ExternalID: "ann", AllowedSystems: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Service.Store.PutEndUserCredentials(t.Context(), org, ann.ID, "crm", map[string]string{"refresh_token": "refresh-secret-0"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run := n.run(t, tool, v1.RunRequest{Options: &v1.RunOptions{EndUserID: ann.ID}})
		if run.Status != "success" {
			t.Fatalf("the end user's run failed: %s", run.Error)
		}
	}
	if asked, grants := p.counts(); asked != 1 || grants != 1 {
		t.Errorf("asked %d times, %d tokens", asked, grants)
	}
	own := n.run(t, tool, v1.RunRequest{})
	if own.Status != "failed" || !strings.Contains(own.Error, "401") || strings.Contains(own.Error, "of-the-organization") {
		t.Errorf("the organization's own run: %s %s", own.Status, own.Error)
	}
}
