package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app"
	"stepwell/internal/devstack/stacktest"
	"stepwell/service"
)

// accessRow is a row of api/testdata/access.yaml, which a test of api compares with the
// table of routes.
type accessRow struct {
	Route, Body, Run                                          string
	Admin, Member, Runner, Limited, Own, Foreign, Other, Open int
}

// accessNode is a node with a key of every kind, and what the routes are about.
type accessNode struct {
	*node
	t       *testing.T
	hang    string // address of an upstream that does not answer
	keys    map[string]string
	refused []string // keys that are no good
	own     *v1.EndUser
	mu      sync.Mutex
	ids     map[string]string // of what is there, by the path's variable
}

const notForOthers = "for nobody else" // stands in everything that the organization has

func newAccessNode(t *testing.T) *accessNode {
	n := &accessNode{node: startNode(t, nil), t: t, ids: map[string]string{"version": "1.0.0", "systemId": "crm"}, keys: map[string]string{"admin": adminKey}}
	blocked := make(chan struct{})
	up := startUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-blocked:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(blocked) })
	n.hang = up.URL
	key := func(k v1.APIKeyCreate) *v1.APIKey { return must[v1.APIKey](t)(n.api.CreateAPIKey(t.Context(), k)) }
	n.keys["member"] = key(v1.APIKeyCreate{Role: "member"}).Key
	n.keys["runner"] = key(v1.APIKeyCreate{Role: "runner"}).Key
	n.keys["limited"] = key(v1.APIKeyCreate{Role: "member", Tools: &[]string{"another"}}).Key
	n.own = must[v1.EndUser](t)(n.api.CreateEndUser(t.Context(), v1.EndUserCreate{AllowedSystems: []string{"*"}}))
	n.keys["own"] = n.own.APIKey
	n.keys["foreign"] = must[v1.EndUser](t)(n.api.CreateEndUser(t.Context(), v1.EndUserCreate{})).APIKey
	other, err := service.CreateOrganization(t.Context(), n.Service.Store, "other")
	if err != nil {
		t.Fatal(err)
	}
	n.keys["other"] = other

	revoked := key(v1.APIKeyCreate{Role: "admin"})
	if err := n.api.DeleteAPIKey(t.Context(), revoked.ID); err != nil {
		t.Fatal(err)
	}
	expired := key(v1.APIKeyCreate{Role: "admin", ExpiresAt: v1.Time{Time: time.Now().Add(300 * time.Millisecond)}})
	gone := must[v1.EndUser](t)(n.api.CreateEndUser(t.Context(), v1.EndUserCreate{}))
	n.refused = []string{"", "sw_unknown", revoked.Key, expired.Key, gone.APIKey}
	for _, text := range []string{expired.Key, gone.APIKey} { // good, and remembered as such
		if _, err := client.New(n.url, text).Me(t.Context()); err != nil {
			t.Log("a key that is still good: ", err) // a busy machine may be late for the first
		}
	}
	if err := n.api.DeleteEndUser(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	n.system(t, v1.SystemCreate{ID: "crm", Name: notForOthers, URL: n.hang})
	return n
}

