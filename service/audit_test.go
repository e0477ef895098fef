package service

import (
	"strings"
	"testing"

	"stepwell/internal/secret"
)

// TestAuditWithoutAKey: what the configuration and the command line make is in the log,
// once, and without the keys' texts.
func TestAuditWithoutAKey(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	ctx := t.Context()
	const preset = "preset-key-0123456789"
	for range 2 { // the second start makes nothing
		if _, err := ts.EnsureAdmin(ctx, preset); err != nil {
			t.Fatal(err)
		}
	}
	key, err := CreateOrganization(ctx, ts.Store, "two")
	if err != nil {
		t.Fatal(err)
	}
	made, err := ts.Keys().Authenticate(ctx, [32]byte(secret.HashAPIKey(key)))
	if err != nil {
		t.Fatal(err)
	}
	for org, want := range map[string]string{
		ts.org:     "configuration key.create",
		made.OrgID: "command line key.create, command line organization.create",
	} {
		list, err := ts.Audit().List(ctx, org, 1, 10)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list.Items {
			got = append(got, e.UserID+" "+e.Action)
			if e.Target == "" || e.OrgID != org || strings.Contains(e.Target, preset) || strings.Contains(e.Target, key) {
				t.Errorf("the log has %+v", e)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("the log has %q, want %q", got, want)
		}
	}
}
