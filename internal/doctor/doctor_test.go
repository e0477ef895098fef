package doctor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/blob"
	"stepwell/internal/devstack/stacktest"
	"stepwell/store"
	"stepwell/workflows"
)

func TestMain(m *testing.M) { os.Exit(stacktest.Main(m)) }

// patient is an installation whose database a test may spoil.
type patient struct {
	Installation
	t   *testing.T
	url string
	org string
}

func newPatient(t *testing.T, migrate bool) *patient {
	t.Helper()
	stack := stacktest.Shared(t)
	p := &patient{t: t, url: stacktest.Database(t, stack)}
	p.Store = openStore(t, p.url)
	p.Workflows = temporalAt(t, stack.TemporalAddress())
	p.Evaluate = func(context.Context) error { return nil }
	blobs, err := blob.Open(t.Context(), blob.DirectoryURL(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	p.Blobs = blobs
	if migrate {
		if err := p.Store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.org, err = p.Store.CreateOrganization(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func temporalAt(t *testing.T, address string) *workflows.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: address, Namespace: workflows.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return workflows.NewClient(c, workflows.DefaultSettings())
}

func (p *patient) exec(sql string, args ...any) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close(p.t.Context())
	if _, err := conn.Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatal(err)
	}
}

// levels gives the findings by their checks.
func (p *patient) levels() map[string]Finding {
	out := map[string]Finding{}
	for _, f := range p.Examine(p.t.Context()) {
		out[f.Check] = f
		if f.Level != OK && f.Advice == "" {
			p.t.Errorf("%s says not what to do: %s", f.Check, f.Summary)
		}
		if text := f.Summary + f.Advice + strings.Join(f.Examples, " "); strings.Contains(text, "postgres://") || strings.Contains(text, "password") {
			p.t.Errorf("%s shows what is secret: %s", f.Check, text)
		}
	}
	return out
}

func (p *patient) want(check string, level Level, examples string) {
	p.t.Helper()
	f := p.levels()[check]
	if f.Level != level || !strings.Contains(strings.Join(f.Examples, "\n"), examples) {
		p.t.Errorf("%s: %+v, want %s with %q", check, f, level, examples)
	}
}

// runs saves a tool and gives what records a run of it.
func (p *patient) runs() func(id string) *stepwell.Run {
	p.t.Helper()
	tool, err := p.Store.CreateTool(p.t.Context(), p.org, &stepwell.Tool{Steps: []stepwell.Step{{ID: "s", Config: stepwell.StepConfig{URL: "http://up/"}}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return func(id string) *stepwell.Run {
		p.t.Helper()
		r := &stepwell.Run{OrgID: p.org, ID: id, ToolID: tool.ID, ToolVersion: tool.VersionKey, Tool: tool, Inputs: []byte("{}"), RequestSource: "api", Mode: "prod", TraceID: "t", UserID: "u"}
		if err := p.Store.InsertRun(p.t.Context(), r, nil); err != nil {
			p.t.Fatal(err)
		}
		return r
	}
}

// TestFindings spoils an installation in one way after the other.
func TestFindings(t *testing.T) {
	t.Parallel()
	p := newPatient(t, true)
	for check, f := range p.levels() {
		if f.Level != OK && check != "workers" && check != "temporal pollers" { // there is none
			t.Errorf("a new installation has %+v", f)
		}
	}
	p.want("workers", Problem, "")
	p.want("temporal pollers", Problem, "")
	if err := p.Store.RenewWorker(t.Context(), "alive"); err != nil {
		t.Fatal(err)
	}
	p.want("workers", OK, "")

	run := p.runs()
	run("undispatched")
	run("gone")
	p.exec(`UPDATE runs SET started_at = now() - interval '1 hour'`)
	p.exec(`UPDATE runs SET dispatched = true WHERE id = 'gone'`)
	p.want("undispatched runs", Problem, "run undispatched")
	p.want("silent runs", Problem, "run gone, ")
	p.want("silent runs", Problem, "gone from Temporal")

	run("waits")
	p.exec(`INSERT INTO waits (org_id, run_id, step, item, reason, wait_until) VALUES ($1, 'waits', 0, 0, '429', now() + interval '1 hour')`, p.org)
	p.want("waiting runs", Notice, "run waits, 429, 20")
	p.exec(`INSERT INTO workers (id, lease_until) VALUES ('dead', now() - interval '5 minutes')`)
	p.want("dead workers", Notice, "dead, ")
	p.exec(`INSERT INTO claims (org_id, run_id, step, item, page, worker, effect) VALUES ($1, 'waits', 0, 0, 1, 'dead', true), ($1, 'gone', 0, 0, 1, 'dead', false)`, p.org)
	p.want("unknown outcomes", Problem, "run waits, dead")
	p.want("expired claims", Notice, "run gone, dead")

	run("cancelled")
	if _, err := p.Store.AbortRun(t.Context(), p.org, "cancelled", "x"); err != nil {
		t.Fatal(err)
	}
	p.want("cancelled runs", OK, "") // just now
	p.exec(`UPDATE runs SET completed_at = now() - interval '3 minutes' WHERE id = 'cancelled'`)
	p.want("cancelled runs", Problem, "run cancelled")
	p.exec(`INSERT INTO deliveries (org_id, id, run_id, next_attempt_at) VALUES ($1, 'd1', 'cancelled', now() - interval '2 minutes')`, p.org)
	p.want("deliveries", Problem, "run cancelled, d1")
	p.exec(`INSERT INTO bulk_operations (org_id, id, kind, caller, total, created_at) VALUES ($1, 'b1', 'cancel', '{}', 1, now() - interval '2 hours')`, p.org)
	p.want("bulk operations", Problem, "b1, ")

	p.exec(`INSERT INTO schema_migrations (number) VALUES (9999)`)
	p.want("migrations", Notice, "")
	p.exec(`DELETE FROM schema_migrations WHERE number IN (5, 9999)`)
	p.want("migrations", Problem, "0005_retention.sql")
	p.Evaluate = func(context.Context) error { return errors.New("no") }
	p.want("evaluators", Problem, "")
}

// TestSilentRuns: of runs that store nothing it says what Temporal has against them, and
// without an answer of Temporal's that there are such runs.
func TestSilentRuns(t *testing.T) {
	t.Parallel()
	p := newPatient(t, true)
	record := p.runs()
	slow := record("slow") // nothing is known against it
	if err := p.Workflows.StartRun(t.Context(), slow, slow.Tool); err != nil {
		t.Fatal(err)
	}
	p.exec(`UPDATE runs SET dispatched = true, started_at = now() - interval '1 hour'`)
	p.want("silent runs", Notice, "run slow, ")

	closed := record("closed")
	if err := p.Workflows.StartRun(t.Context(), closed, closed.Tool); err != nil {
		t.Fatal(err)
	}
	if err := p.Workflows.TerminateRun(t.Context(), p.org, "closed", "test"); err != nil {
		t.Fatal(err)
	}
	record("failing")
	stacktest.FailingWorkflow(t, stacktest.Shared(t), workflows.RunID(p.org, "failing"), 2)
	p.exec(`UPDATE runs SET dispatched = true, started_at = now() - interval '1 hour'`)
	f := p.levels()["silent runs"]
	if f.Level != Problem || len(f.Examples) != 3 {
		t.Errorf("%+v", f)
	}
	for run, why := range map[string]string{"closed": ": its workflow ended without finishing it (Terminated)", "failing": ": its workflow task has failed or timed out 2 times", "slow": ""} {
		if !slices.ContainsFunc(f.Examples, func(e string) bool {
			return strings.HasPrefix(e, "run "+run+", ") && strings.Contains(e, why) && (why != "" || !strings.Contains(e, "workflow"))
		}) {
			t.Errorf("%s is not explained by %q: %q", run, why, f.Examples)
		}
	}
	for _, address := range []string{"127.0.0.1:1", stacktest.BareTemporal(t)} {
		p.Workflows = temporalAt(t, address)
		p.want("temporal", Problem, "")
		if f := p.levels()["silent runs"]; f.Level != Notice || len(f.Examples) != 3 {
			t.Errorf("nothing can be asked at %s: %+v", address, f)
		}
	}
	if f := p.levels()["temporal"]; !strings.Contains(f.Summary, "no namespace "+workflows.Namespace) {
		t.Errorf("%+v", f)
	}
}

// TestBroken: whatever is away, the rest is looked at.
func TestBroken(t *testing.T) {
	t.Parallel()
	p := newPatient(t, true)
	p.Workflows = temporalAt(t, "127.0.0.1:1")
	p.want("temporal", Problem, "")
	p.want("postgres", OK, "")
	p.Blobs = nil
	p.want("blobs", Problem, "")

	empty := newPatient(t, false) // never migrated
	empty.want("migrations", Problem, "0001_initial.sql")
	empty.want("waiting runs", Problem, "")

	away := newPatient(t, true)
	away.Store = openStore(t, "postgres://user:password@127.0.0.1:1/none")
	away.want("postgres", Problem, "")
	away.want("temporal", OK, "")
	if _, asked := away.levels()["deliveries"]; asked {
		t.Error("a database that is away is asked for details")
	}
}

// TestClock: what differs by more than leases bear is a problem, in either direction.
func TestClock(t *testing.T) {
	t.Parallel()
	got := []Level{clockFinding(3 * time.Second).Level, clockFinding(-3 * time.Second).Level, clockFinding(time.Second).Level}
	if !slices.Equal(got, []Level{Problem, Problem, OK}) {
		t.Error(got)
	}
}
