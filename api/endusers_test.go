package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"stepwell"
)

// Ids of end users: of one that is there, and of none.
const (
	testEndUser = "0198a5a8-0000-7000-8000-00000000000a"
	noEndUser   = "0198a5a8-0000-7000-8000-00000000000b"
)

type memoryEndUsers struct{ *memory }

func (m memoryEndUsers) user(org, id string) (*stepwell.EndUser, error) {
	if org != "acme" || id != testEndUser {
		return nil, stepwell.NotFound("End user")
	}
	return &stepwell.EndUser{ID: id, OrgID: org, ExternalID: "u-1", Email: "ann@example.com", Name: "Ann", Metadata: json.RawMessage(`{"plan":null}`),
		AllowedSystems: []string{"crm"}, CreatedAt: memoryTime, UpdatedAt: memoryTime}, m.fail
}

func (m memoryEndUsers) Create(_ context.Context, u *stepwell.EndUser, tools []string) (*stepwell.EndUser, string, error) {
	if u.ExternalID == "u-1" {
		return nil, "", stepwell.Errorf(stepwell.KindConflict, "external_id_taken", "Another end user has the externalId 'u-1'")
	}
	created := *u
	created.ID, created.CreatedAt, created.UpdatedAt = testEndUser, memoryTime, memoryTime
	return &created, "sw_secret of " + strings.Join(tools, ","), m.fail
}

func (m memoryEndUsers) Get(_ context.Context, org, id string) (*stepwell.EndUser, []stepwell.Connection, error) {
	u, err := m.user(org, id)
	return u, []stepwell.Connection{{SystemID: "crm", SystemName: "CRM", HasCredentials: true}}, err
}

func (m memoryEndUsers) List(context.Context, string, int, int) (Listed[*stepwell.EndUser], error) {
	u, err := m.user("acme", testEndUser)
	return Listed[*stepwell.EndUser]{Items: []*stepwell.EndUser{u}, Total: 1}, err
}

func (m memoryEndUsers) Update(_ context.Context, org, id string, change func(*stepwell.EndUser) error) (*stepwell.EndUser, error) {
	u, err := m.user(org, id)
	if err == nil {
		err = change(u)
	}
	return u, err
}

func (m memoryEndUsers) Delete(_ context.Context, org, id string) error {
	_, err := m.user(org, id)
	return err
}

func (m memoryEndUsers) Connect(_ context.Context, org, id, system string, _ map[string]string) error {
	if system != "crm" {
		return stepwell.NotFound("System")
	}
	return m.Delete(context.Background(), org, id)
}

func (m memoryEndUsers) Disconnect(ctx context.Context, org, id, _ string) error {
	return m.Delete(ctx, org, id)
}

func (m memoryEndUsers) Access(_ context.Context, org, id string, t *stepwell.Tool, mode string) (a stepwell.SystemAccess, err error) {
	if t.ID == "refunds" {
		a.Forbidden = []string{"bank"}
	}
	if mode != stepwell.ModeProd {
		a.Missing = []string{"crm", "mail"}
	}
	_, err = m.user(org, id)
	return a, err
}

func (m memoryEndUsers) PortalLink(_ context.Context, org, id string) (string, time.Time, error) {
	_, err := m.user(org, id)
	return "TOKEN", memoryTime, err
}

type memoryAudit struct{ *memory }

func (m memoryAudit) Add(_ context.Context, e stepwell.AuditEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.audit = append(m.audit, &e)
	return m.fail
}

func (m memoryAudit) List(context.Context, string, int, int) (Listed[*stepwell.AuditEntry], error) {
	rows := []*stepwell.AuditEntry{
		{ID: "a2", CreatedAt: memoryTime, UserID: "ann", Action: "tool.update", TargetType: "tool", Target: "orders", TraceID: "t"},
		{ID: "a1", CreatedAt: memoryTime, UserID: "command line", Action: "organization.create", TargetType: "organization", Target: "acme"},
	}
	return Listed[*stepwell.AuditEntry]{Items: rows, Total: 2}, m.fail
}

