package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell"
)

// person saves an end user whose key has its name as hash.
func (ts *testStore) person(name string, allowed ...string) *stepwell.EndUser {
	ts.t.Helper()
	u, err := ts.CreateEndUser(ts.t.Context(), &stepwell.EndUser{OrgID: ts.org, ExternalID: name, AllowedSystems: allowed}, []byte(name), nil)
	ts.noError(err)
	return u
}

func TestEndUsers(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	other := must[string](t)(ts.CreateOrganization(ctx, "two"))
	ann := ts.person("ann")
	full := &stepwell.EndUser{OrgID: ts.org, ExternalID: "bob", Email: "b@example.com", Name: "Bob", Metadata: []byte(`{"a":[null]}`), AllowedSystems: []string{"crm", "mail"}}
	bob, err := ts.CreateEndUser(ctx, full, []byte("bob"), []string{"orders"})
	ts.noError(err)
	got := must[*stepwell.EndUser](t)(ts.EndUser(ctx, ts.org, bob.ID))
	if got.ExternalID != "bob" || got.Email != full.Email || got.Name != "Bob" || string(got.Metadata) != `{"a":[null]}` || !slices.Equal(got.AllowedSystems, full.AllowedSystems) || got.CreatedAt.IsZero() {
		t.Errorf("bob is %+v", got)
	}
	if ann.AllowedSystems == nil || len(ann.AllowedSystems) != 0 || ann.Metadata != nil || ann.ID == "" {
		t.Errorf("ann is %+v", ann)
	}
	c, _, err := ts.CallerByKey(ctx, []byte("bob"))
	ts.noError(err)
	if c.Role != stepwell.RoleEndUser || c.EndUserID != bob.ID || c.UserID != bob.ID || !slices.Equal(c.Tools, []string{"orders"}) {
		t.Errorf("bob's key is %+v", c)
	}
	if keys, total, err := ts.ListKeys(ctx, ts.org, 1, 10); err != nil || total != 0 || len(keys) != 0 {
		t.Errorf("%d keys of end users are among the keys (%v)", total, err)
	}
	_, err = ts.UpdateKey(ctx, ts.org, c.KeyID, nil)
	wantKind(t, "an end user's key by its id", err, stepwell.KindNotFound)

	_, err = ts.CreateEndUser(ctx, &stepwell.EndUser{OrgID: ts.org, ExternalID: "ann"}, []byte("x"), nil)
	wantKind(t, "a taken externalId", err, stepwell.KindConflict)
	_, err = ts.UpdateEndUser(ctx, ts.org, bob.ID, func(u *stepwell.EndUser) error { u.ExternalID = "ann"; return nil })
	wantKind(t, "a change to a taken externalId", err, stepwell.KindConflict)
	_, err = ts.CreateEndUser(ctx, &stepwell.EndUser{OrgID: other, ExternalID: "ann"}, []byte("theirs"), nil)
	ts.noError(err)
	for range 2 { // any number may have none
		_, err = ts.UpdateEndUser(ctx, ts.org, ann.ID, func(u *stepwell.EndUser) error { u.ExternalID = ""; return nil })
		ts.noError(err)
		ann = ts.person("ann" + fmt.Sprint(time.Now().UnixNano()))
	}
	users, total, err := ts.ListEndUsers(ctx, ts.org, 1, 2)
	ts.noError(err)
	if total != 4 || len(users) != 2 || users[0].ID != ann.ID {
		t.Errorf("%d of %d end users", len(users), total)
	}
	for name, call := range map[string]func(org string) error{
		"read":   func(org string) error { _, err := ts.EndUser(ctx, org, bob.ID); return err },
		"change": func(org string) error { _, err := ts.UpdateEndUser(ctx, org, bob.ID, nil); return err },
		"delete": func(org string) error { return ts.DeleteEndUser(ctx, org, bob.ID) },
		"access": func(org string) error { _, err := ts.SystemAccess(ctx, org, bob.ID, nil, "prod"); return err },
		"link":   func(org string) error { return ts.PutPortalLink(ctx, org, bob.ID, []byte("h"), time.Now()) },
	} {
		wantKind(t, name+" from another organization", call(other), stepwell.KindNotFound)
	}
}