// must gives a value, or ends the test.
func must[T any](t *testing.T) func(v *T, err error) *T {
	return func(v *T, err error) *T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// path makes what a row is about, anew, and gives the path to it.
func (n *accessNode) path(row accessRow) string {
	n.t.Helper()
	method, path, _ := strings.Cut(row.Route, " ")
	n.mu.Lock()
	defer n.mu.Unlock()
	fresh := func(name string) bool {
		return strings.Contains(path, "{"+name+"}") && (n.ids[name] == "" || method != "GET")
	}
	if fresh("toolId") || fresh("runId") && n.ids["toolId"] == "" {
		n.ids["toolId"] = n.tool(n.t, `{"name":"`+notForOthers+`","steps":[{"id":"fetch","config":{"type":"transform","transformCode":"(s) => 1"}}]}`)
	}
	if fresh("runId") {
		n.ids["runId"] = n.newRun(row.Run == "running")
	}
	if fresh("deliveryId") {
		run := n.run(n.t, n.ids["toolId"], v1.RunRequest{Options: &v1.RunOptions{WebhookURL: n.hang}})
		all, err := n.api.Deliveries(n.t.Context(), run.RunID)
		if err != nil || len(all) != 1 {
			n.t.Fatal(all, err)
		}
		n.ids["deliveryId"] = all[0].ID
	}
	if fresh("bulkId") {
		n.ids["bulkId"] = must[v1.BulkOperation](n.t)(n.api.CancelMany(n.t.Context(), v1.BulkRequest{UserID: "nobody"})).ID
	}
	if fresh("keyId") {
		n.ids["keyId"] = must[v1.APIKey](n.t)(n.api.CreateAPIKey(n.t.Context(), v1.APIKeyCreate{Role: "runner", Name: notForOthers})).ID
	}
	if strings.Contains(path, "{endUserId}") {
		n.ids["endUserId"] = n.own.ID
		if row.Route == "DELETE /end-users/{endUserId}" {
			n.ids["endUserId"] = must[v1.EndUser](n.t)(n.api.CreateEndUser(n.t.Context(), v1.EndUserCreate{Name: notForOthers})).ID
		}
	}
	if strings.Contains(path, "{systemId}") && method == "DELETE" && strings.HasPrefix(path, "/systems") {
		n.ids["systemId"] = must[v1.System](n.t)(n.api.CreateSystem(n.t.Context(), v1.SystemCreate{ID: fmt.Sprint("system-", time.Now().UnixNano()), Name: notForOthers, URL: n.hang})).ID
	} else {
		n.ids["systemId"] = "crm"
	}
	for name, id := range n.ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	if strings.ContainsAny(path, "{}") {
		n.t.Fatalf("%s: this test does not know how to make what the path is about: teach it in path", row.Route)
	}
	return path
}

// newRun starts a run for the end user, and waits for its end unless it is to stay.
func (n *accessNode) newRun(running bool) string {
	n.t.Helper()
	options := &v1.RunOptions{EndUserID: n.own.ID}
	tool := n.ids["toolId"]
	if running {
		options.Async = true
		tool = n.tool(n.t, `{"name":"`+notForOthers+`","steps":[{"id":"fetch","config":{"url":"`+n.hang+`"}}]}`)
	}
	return n.run(n.t, tool, v1.RunRequest{Options: options}).RunID
}

// ask sends a request and gives its status and answer.
func (n *accessNode) ask(method, path, key, body string) (int, string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, n.url+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestAccess asks every route with every kind of key, on a whole node: the status is that
// of access.yaml, and nobody reads what is not theirs.
func TestAccess(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../api/testdata/access.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rows []accessRow
	if err := yaml.Unmarshal(text, &rows); err != nil || len(rows) < 30 {
		t.Fatal(len(rows), err)
	}
	n := newAccessNode(t)
	eventually(t, 10*time.Second, func() error { // the expired key
		if status, body := n.ask("GET", "/me", n.refused[3], ""); status != 401 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	for _, row := range rows {
		if row.Open != 0 {
			continue // a link to a file is made in TestFiles
		}
		method, _, _ := strings.Cut(row.Route, " ")
		path := n.path(row)
		for _, key := range n.refused {
			if status, body := n.ask(method, path, key, row.Body); status != 401 || strings.Contains(body, notForOthers) {
				t.Errorf("%s with the key %.5q that is no good: %d %s", row.Route, key, status, body)
			}
		}
		for _, c := range []struct {
			who  string
			want int
		}{{"foreign", row.Foreign}, {"other", row.Other}, {"limited", row.Limited}, {"runner", row.Runner}, {"own", row.Own}, {"member", row.Member}, {"admin", row.Admin}} {
			status, body := n.ask(method, path, n.keys[c.who], strings.ReplaceAll(row.Body, "{new}", "new-"+c.who))
			if status != c.want {
				t.Errorf("%s with the key of %s: %d %s, want %d", row.Route, c.who, status, body, c.want)
			}
			secret := status >= 400 || c.who == "other"
			if secret && strings.Contains(body, notForOthers) || strings.Contains(body, "very-secret") {
				t.Errorf("%s with the key of %s shows what is not for them: %s", row.Route, c.who, body)
			}
			if status < 400 && method != "GET" {
				path = n.path(row) // it may be gone, or have changed
			}
		}
	}
	n.checkAudit()
}

// checkAudit reads the whole log: every change is there, with who made it and no secret.
func (n *accessNode) checkAudit() {
	n.t.Helper()
	actions := map[string]int{}
	for page, more := 1, true; more; page++ {
		list := must[v1.List[v1.AuditEntry]](n.t)(n.api.ListAudit(n.t.Context(), client.Page{Page: page, Limit: 100}))
		more = list.HasMore
		for _, e := range list.Data {
			actions[e.Action]++
			if e.ID == "" || e.UserID == "" || e.Target == "" || e.CreatedAt.IsZero() || !strings.HasPrefix(e.Action, e.TargetType+".") {
				n.t.Errorf("the audit log has %+v", e)
			}
			if text := fmt.Sprint(e); strings.Contains(text, "very-secret") || strings.Contains(text, "sw_") {
				n.t.Errorf("the audit log has a secret: %s", text)
			}
		}
	}
	for _, action := range []string{"key.create", "key.update", "key.delete", "tool.create", "tool.update", "tool.delete", "tool.restore", "run.cancel", "state.update",
		"state.reset", "system.create", "system.update", "system.delete", "end_user.create", "end_user.update", "end_user.delete",
		"end_user_credentials.update", "end_user_credentials.delete", "portal_link.create", "delivery.redeliver", "webhook_secret.create"} {
		if actions[action] == 0 {
			n.t.Errorf("the audit log has no %s", action)
		}
	}
}

// TestRevocationReachesEveryServer: a second server, which knows the keys, refuses them
// within a second after they were revoked on the first.
func TestRevocationReachesEveryServer(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	second := startParts(t, n.cfg, app.Parts{Server: true})
	ctx := t.Context()
	user := must[v1.EndUser](t)(n.api.CreateEndUser(ctx, v1.EndUserCreate{}))
	key := must[v1.APIKey](t)(n.api.CreateAPIKey(ctx, v1.APIKeyCreate{Role: "member"}))
	demoted := must[v1.APIKey](t)(n.api.CreateAPIKey(ctx, v1.APIKeyCreate{Role: "member"}))
	for what, c := range map[string]struct {
		key    string
		revoke func() error
		status int
	}{
		"a deleted end user": {user.APIKey, func() error { return n.api.DeleteEndUser(ctx, user.ID) }, 401},
		"a deleted key":      {key.Key, func() error { return n.api.DeleteAPIKey(ctx, key.ID) }, 401},
		"a demoted key": {demoted.Key, func() error {
			_, err := n.api.UpdateAPIKey(ctx, demoted.ID, v1.APIKeyUpdate{Role: v1.Some("runner")})
			return err
		}, 403},
	} {
		there := client.New(second.url, c.key)
		ask := func() error {
			_, err := there.CreateTool(ctx, v1.ToolCreate{OutputTransform: "(s) => 1"})
			return err
		}
		if status := client.Status(ask()); status != 0 && what != "a deleted end user" {
			t.Errorf("%s: before it was, the answer is %d", what, status)
		}
		if err := c.revoke(); err != nil {
			t.Fatal(err)
		}
		eventually(t, stacktest.Promised(time.Second), func() error {
			if err := ask(); client.Status(err) != c.status {
				return fmt.Errorf("%s: the second server answers %v", what, err)
			}
			return nil
		})
	}
}