// runAs starts a run of a tool with a key and gives the end user that it is for.
func runAs(t *testing.T, key, tool, options string) (*http.Response, string, string) {
	t.Helper()
	m := newMemory()
	req := newRequest(t, "POST", prefix+"/tools/"+tool+"/run", strings.NewReader(`{"options":{`+options+`}}`))
	req.Header.Set("Authorization", "Bearer "+key)
	res, body := ask(newTestAPI(m, nil), req)
	return res, string(body), m.last.Options.EndUserID
}

// TestForWhomARunIs covers the end user that a run is recorded for.
func TestForWhomARunIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, key, tool, options string
		status                   int
		want                     string // the end user, or a part of the message
	}{
		{"an end user's key", "user-key", "orders", ``, 202, testEndUser},
		{"an end user's key that says so", "user-key", "orders", `"endUserId":"` + testEndUser + `"`, 202, testEndUser},
		{"an end user's key for another", "user-key", "orders", `"endUserId":"` + noEndUser + `"`, 403, "Run not allowed: an end user's key runs for that end user only"},
		{"an end user's key for nonsense", "user-key", "orders", `"endUserId":"x"`, 403, "Run not allowed"},
		{"a member on behalf", "member-key", "orders", `"endUserId":"` + strings.ToUpper(testEndUser) + `"`, 202, testEndUser},
		{"a member for nobody", "member-key", "orders", ``, 202, ""},
		{"a member for a missing one", "member-key", "orders", `"endUserId":"` + noEndUser + `"`, 400, "'options.endUserId' must be the id of an end user"},
		{"a member for nonsense", "admin-key", "orders", `"endUserId":"x"`, 400, "'options.endUserId' must be"},
		{"another organization's end user", "other-key", "mine", `"endUserId":"` + testEndUser + `"`, 404, "Tool not found"},
		{"a runner on behalf", "runner-key", "orders", `"endUserId":"` + testEndUser + `"`, 403, "Run not allowed: this API key (role runner)"},
		{"a system that is not connected", "user-key", "orders", `"mode":"dev"`, 403, "Run not allowed: the end user must connect: crm, mail"},
		{"on behalf, not connected", "member-key", "orders", `"mode":"dev","endUserId":"` + testEndUser + `"`, 403, "Run not allowed: the end user must connect: crm, mail"},
		{"a system that is not allowed", "user-key", "refunds", ``, 403, "Run not allowed: the end user may not use: bank"},
		{"not connected comes before archived", "user-key", "archived", `"mode":"dev"`, 403, "must connect"},
	} {
		res, body, id := runAs(t, c.key, c.tool, c.options)
		if res.StatusCode != c.status || c.status == 202 && id != c.want || c.status != 202 && !strings.Contains(body, c.want) {
			t.Errorf("%s: %d for %q: %s", c.name, res.StatusCode, id, body)
		}
	}
}

// TestRerunStaysWithItsEndUser: who may not name an end user may rerun a run of one.
func TestRerunStaysWithItsEndUser(t *testing.T) {
	t.Parallel()
	m := newMemory()
	req := newRequest(t, "POST", prefix+"/runs/theirs/rerun", strings.NewReader(`{"fromStep":"fetch"}`))
	req.Header.Set("Authorization", "Bearer runner-key")
	if res, body := ask(newTestAPI(m, nil), req); res.StatusCode != 202 || m.last.Options.EndUserID != testEndUser {
		t.Errorf("%d for %q: %s", res.StatusCode, m.last.Options.EndUserID, body)
	}
}

// TestEndUsersSeeNoTools: an end user's key gets its runs without the configuration.
func TestEndUsersSeeNoTools(t *testing.T) {
	t.Parallel()
	h := newTestAPI(newMemory(), nil)
	for _, path := range []string{"/runs/theirs", "/runs/theirs/events", "/runs/theirs/results", "/runs"} {
		for key, want := range map[string]bool{"user-key": false, "member-key": strings.HasSuffix(path, "theirs") || strings.HasSuffix(path, "events")} {
			req := newRequest(t, "GET", prefix+path, nil)
			req.Header.Set("Authorization", "Bearer "+key)
			res, body := ask(h, req)
			if res.StatusCode != 200 || strings.Contains(string(body), "https://example.com/<<") != want {
				t.Errorf("%s with %s: %d %s", path, key, res.StatusCode, body)
			}
			if key == "user-key" && strings.Contains(string(body), "run-1") {
				t.Errorf("%s: another's run is in %s", path, body)
			}
		}
	}
}
