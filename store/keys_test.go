package store

import (
	"sync/atomic"
	"testing"
	"time"

	"stepwell"
)

func (ts *testStore) apiKey(k stepwell.APIKey, hash string) *stepwell.APIKey {
	ts.t.Helper()
	k.OrgID = ts.org
	saved, inserted, err := ts.InsertKey(ts.t.Context(), &k, []byte(hash))
	ts.noError(err)
	if !inserted {
		ts.t.Fatal("the key was not saved")
	}
	return saved
}

func TestKeysAuthenticate(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	hour := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	admin := ts.apiKey(stepwell.APIKey{Name: "a", Role: stepwell.RoleAdmin}, "admin")
	runner := ts.apiKey(stepwell.APIKey{Name: "r", Role: stepwell.RoleRunner, Tools: []string{"x"}, ExpiresAt: hour, UserID: "bob"}, "runner")
	ts.apiKey(stepwell.APIKey{Name: "old", Role: stepwell.RoleMember, ExpiresAt: time.Now().Add(-time.Second)}, "old")
	none := ts.apiKey(stepwell.APIKey{Name: "n", Role: stepwell.RoleRunner, Tools: []string{}}, "none")

	c, expires, err := ts.CallerByKey(t.Context(), []byte("admin"))
	ts.noError(err)
	if c.OrgID != ts.org || c.OrgName != "one" || c.KeyID != admin.ID || c.UserID != admin.ID || c.Role != "admin" || c.Tools != nil || !expires.IsZero() {
		t.Errorf("the admin is %+v until %v", c, expires)
	}
	c, expires, err = ts.CallerByKey(t.Context(), []byte("runner"))
	ts.noError(err)
	if c.KeyID != runner.ID || c.UserID != "bob" || len(c.Tools) != 1 || !expires.Equal(hour) {
		t.Errorf("the runner is %+v until %v", c, expires)
	}
	if c, _, err = ts.CallerByKey(t.Context(), []byte("none")); err != nil || c.Tools == nil || len(c.Tools) != 0 || c.KeyID != none.ID {
		t.Errorf("a key for no tools is %+v (%v): nil would mean all", c, err)
	}
	for _, hash := range []string{"old", "unknown", ""} {
		_, _, err := ts.CallerByKey(t.Context(), []byte(hash))
		wantKind(t, hash, err, stepwell.KindUnauthorized)
	}
	if _, inserted, err := ts.InsertKey(t.Context(), &stepwell.APIKey{OrgID: ts.org, Name: "b", Role: "member"}, []byte("admin")); err != nil || inserted {
		t.Errorf("the same key was saved again (%v)", err)
	}
	used := time.Now().Truncate(time.Millisecond)
	ts.noError(ts.TouchKeys(t.Context(), map[[2]string]time.Time{{ts.org, admin.ID}: used}))
	ts.noError(ts.TouchKeys(t.Context(), map[[2]string]time.Time{{ts.org, admin.ID}: used.Add(-time.Hour)}))
	keys, total, err := ts.ListKeys(t.Context(), ts.org, 1, 2)
	ts.noError(err)
	if total != 4 || len(keys) != 2 || keys[0].ID != none.ID {
		t.Errorf("%d of %d keys, the first %s", len(keys), total, keys[0].Name)
	}
	keys, _, err = ts.ListKeys(t.Context(), ts.org, 2, 2)
	ts.noError(err)
	if last := keys[1]; last.ID != admin.ID || !last.LastUsedAt.Equal(used) {
		t.Errorf("the oldest key is %+v", last)
	}
}

func TestTheLastAdminKeyStays(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	first := ts.apiKey(stepwell.APIKey{Name: "first", Role: stepwell.RoleAdmin}, "1")
	expired := ts.apiKey(stepwell.APIKey{Name: "expired", Role: stepwell.RoleAdmin, ExpiresAt: time.Now().Add(-time.Second)}, "2")
	demote := func(k *stepwell.APIKey) error { k.Role = stepwell.RoleMember; return nil }
	expire := func(k *stepwell.APIKey) error { k.ExpiresAt = time.Now().Add(-time.Second); return nil }
	for name, change := range map[string]func(*stepwell.APIKey) error{"delete": nil, "demote": demote, "expire": expire} {
		_, err := ts.UpdateKey(t.Context(), ts.org, first.ID, change)
		wantKind(t, name, err, stepwell.KindInvalid)
	}
	if c, _, err := ts.CallerByKey(t.Context(), []byte("1")); err != nil || c.Role != stepwell.RoleAdmin {
		t.Errorf("after three refusals the key is %+v (%v)", c, err)
	}
	if _, err := ts.UpdateKey(t.Context(), ts.org, expired.ID, nil); err != nil {
		t.Error("an expired admin key was not deleted:", err)
	}
	_, err := ts.UpdateKey(t.Context(), ts.org, "none", nil)
	wantKind(t, "a missing key", err, stepwell.KindNotFound)
	second := ts.apiKey(stepwell.APIKey{Name: "second", Role: stepwell.RoleAdmin}, "3")
	// Two admins who delete each other: one of them stays.
	var deleted atomic.Int32
	parallel(2, func(i int) {
		if _, err := ts.UpdateKey(t.Context(), ts.org, []string{first.ID, second.ID}[i], nil); err == nil {
			deleted.Add(1)
		}
	})
	if deleted.Load() != 1 || ts.count(`SELECT count(*) FROM api_keys WHERE role = 'admin'`) != 1 {
		t.Errorf("%d of two admin keys were deleted", deleted.Load())
	}
}

func TestFirstOrganization(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	must[string](t)(ts.CreateOrganization(t.Context(), "two"))
	if id := must[string](t)(ts.FirstOrganization(t.Context())); id != ts.org {
		t.Error("the first organization is not the oldest")
	}
	ts.exec(`DELETE FROM organizations`)
	if id := must[string](t)(ts.FirstOrganization(t.Context())); id != "" {
		t.Errorf("no organization reads as %q", id)
	}
}
