package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// TestEndUsersCredentials runs tools for end users: with what they connected, with nothing
// else, and not at all where that is missing or not allowed.
func TestEndUsersCredentials(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	ctx, up := t.Context(), echo(t)
	n.system(t, v1.SystemCreate{ID: "crm", URL: up, MultiTenancyMode: "enabled", Credentials: map[string]string{"token": "stored-token"}})
	n.system(t, v1.SystemCreate{ID: "mail", URL: up, MultiTenancyMode: "enabled"})
	n.system(t, v1.SystemCreate{ID: "erp", URL: up, Credentials: map[string]string{"token": "erp-token"}})
	tool := func(id, system string) string {
		return n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"one","config":{"url":"<<%s_url>>","systemId":%q,"headers":{"A":"<<%s_token>>"}}}],"outputTransform":"(s) => ({token: s.one.data.a})"}`, id, system, system, system))
	}
	crm, erp := tool("of-crm", "crm"), tool("of-erp", "erp")
	both := n.tool(t, `{"steps":[{"id":"a","config":{"url":"<<crm_url>>","systemId":"crm"}},{"id":"b","config":{"url":"<<mail_url>>","systemId":"mail"}}]}`)
	user := func(allowed ...string) (*v1.EndUser, *client.Client) {
		u := must[v1.EndUser](t)(n.api.CreateEndUser(ctx, v1.EndUserCreate{AllowedSystems: allowed}))
		return u, client.New(n.url, u.APIKey)
	}
	ann, annAsks := user("*")
	bob, bobAsks := user("crm", "mail")
	refused := func(what string, err error, want string) {
		t.Helper()
		if client.Status(err) != 403 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want a 403 that says %s", what, err, want)
		}
	}
	token := func(run *v1.Run, err error) string {
		t.Helper()
		if err != nil || run.Status != "success" {
			t.Fatalf("%+v %v", run, err)
		}
		var data struct{ Token string }
		if err := json.Unmarshal(run.Data, &data); err != nil {
			t.Fatal(err)
		}
		return data.Token
	}
	_, err := annAsks.Run(ctx, both, v1.RunRequest{})
	refused("nothing connected", err, "Run not allowed: the end user must connect: crm, mail")
	if err := annAsks.ConnectEndUser(ctx, ann.ID, "crm", map[string]string{"token": "token-of-ann"}); err != nil {
		t.Fatal(err)
	}
	if err := n.api.ConnectEndUser(ctx, bob.ID, "crm", map[string]string{"token": "token-of-bob"}); err != nil {
		t.Fatal(err)
	}
	_, err = annAsks.Run(ctx, both, v1.RunRequest{})
	refused("one connected", err, "Run not allowed: the end user must connect: mail")
	err = annAsks.ConnectEndUser(ctx, bob.ID, "crm", map[string]string{"token": "x"})
	refused("another's credentials", err, "not allowed")
	_, err = bobAsks.Run(ctx, erp, v1.RunRequest{})
	refused("a system that is not allowed", err, "Run not allowed: the end user may not use: erp")

	own := must[v1.Run](t)(annAsks.Run(ctx, crm, v1.RunRequest{}))
	for what, got := range map[string]string{
		"token-of-ann": token(own, nil),
		"token-of-bob": token(n.api.Run(ctx, crm, v1.RunRequest{Options: &v1.RunOptions{EndUserID: bob.ID}})),
		"stored-token": token(n.api.Run(ctx, crm, v1.RunRequest{})),
		"erp-token":    token(annAsks.Run(ctx, erp, v1.RunRequest{})), // no tenants: the stored ones
	} {
		if got != what {
			t.Errorf("the run used %q, want %q", got, what)
		}
	}
	if own.UserID != ann.ID || own.Options.EndUserID != ann.ID {
		t.Errorf("the run is of %q for %q", own.UserID, own.Options.EndUserID)
	}
	list := must[v1.List[v1.Run]](t)(bobAsks.ListRuns(ctx, client.Page{}, client.RunFilter{}))
	if list.Total != 1 || list.Data[0].Options.EndUserID != bob.ID {
		t.Errorf("bob has %d runs", list.Total)
	}
	got := must[v1.EndUser](t)(n.api.GetEndUser(ctx, bob.ID))
	if fmt.Sprint(*got.Credentials) != "[{crm  true} {mail  false}]" {
		t.Errorf("bob is connected to %v", *got.Credentials)
	}

	// A chain reaches no system that the start did not ask about.
	chained := must[v1.Run](t)(bobAsks.Run(ctx, crm, v1.RunRequest{Options: &v1.RunOptions{Async: true, WebhookURL: "tool:" + erp}}))
	n.waitFinal(t, chained.RunID, 20*time.Second)
	eventually(t, 20*time.Second, func() error {
		children, err := n.api.ListRuns(ctx, client.Page{}, client.RunFilter{RequestSources: "tool-chain"})
		if err != nil || children.Total != 1 || children.Data[0].Status == "running" {
			return fmt.Errorf("%+v %v", children, err)
		}
		if child := children.Data[0]; child.Status != "failed" || !strings.Contains(child.Error, "the end user may not use the system 'erp'") || child.Options.EndUserID != bob.ID {
			t.Errorf("the chained run is %s: %s", child.Status, child.Error)
		}
		return nil
	})

	named := must[v1.EndUser](t)(n.api.UpdateEndUser(ctx, bob.ID, v1.EndUserUpdate{Name: v1.Some("Bob"), AllowedSystems: v1.Null[[]string]()}))
	if users := must[v1.List[v1.EndUser]](t)(n.api.ListEndUsers(ctx, client.Page{Limit: 1})); named.Name != "Bob" || users.Total != 2 || users.Data[0].Name != "Bob" || len(users.Data[0].AllowedSystems) != 0 {
		t.Errorf("the end users are %+v", users)
	}
	_, err = bobAsks.Run(ctx, crm, v1.RunRequest{})
	refused("a system that is no longer allowed", err, "may not use: crm")
	if err := annAsks.DisconnectEndUser(ctx, ann.ID, "crm"); err != nil {
		t.Fatal(err)
	}
	_, err = annAsks.Run(ctx, crm, v1.RunRequest{})
	refused("disconnected", err, "must connect: crm")

	if err := n.api.DeleteEndUser(ctx, ann.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := annAsks.Me(ctx); client.Status(err) != 401 {
		t.Errorf("the key of a deleted end user: %v", err)
	}
	if run := must[v1.Run](t)(n.api.GetRun(ctx, own.RunID)); run.Status != "success" {
		t.Errorf("the run of a deleted end user is %+v", run)
	}
	if _, err := n.api.Rerun(ctx, own.RunID, v1.RerunRequest{FromStep: "one"}); client.Status(err) != 400 || !strings.Contains(err.Error(), "endUserId") {
		t.Errorf("a rerun for a deleted end user: %v", err)
	}
}

// TestPortalLink makes links, of which the last is good, and keeps their tokens to itself.
func TestPortalLink(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	ctx, portal := t.Context(), n.Service.Portal(nil)
	u := must[v1.EndUser](t)(n.api.CreateEndUser(ctx, v1.EndUserCreate{}))
	tokenOf := func(l *v1.PortalLinkData) string {
		address, err := url.Parse(l.PortalURL)
		if err != nil || !strings.HasPrefix(l.PortalURL, n.url+"/portal?token=") {
			t.Fatalf("%s %v", l.PortalURL, err)
		}
		return address.Query().Get("token")
	}
	first := must[v1.PortalLinkData](t)(n.api.PortalLink(ctx, u.ID))
	if left := time.Until(first.ExpiresAt.Time); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the link lives for %s", left)
	}
	second := must[v1.PortalLinkData](t)(n.api.PortalLink(ctx, u.ID))
	if _, err := portal.Look(ctx, tokenOf(first)); err == nil {
		t.Error("the first link is good after the second was made")
	}
	if guest, err := portal.Look(ctx, tokenOf(second)); err != nil || guest.EndUserID != u.ID {
		t.Errorf("the second link is of %+v: %v", guest, err)
	}
	if _, err := client.New(n.url, tokenOf(second)).Me(ctx); client.Status(err) != http.StatusUnauthorized {
		t.Errorf("the link's token as an API key: %v", err)
	}
	for _, entry := range n.log.All() {
		if text := fmt.Sprint(entry.Message, entry.ContextMap()); strings.Contains(text, tokenOf(second)) {
			t.Errorf("the log shows a token: %s", text)
		}
	}
}
