package store

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"stepwell"
)

// system saves a system of the test's organization.
func (ts *testStore) system(id, environment, tenancy string, credentials map[string]string) *stepwell.System {
	ts.t.Helper()
	y := &stepwell.System{OrgID: ts.org, ID: id, Environment: environment, URL: "https://" + environment + ".example",
		MultiTenancyMode: tenancy, Credentials: credentials}
	ts.noError(ts.CreateSystem(ts.t.Context(), y))
	return y
}

// endUser makes an end user who may use all systems.
func (ts *testStore) endUser() string {
	ts.t.Helper()
	id := uuid.NewString()
	_, err := ts.pool.Exec(ts.t.Context(), `INSERT INTO end_users (org_id, id, allowed_systems) VALUES ($1, $2, '{*}')`, ts.org, id)
	ts.noError(err)
	return id
}

func TestSystemsOfEnvironments(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	ts.system("crm", stepwell.ModeDev, stepwell.TenancyDisabled, map[string]string{"token": "dev-secret"})
	if y := must[*stepwell.System](t)(ts.System(ctx, ts.org, "crm", "")); y.Environment != stepwell.ModeDev {
		t.Errorf("without prod the environment is %s", y.Environment)
	}
	ts.system("crm", stepwell.ModeProd, stepwell.TenancyDisabled, map[string]string{"token": "prod-secret"})
	if y := must[*stepwell.System](t)(ts.System(ctx, ts.org, "crm", "")); y.Environment != stepwell.ModeProd || y.Credentials["token"] != "prod-secret" {
		t.Errorf("with both it is %s %v", y.Environment, y.Credentials)
	}
	err := ts.CreateSystem(ctx, &stepwell.System{OrgID: ts.org, ID: "crm", Environment: stepwell.ModeDev, MultiTenancyMode: stepwell.TenancyDisabled})
	wantKind(t, "a taken pair", err, stepwell.KindConflict)
	other := must[string](t)(ts.CreateOrganization(ctx, "two"))
	_, err = ts.System(ctx, other, "crm", "")
	wantKind(t, "another organization's", err, stepwell.KindNotFound)

	changed := must[*stepwell.System](t)(ts.UpdateSystem(ctx, ts.org, "crm", stepwell.ModeDev, func(y *stepwell.System) error {
		y.Credentials["more"] = "x"
		y.CredentialKeys = []string{"more"}
		return nil
	}))
	if changed.Environment != stepwell.ModeDev || !changed.UpdatedAt.After(changed.CreatedAt) {
		t.Errorf("changed: %+v", changed)
	}
	list, total, err := ts.ListSystems(ctx, ts.org, 1, 10)
	ts.noError(err)
	if total != 2 || list[0].Environment != stepwell.ModeProd || len(list[1].Credentials) != 2 || !slices.Equal(list[1].CredentialKeys, []string{"more"}) {
		t.Errorf("%d listed: %+v", total, list)
	}
	ts.noError(ts.DeleteSystem(ctx, ts.org, "crm", ""))
	if y := must[*stepwell.System](t)(ts.System(ctx, ts.org, "crm", "")); y.Environment != stepwell.ModeDev {
		t.Errorf("after prod is deleted: %s", y.Environment)
	}
	wantKind(t, "deleted again", ts.DeleteSystem(ctx, ts.org, "crm", stepwell.ModeProd), stepwell.KindNotFound)
}

