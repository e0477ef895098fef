package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"

	"stepwell"
)

// access is a row of testdata/access.yaml.
type access struct {
	Route, Body, Run                                          string
	Admin, Member, Runner, Limited, Own, Foreign, Other, Open int
}

func readAccess(t *testing.T) map[string]access {
	t.Helper()
	text, err := os.ReadFile("testdata/access.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rows []access
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&rows); err != nil {
		t.Fatal(err)
	}
	byRoute := map[string]access{}
	for _, row := range rows {
		if _, twice := byRoute[row.Route]; twice {
			t.Errorf("%s has two rows", row.Route)
		}
		byRoute[row.Route] = row
	}
	return byRoute
}

// pathObjects are the ids of what is there.
var pathObjects = strings.NewReplacer("{toolId}", "orders", "{version}", "1.0.0", "{keyId}", "k3", "{link}", testLink(time.Hour),
	"{endUserId}", testEndUser, "{systemId}", "crm", "{deliveryId}", "d1", "{bulkId}", testBulk)

// TestAccess checks that every route of the table has its row of access.yaml and answers
// like it. internal/app asks a whole node the same, and more.
func TestAccess(t *testing.T) {
	t.Parallel()
	rows := readAccess(t)
	doc := loadDocument(t)
	for _, rt := range newTestAPI(newMemory(), nil).routes() {
		name := rt.method + " " + rt.path
		row, ok := rows[name]
		if !ok {
			t.Errorf("%s has no row in testdata/access.yaml: say there who may use it", name)
		}
		delete(rows, name)
		path := pathObjects.Replace(rt.path)
		switch {
		case row.Run == "running":
			path = strings.ReplaceAll(path, "{runId}", "run-3")
		default: // of the end user, ended
			path = strings.ReplaceAll(path, "{runId}", "theirs")
		}
		for key, want := range map[string]int{"admin-key": row.Admin, "member-key": row.Member, "runner-key": row.Runner, "user-key": row.Own,
			"stranger-key": 403, "other-key": row.Other, "wrong-key": 401} {
			switch {
			case row.Open != 0:
				want = row.Open
			case key == "stranger-key" && rt.needs == known:
				continue // it says a role that there is not
			}
			m := newMemory()
			req := newRequest(t, rt.method, prefix+path, strings.NewReader(strings.ReplaceAll(row.Body, "{new}", "new")))
			req.Header.Set("Authorization", "Bearer "+key)
			res, body := ask(newTestAPI(m, nil), req)
			if res.StatusCode != want {
				t.Errorf("%s with %s: %d %s, want %d", name, key, res.StatusCode, body, want)
			}
			doc.check(t, rt.method, prefix+path, res, body)
			checkAudit(t, rt, m, key, res.StatusCode)
		}
	}
	for name := range rows {
		t.Errorf("%s is in testdata/access.yaml only", name)
	}
}

// checkAudit checks the rows that a request left in the audit log: one for a change that
// was made, else none.
func checkAudit(t *testing.T, rt route, m *memory, key string, status int) {
	t.Helper()
	name := rt.method + " " + rt.path
	log, listed := auditLog[[2]string{rt.method, rt.path}]
	switch {
	case rt.method == "GET":
		if listed || len(m.audit) != 0 {
			t.Errorf("%s is in the audit log: it changes nothing", name)
		}
	case !listed || (log.action == "") == (log.why == ""):
		t.Errorf("%s needs a row in auditLog: an action, or why it has none", name)
	case log.action == "" || status >= 300:
		if len(m.audit) != 0 {
			t.Errorf("%s with %s was answered %d and is in the audit log: %+v", name, key, status, m.audit[0])
		}
	case len(m.audit) != 1:
		t.Errorf("%s with %s left %d rows in the audit log", name, key, len(m.audit))
	default:
		if e := m.audit[0]; e.OrgID == "" || e.UserID == "" || e.Action != log.action || !strings.HasPrefix(e.Action, e.TargetType+".") ||
			e.Target == "" || strings.ContainsAny(e.Target, "{}") || e.TraceID == "" {
			t.Errorf("%s with %s: the audit log has %+v", name, key, e)
		}
	}
}

