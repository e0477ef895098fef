// Package portal_test walks through the end users' portal as a person does, in a browser,
// and as an attacker does, without one.
package portal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"stepwell/engine/js"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/internal/secret"
)

const adminKey = "test-admin-key-0123456789"

func TestMain(m *testing.M) {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	os.Exit(stacktest.Main(m))
}

// service is a server and worker in this process.
type service struct {
	t    *testing.T
	base string // with /v1
	db   string
	logs *observer.ObservedLogs
}

func start(t *testing.T, change func(*config.Config)) *service {
	t.Helper()
	stack := stacktest.Start(t, devstack.Options{})
	cfg := config.Config{
		Listen: "127.0.0.1:0", DataDir: t.TempDir(), DatabaseURL: stack.DatabaseURL(), TemporalAddress: stack.TemporalAddress(),
		EncryptionKeys: "test:" + secret.NewKey(), Egress: "private", SyncWait: time.Minute, MaxBody: 16 << 20, MaxAnswer: 100 << 20,
		DatabaseConns: 24, Activities: "auto", WorkerSlots: 200, StopWait: 5 * time.Second, PortalLinkLife: time.Hour, RunDeadline: time.Hour,
	}
	if change != nil {
		change(&cfg)
	}
	core, logs := observer.New(zap.DebugLevel)
	n, err := app.Start(t.Context(), cfg, app.Parts{Server: true, Worker: true}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(context.Background()) })
	if _, err := n.Service.EnsureAdmin(t.Context(), adminKey); err != nil {
		t.Fatal(err)
	}
	n.Serve()
	return &service{t: t, base: n.BaseURL(), db: cfg.DatabaseURL, logs: logs}
}

// ask sends a request to the API with the admin key and decodes its answer.
func (s *service) ask(method, path string, body, out any) {
	s.t.Helper()
	if status := s.askAs(adminKey, method, path, body, out); status >= 300 {
		s.t.Fatalf("%s %s answered %d", method, path, status)
	}
}

func (s *service) askAs(key, method, path string, body, out any) int {
	s.t.Helper()
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
	return res.StatusCode
}

type object = map[string]any

// endUser makes an end user and gives its id.
func (s *service) endUser(fields object) string {
	s.t.Helper()
	var out struct{ Data struct{ ID string } }
	s.ask("POST", "/end-users", fields, &out)
	return out.Data.ID
}

// link makes a portal link and gives it with its token.
func (s *service) link(user string) (link, token string) {
	s.t.Helper()
	var out struct{ Data struct{ PortalURL string } }
	s.ask("POST", "/end-users/"+user+"/portal-token", nil, &out)
	u, err := url.Parse(out.Data.PortalURL)
	if err != nil {
		s.t.Fatal(err)
	}
	return out.Data.PortalURL, u.Query().Get("token")
}

// connected says whether an end user has credentials for a system.
func (s *service) connected(user, system string) bool {
	s.t.Helper()
	var out struct {
		Data struct {
			Credentials []struct {
				SystemID       string
				HasCredentials bool
			}
		}
	}
	s.ask("GET", "/end-users/"+user, nil, &out)
	for _, c := range out.Data.Credentials {
		if c.SystemID == system {
			return c.HasCredentials
		}
	}
	return false
}

// exec changes rows behind the service's back.
func (s *service) exec(sql string, args ...any) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.db)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// tenants makes systems for end users: a form with two fields, one with one, a sign-in
// when there is an authorization server, and one that no end user is asked for.
func (s *service) tenants(upstream string, auth *authServer) {
	s.ask("POST", "/systems", object{"id": "crm", "name": "Customer records", "url": upstream, "multiTenancyMode": "enabled", "credentialKeys": []string{"api_key", "account-id"}}, nil)
	s.ask("POST", "/systems", object{"id": "shop", "name": "Shop", "url": upstream, "multiTenancyMode": "enabled", "credentialKeys": []string{"token"}}, nil)
	s.ask("POST", "/systems", object{"id": "inner", "name": "Inner system", "url": upstream, "credentials": object{"password": "inner-password"}}, nil)
	if auth != nil {
		s.ask("POST", "/systems", object{"id": "mail", "name": "Mail", "url": upstream, "multiTenancyMode": "enabled", "credentials": object{
			"grant_type": "authorization_code", "client_id": "client-1", "client_secret": "client-secret-1234567890", "scopes": "read send",
			"auth_url": auth.URL + "/authorize?tenant=acme", "token_url": auth.URL + "/token"}}, nil)
	}
}

// echo is an upstream that answers with the Authorization that it got.
func echo(t *testing.T) string {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object{"got": r.Header.Get("Authorization")})
	}))
	t.Cleanup(up.Close)
	return up.URL
}

// uses makes a tool that sends a credential of a system, and runs it for an end user.
func (s *service) runFor(user, system, key string) (status int, run struct {
	Status string
	Error  any
	Data   struct{ Got string }
}) {
	s.t.Helper()
	id := "use-" + system + "-" + strings.ReplaceAll(key, "_", "-")
	if s.askAs(adminKey, "GET", "/tools/"+id, nil, nil) == 404 {
		s.ask("POST", "/tools", object{"id": id, "steps": []object{{"id": "a", "config": object{"url": "<<" + system + "_url>>", "systemId": system,
			"headers": object{"Authorization": fmt.Sprintf("<<(s) => s.credentials['%s']>>", key)}}}}}, nil)
	}
	status = s.askAs(adminKey, "POST", "/tools/"+id+"/run", object{"options": object{"endUserId": user}}, &run)
	return status, run
}

// authServer is an authorization server: it lets everybody in who comes to /authorize and
// presses the button there, and checks PKCE at /token.
type authServer struct {
	*httptest.Server
	mu         sync.Mutex
	challenges map[string]string // by code
	redirects  map[string]string // by code
	tokens     int
	deny       bool
}