// TestDeletedEndUser: what an end user had goes with it; its runs stay.
func TestDeletedEndUser(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	u := ts.person("ann", stepwell.AllSystems)
	ts.noError(ts.CreateSystem(ctx, &stepwell.System{OrgID: ts.org, ID: "crm", Environment: "prod", MultiTenancyMode: stepwell.TenancyEnabled}))
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, u.ID, "crm", map[string]string{"token": "t"}))
	ts.noError(ts.PutPortalLink(ctx, ts.org, u.ID, []byte("link"), time.Now().Add(time.Hour)))
	ts.noError(ts.OpenPortalSession(ctx, []byte("link"), []byte("session"), time.Now().Add(time.Hour)))
	run := ts.run("r", "", func(r *stepwell.Run) { r.Options.EndUserID = u.ID })
	ts.noError(ts.DeleteEndUser(ctx, ts.org, u.ID))
	for _, table := range []string{"api_keys", "end_user_credentials", "portal_links", "portal_sessions"} {
		if n := ts.count("SELECT count(*) FROM " + table); n != 0 {
			t.Errorf("%d rows are left in %s", n, table)
		}
	}
	runs, _, _, err := ts.ListRuns(ctx, ts.org, RunQuery{EndUserID: u.ID, Page: 1, Limit: 10})
	ts.noError(err)
	if len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("the runs of a deleted end user are %v", runs)
	}
	if runs, _, _, err := ts.ListRuns(ctx, ts.org, RunQuery{EndUserID: "another", Page: 1, Limit: 10}); err != nil || len(runs) != 0 {
		t.Errorf("another end user has the runs %v (%v)", runs, err)
	}
	_, _, err = ts.CallerByKey(ctx, []byte("ann"))
	wantKind(t, "the key", err, stepwell.KindUnauthorized)
	wantKind(t, "deleting it again", ts.DeleteEndUser(ctx, ts.org, u.ID), stepwell.KindNotFound)
}

func TestSystemAccess(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	system := func(id, environment, tenancy string) {
		ts.noError(ts.CreateSystem(ctx, &stepwell.System{OrgID: ts.org, ID: id, Environment: environment, Name: strings.ToUpper(id), MultiTenancyMode: tenancy}))
	}
	system("plain", "prod", stepwell.TenancyDisabled)
	system("crm", "prod", stepwell.TenancyEnabled)
	system("mail", "prod", stepwell.TenancyEnabled)
	system("mixed", "prod", stepwell.TenancyEnabled)
	system("mixed", "dev", stepwell.TenancyDisabled)
	all, some := ts.person("all", stepwell.AllSystems), ts.person("some", "crm", "gone")
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, all.ID, "crm", map[string]string{"token": "t"}))
	for _, test := range []struct {
		user    *stepwell.EndUser
		mode    string
		systems []string
		want    string
	}{
		{all, "prod", nil, "[] []"},
		{all, "prod", []string{"plain", "crm", "crm"}, "[] []"},
		{all, "prod", []string{"mixed", "mail", "crm"}, "[] [mail mixed]"},
		{all, "dev", []string{"mixed", "mail"}, "[] [mail]"}, // mail has no dev: that of prod is used
		{all, "prod", []string{"gone"}, "[] []"},
		{some, "prod", []string{"plain", "gone", "crm"}, "[plain] [crm]"},
		{some, "prod", []string{"elsewhere"}, "[elsewhere] []"},
	} {
		a, err := ts.SystemAccess(ctx, ts.org, test.user.ID, test.systems, test.mode)
		if got := fmt.Sprint(a.Forbidden, a.Missing); err != nil || got != test.want {
			t.Errorf("%s uses %v in %s: %s, want %s (%v)", test.user.ExternalID, test.systems, test.mode, got, test.want, err)
		}
	}
	show := func(u *stepwell.EndUser) string {
		return fmt.Sprint(must[[]stepwell.Connection](t)(ts.Connections(ctx, ts.org, u.ID)))
	}
	if got := show(all); got != "[{crm CRM true} {mail MAIL false} {mixed MIXED false}]" {
		t.Error("all is connected to", got)
	}
	if got := show(some); got != "[{crm CRM false}]" {
		t.Error("some is connected to", got)
	}
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, some.ID, "plain", map[string]string{"token": "t"}))
	if got := show(some); got != "[{crm CRM false} {plain PLAIN true}]" {
		t.Error("some is connected to", got)
	}
}