func TestRunSystems(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	ts.system("both", stepwell.ModeProd, stepwell.TenancyDisabled, map[string]string{"token": "p", "only": "p"})
	ts.system("both", stepwell.ModeDev, stepwell.TenancyDisabled, map[string]string{"token": "d"})
	ts.system("tenants", stepwell.ModeProd, stepwell.TenancyEnabled, map[string]string{"client_id": "c", "token": "stored"})
	ts.system("unused", stepwell.ModeProd, stepwell.TenancyDisabled, nil)
	ann, bob := ts.endUser(), ts.endUser()
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, ann, "tenants", map[string]string{"token": "old"}))
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, ann, "tenants", map[string]string{"token": "ann"}))
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, ann, "both", map[string]string{"token": "not used"}))
	wantKind(t, "nobody's", ts.PutEndUserCredentials(ctx, ts.org, uuid.NewString(), "tenants", nil), stepwell.KindNotFound)

	for _, test := range []struct {
		mode, user    string
		both, tenants map[string]string
	}{
		{stepwell.ModeProd, "", map[string]string{"token": "p", "only": "p"}, map[string]string{"client_id": "c", "token": "stored"}},
		{stepwell.ModeDev, "", map[string]string{"token": "d"}, map[string]string{"client_id": "c", "token": "stored"}},
		{stepwell.ModeDev, ann, map[string]string{"token": "d"}, map[string]string{"token": "ann"}},
		{stepwell.ModeDev, strings.ToUpper(ann), map[string]string{"token": "d"}, map[string]string{"token": "ann"}},
		{stepwell.ModeProd, bob, map[string]string{"token": "p", "only": "p"}, nil},
	} {
		got := must[map[string]*stepwell.BoundSystem](t)(ts.RunSystems(ctx, ts.org, []string{"both", "tenants", "missing"}, test.mode, test.user))
		if len(got) != 2 || !maps.Equal(got["both"].Values, test.both) || !maps.Equal(got["tenants"].Values, test.tenants) || (test.tenants == nil) != (got["tenants"].Values == nil) {
			t.Errorf("mode %s, end user %q: %+v %+v", test.mode, test.user, got["both"], got["tenants"])
		}
		if tenant := test.user != ""; (got["tenants"].Client != nil) != tenant || (got["tenants"].Place.EndUser != "") != tenant || got["both"].Place.EndUser != "" {
			t.Errorf("mode %s, end user %q: %+v", test.mode, test.user, got["tenants"])
		}
	}
	carl := ts.person("carl", "tenants").ID
	ts.noError(ts.PutEndUserCredentials(ctx, ts.org, carl, "tenants", map[string]string{"token": "carl"}))
	got := must[map[string]*stepwell.BoundSystem](t)(ts.RunSystems(ctx, ts.org, []string{"both", "tenants"}, "prod", carl))
	if !got["both"].Forbidden || got["both"].Values != nil || got["both"].Client != nil || got["tenants"].Forbidden || got["tenants"].Values["token"] != "carl" {
		t.Errorf("who may use one system uses %+v %+v", got["both"], got["tenants"])
	}
	for _, gone := range []string{"no uuid", uuid.NewString()} {
		got := must[map[string]*stepwell.BoundSystem](t)(ts.RunSystems(ctx, ts.org, []string{"both", "tenants"}, "prod", gone))
		if !got["both"].Forbidden || !got["tenants"].Forbidden || got["both"].Values != nil || got["tenants"].Client != nil {
			t.Errorf("the end user %s, who is gone, uses %+v %+v", gone, got["both"], got["tenants"])
		}
	}
	ts.noError(ts.DeleteSystem(ctx, ts.org, "tenants", ""))
	var left int
	ts.noError(ts.pool.QueryRow(ctx, `SELECT count(*) FROM end_user_credentials WHERE system_id = 'tenants'`).Scan(&left))
	if left != 0 {
		t.Error("what was connected to a deleted system is kept")
	}
}

// TestOneTokenPlace: what an end user connected is one row, whichever environment a run
// finds the system in. With two places two runs would renew its token at once.
func TestOneTokenPlace(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, environment := range []string{"prod", "dev"} {
		ts.system("a", environment, stepwell.TenancyEnabled, map[string]string{"k": "v"})
	}
	user := ts.person("ann", "a").ID
	ts.noError(ts.PutEndUserCredentials(t.Context(), ts.org, user, "a", map[string]string{"k": "hers"}))
	places := map[stepwell.CredentialPlace]bool{}
	for _, mode := range []string{stepwell.ModeProd, stepwell.ModeDev} {
		got := must[map[string]*stepwell.BoundSystem](t)(ts.RunSystems(t.Context(), ts.org, []string{"a"}, mode, user))
		places[got["a"].Place] = true
	}
	if len(places) != 1 {
		t.Errorf("the places are %v", places)
	}
}