// TestAuditLogIsOfRoutes: no row speaks of a route that is not there.
func TestAuditLogIsOfRoutes(t *testing.T) {
	t.Parallel()
	there := map[[2]string]bool{}
	for _, rt := range newTestAPI(newMemory(), nil).routes() {
		there[[2]string{rt.method, rt.path}] = true
	}
	for name := range auditLog {
		if !there[name] {
			t.Errorf("auditLog has %s %s, which is no route", name[0], name[1])
		}
	}
}

// failingAudit is a log that cannot be written.
type failingAudit struct{ memoryAudit }

func (failingAudit) Add(context.Context, stepwell.AuditEntry) error { return errors.New("no") }

// TestAuditFailure: a change whose row cannot be written is answered as made, and logged.
func TestAuditFailure(t *testing.T) {
	t.Parallel()
	m := newMemory()
	core, logs := observer.New(zapcore.ErrorLevel)
	h := newTestAPI(m, func(c *Config) { c.Log, c.Audit = zap.New(core), failingAudit{memoryAudit{m}} })
	res, body := adminAsks(t, h, "DELETE", "/tools/orders", "")
	if res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	lines := logs.FilterMessage("a change is not in the audit log").All()
	if len(lines) != 1 || lines[0].ContextMap()["action"] != "tool.delete" || lines[0].ContextMap()["target"] != "orders" || lines[0].ContextMap()["user"] != "ann" {
		t.Errorf("logged %v", lines)
	}
}

var update = flag.Bool("update", false, "write the table of docs/security.md anew")

// TestDocumentedPermissions compares the table of docs/security.md with the rules and the
// routes. `go test ./api -run Documented -update` writes it anew.
func TestDocumentedPermissions(t *testing.T) {
	t.Parallel()
	const path = "../docs/security.md"
	const begin, end = "<!-- permissions, generated -->\n", "<!-- end of permissions -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("docs/security.md does not have the marks of the table")
	}
	routes := newTestAPI(newMemory(), nil).routes()
	want := "\n| routes | admin | member | runner | end user | list of tools |\n|---|---|---|---|---|---|\n"
	for p := known; p <= administer; p++ {
		var names []string
		for _, rt := range routes {
			if rt.needs == p {
				names = append(names, "`"+rt.method+" "+rt.path+"`")
			}
		}
		want += "| " + strings.Join(names, ", ") + " | yes"
		for _, role := range []string{stepwell.RoleMember, stepwell.RoleRunner, stepwell.RoleEndUser} {
			want += " | " + map[bool]string{true: "yes"}[p == known || slices.Contains(rules[p].roles, role)]
		}
		want += " | " + map[bool]string{true: "holds"}[rules[p].tools] + " |\n"
	}
	want += "\n"
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("docs/security.md has another table: run `go test ./api -run Documented -update`\n%s", want)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// revokingRuns are runs during whose watching a key is taken away.
type revokingRuns struct {
	memoryRuns
	revoke func()
}

func (r revokingRuns) Watch(ctx context.Context, org, id string, visit func(*stepwell.Run) error) error {
	run, err := r.Get(ctx, org, id)
	if err != nil {
		return err
	}
	if err := visit(run); err != nil {
		return err
	}
	r.revoke()
	return r.memoryRuns.Watch(ctx, org, id, visit)
}

// TestStreamEndsWithItsKey: no event goes out after the reader's key was revoked, or may
// no longer read the run.
func TestStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("runner-key"))
	for what, change := range map[string]func(m *memory){
		"revoked": func(m *memory) { delete(m.callers, hash) },
		"limited": func(m *memory) {
			c := *m.callers[hash]
			c.Tools = []string{"refunds"}
			m.callers[hash] = &c
		},
		"unchanged": func(*memory) {},
	} {
		m := newMemory()
		h := newTestAPI(m, func(c *Config) {
			c.Runs = revokingRuns{memoryRuns{m}, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				change(m)
			}}
		})
		req := newRequest(t, "GET", prefix+"/runs/run-3/events", nil)
		req.Header.Set("Authorization", "Bearer runner-key")
		res, body := ask(h, req)
		whole := strings.Contains(string(body), "id: aborted")
		if res.StatusCode != 200 || whole != (what == "unchanged") {
			t.Errorf("%s: %d %s", what, res.StatusCode, body)
		}
	}
}