func TestPortalLinks(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	u := ts.person("ann")
	hour := time.Now().Add(time.Hour)
	link := func(hash string, expires time.Time) {
		ts.noError(ts.PutPortalLink(ctx, ts.org, u.ID, []byte(hash), expires))
	}
	open := func(link, session string, expires time.Time) error {
		return ts.OpenPortalSession(ctx, []byte(link), []byte(session), expires)
	}
	link("one", hour)
	for range 2 { // a link may be used again
		g, err := ts.PortalLink(ctx, []byte("one"))
		if err != nil || g.OrgID != ts.org || g.EndUserID != u.ID {
			t.Errorf("the link is of %+v (%v)", g, err)
		}
	}
	ts.noError(open("one", "first", hour))
	ts.noError(open("one", "second", hour))
	link("two", hour)
	wantKind(t, "a replaced link", open("one", "third", hour), stepwell.KindUnauthorized)
	_, err := ts.PortalLink(ctx, []byte("one"))
	wantKind(t, "a replaced link that is read", err, stepwell.KindUnauthorized)
	for _, session := range []string{"first", "second"} { // opened earlier: they end with their hour
		if g, err := ts.PortalSession(ctx, []byte(session)); err != nil || g.OrgID != ts.org || g.EndUserID != u.ID {
			t.Errorf("session %s is of %+v (%v)", session, g, err)
		}
	}
	link("three", time.Now().Add(-time.Second))
	wantKind(t, "an expired link", open("three", "third", hour), stepwell.KindUnauthorized)
	link("four", hour)
	ts.noError(open("four", "over", time.Now().Add(-time.Second)))
	_, err = ts.PortalSession(ctx, []byte("over"))
	wantKind(t, "a session that is over", err, stepwell.KindUnauthorized)
	ts.noError(open("four", "last", hour))
	if n := ts.count(`SELECT count(*) FROM portal_sessions`); n != 3 {
		t.Errorf("%d sessions are kept, want 3: one is over", n)
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	other := must[string](t)(ts.CreateOrganization(ctx, "two"))
	for i := range 5 {
		ts.noError(ts.AddAudit(ctx, stepwell.AuditEntry{OrgID: ts.org, UserID: "ann", Action: "tool.update", TargetType: "tool", Target: fmt.Sprint(i), TraceID: "t"}))
	}
	ts.noError(ts.AddAudit(ctx, stepwell.AuditEntry{UserID: "command line", Action: "encryption_key.rotate", TargetType: "encryption_key", Target: "second"}))
	rows, total, more, err := ts.ListAudit(ctx, ts.org, 1, 2)
	ts.noError(err)
	if total != 6 || !more || len(rows) != 2 || rows[0].UserID != "command line" || rows[1].Target != "4" || rows[1].ID == "" || rows[1].CreatedAt.IsZero() || rows[1].TraceID != "t" {
		t.Errorf("%d of %d rows, more %v: %+v %+v", len(rows), total, more, rows[0], rows[1])
	}
	if rows, _, more, err = ts.ListAudit(ctx, ts.org, 3, 2); err != nil || more || len(rows) != 2 || rows[1].Target != "0" {
		t.Errorf("the last page has %d rows, more %v (%v)", len(rows), more, err)
	}
	if rows, total, _, err := ts.ListAudit(ctx, other, 1, 10); err != nil || total != 1 || rows[0].OrgID != other {
		t.Errorf("the other organization has %d rows (%v)", total, err)
	}
}