// TestSealedPlaces swaps sealed rows and flips a bit: neither is opened.
func TestSealedPlaces(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	ts.system("a", stepwell.ModeProd, stepwell.TenancyDisabled, map[string]string{"token": "of a"})
	ts.system("b", stepwell.ModeProd, stepwell.TenancyDisabled, map[string]string{"token": "of b"})
	ts.system("c", stepwell.ModeProd, stepwell.TenancyDisabled, map[string]string{"token": "of c"})
	for _, sql := range []string{
		`UPDATE systems SET sealed = (SELECT sealed FROM systems WHERE id = 'a') WHERE id = 'b'`,
		`UPDATE systems SET sealed = set_bit(sealed, 8 * length(sealed) - 100, 1 - get_bit(sealed, 8 * length(sealed) - 100)) WHERE id = 'c'`,
	} {
		_, err := ts.pool.Exec(ctx, sql)
		ts.noError(err)
	}
	for _, id := range []string{"b", "c"} {
		y, err := ts.System(ctx, ts.org, id, "")
		if err == nil {
			t.Errorf("%s is opened: %v", id, y.Credentials)
		} else if strings.Contains(err.Error(), "of a") {
			t.Errorf("the error shows a secret: %v", err)
		}
		if _, err := ts.RunSystems(ctx, ts.org, []string{"a", id}, stepwell.ModeProd, ""); err == nil {
			t.Errorf("a run opens %s", id)
		}
	}
	must[*stepwell.System](t)(ts.System(ctx, ts.org, "a", ""))
	var plain int
	ts.noError(ts.pool.QueryRow(ctx, `SELECT count(*) FROM systems WHERE position('of '::bytea IN sealed) > 0`).Scan(&plain))
	if plain != 0 {
		t.Error("a secret is in the clear")
	}
}

// notSealed are the other columns of bytes: none of them may hold secrets.
var notSealed = []string{"api_keys.hash", "hook_calls.body", "hook_keys.key", "pages.body", "portal_links.hash", "portal_sessions.hash", "portal_signins.session", "portal_signins.state", "runs.data", "runs.inputs", "selections.body"}

// TestSealedTables compares the list of sealed tables with the schema: a table that is
// forgotten would keep its old key for ever.
func TestSealedTables(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	rows, err := ts.pool.Query(t.Context(), `
SELECT c.table_name || '.' || c.column_name,
       ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (n, at)
             JOIN pg_attribute a ON a.attnum = k.n AND a.attrelid = c.table_name::regclass
             WHERE i.indrelid = c.table_name::regclass AND i.indisprimary ORDER BY k.at)
FROM information_schema.columns c WHERE c.table_schema = 'public' AND c.data_type = 'bytea' ORDER BY 1`)
	ts.noError(err)
	known := map[string][]string{}
	for _, s := range sealedTables {
		known[s.name+".sealed"] = s.key
	}
	var column string
	var key []string
	_, err = pgx.ForEachRow(rows, []any{&column, &key}, func() error {
		want, sealed := known[column]
		switch {
		case sealed && !slices.Equal(want, key):
			t.Errorf("the key of %s is %v, not %v", column, key, want)
		case !sealed && !slices.Contains(notSealed, column):
			t.Errorf("%s is neither in sealedTables nor known to hold no secrets", column)
		}
		delete(known, column)
		return nil
	})
	ts.noError(err)
	if len(known) > 0 {
		t.Errorf("the schema has no %v", known)
	}
}
