// Package doctor looks at an installation, working or broken, and says what is stuck, why,
// and what to do. It only reads: it changes nothing, and it must say nothing that is
// secret, so it repeats no driver's error.
package doctor

import (
	"context"

	"fmt"
	"time"

	"stepwell"
	"stepwell/internal/blob"
	"stepwell/store"
	"stepwell/workflows"
)

// Level says how bad a finding is.
type Level string

// The levels. Only a problem makes an installation count as broken.
const (
	OK      Level = "ok"
	Notice  Level = "notice"  // it may well be meant so
	Problem Level = "problem" // somebody has to do something
)

// Finding is what was seen of one thing.
type Finding struct {
	Check    string
	Level    Level
	Summary  string
	Advice   string   // what to do; empty when there is nothing
	Examples []string // some runs or workers that it is about
}

// Installation is what is looked at. Store and Workflows connect when they are used, so
// what they lead to may be away. Evaluate and Blobs may be nil: they are not looked at then.
type Installation struct {
	Store     *store.Store
	Workflows *workflows.Client
	Blobs     *blob.Store
	Evaluate  func(ctx context.Context) error
}

const (
	askTimeout   = 5 * time.Second // for one question
	maxExamples  = 5
	maxDescribed = 50              // silent runs that Temporal is asked about
	maxSkew      = 2 * time.Second // half of a worker's lease
	minRetention = 72 * time.Hour  // as it is registered; runs are started for half of it
	taskAttempts = 1               // of a workflow task that has not failed
)

// Examine looks at everything. The findings come in a fixed order.
func (i Installation) Examine(ctx context.Context) []Finding {
	var out []Finding
	database := i.postgres(ctx)
	out = append(out, database)
	temporal, reachable := i.temporal(ctx)
	if database.Level == OK {
		out = append(out, i.migrations(ctx), i.clock(ctx))
		for _, q := range questions {
			out = append(out, i.ask(ctx, q))
		}
		out = append(out, i.silent(ctx, reachable))
	}
	return append(append(out, temporal...), i.blobs(ctx), i.evaluators(ctx))
}

func (i Installation) postgres(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if i.Store.Ping(ctx) != nil {
		return Finding{"postgres", Problem, "Postgres does not answer", "Start it (stepwell dev starts its own), or correct STEPWELL_DATABASE_URL; nothing can be accepted without it", nil}
	}
	return Finding{Check: "postgres", Level: OK, Summary: "Postgres answers"}
}

func (i Installation) migrations(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	pending, later, err := i.Store.PendingMigrations(ctx)
	switch {
	case err != nil:
		return unasked("migrations")
	case len(pending) > 0:
		return Finding{"migrations", Problem, fmt.Sprintf("%d migrations are not applied", len(pending)), "Start a server or worker of this release: it applies them", some(pending)}
	case later:
		return Finding{"migrations", Notice, "The database is of a later release than this program", "Use the doctor of that release", nil}
	}
	return Finding{Check: "migrations", Level: OK, Summary: "All migrations are applied"}
}

func (i Installation) clock(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	skew, err := i.Store.ClockSkew(ctx)
	if err != nil {
		return unasked("clock")
	}
	return clockFinding(skew)
}

func clockFinding(skew time.Duration) Finding {
	if skew.Abs() > maxSkew {
		return Finding{"clock", Problem, fmt.Sprintf("This machine's clock and Postgres's differ by %s", skew.Abs().Round(time.Millisecond)), "Let both machines follow a time server: waits and expiries are times", nil}
	}
	return Finding{Check: "clock", Level: OK, Summary: "This machine's clock and Postgres's agree"}
}

func unasked(check string) Finding {
	return Finding{check, Problem, "This could not be asked", "Look at the other findings first: migrations may be pending", nil}
}

// question is a symptom that the database shows.
type question struct {
	check, symptom string
	level          Level  // when somebody has it
	some, none     string // what the finding says; some has a %d
	advice         string
}

var questions = []question{
	{"workers", "live", OK, "Workers alive: %d", "No worker is alive: runs are accepted and wait", "Start a worker (stepwell-worker, or stepwell dev), and look at the log of those that ended"},
	{"dead workers", "dead", Notice, "The leases of %d workers ended or expired within the last hour", "No worker's lease has expired within the last hour", "Fine after a restart; otherwise look why they died. Their runs go on elsewhere"},
	{"undispatched runs", "undispatched", Problem, "%d runs were accepted over 30 s ago and are not known to have started", "No run waits for its start", "A server starts them when Temporal answers: check that one runs, and Temporal below"},
	{"waiting runs", "waiting", Notice, "%d runs wait before they ask again", "No run waits for an upstream", "Nothing, unless the upstream's limit can be raised; or cancel them"},
	{"unknown outcomes", "unknown", Problem, "%d requests with effects were sent by workers that died before the answer was stored", "No request with effects is in doubt", "Check the upstream. The step fails with `outcome unknown` unless it says `idempotent`; then rerun the run"},
	{"expired claims", "orphaned", Notice, "%d pages are claimed by workers that died", "No page is claimed by a dead worker", "Nothing: a live worker takes them over. Without one, start one"},
	{"cancelled runs", "unsettled", Problem, "The workflows of %d runs cancelled over 2 minutes ago are not known to have ended", "The workflows of all cancelled runs have ended", "They end when Temporal answers and a worker is alive; nothing is sent for them"},
	{"deliveries", "overdue", Problem, "%d callbacks are over a minute late", "No callback is late", "Workers send them: check that one is alive and that Temporal answers"},
	{"bulk operations", "bulk", Problem, "%d bulk operations go on for over an hour", "No bulk operation is stuck", "Check that a server runs; reruns wait while the organization is at its limit of unfinished runs (STEPWELL_MAX_OPEN_RUNS)"},
}

func (i Installation) ask(ctx context.Context, q question) Finding {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	symptom, err := i.Store.Symptom(ctx, q.symptom)
	if err != nil {
		return unasked(q.check)
	}
	f := Finding{Check: q.check, Level: q.level, Summary: fmt.Sprintf(q.some, len(symptom.Refs)), Advice: q.advice}
	if len(symptom.Refs) == 0 {
		f = Finding{Check: q.check, Level: OK, Summary: q.none}
	}
	if q.symptom == "live" { // the other way round
		if len(symptom.Refs) == 0 {
			return Finding{Check: q.check, Level: Problem, Summary: q.none, Advice: q.advice}
		}
		f.Advice = ""
		return f
	}
	for _, ref := range symptom.Refs[:min(len(symptom.Refs), maxExamples)] {
		f.Examples = append(f.Examples, example(ref))
	}
	return f
}

func example(r store.SymptomRef) string {
	at := r.At.UTC().Format(time.RFC3339)
	switch {
	case r.Run == "":
		return r.Name + ", " + at
	case r.Name == "":
		return "run " + r.Run + ", " + at
	}
	return "run " + r.Run + ", " + r.Name + ", " + at
}

// silent asks Temporal why runs make no progress.
func (i Installation) silent(ctx context.Context, reachable bool) Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	symptom, err := i.Store.Symptom(ctx, "silent")
	if err != nil {
		return unasked("silent runs")
	}
	if len(symptom.Refs) == 0 {
		return Finding{Check: "silent runs", Level: OK, Summary: "Every running run makes progress or waits as it should"}
	}
	f := Finding{Check: "silent runs", Level: Notice, Summary: fmt.Sprintf("%d runs stored nothing for over 2 minutes", len(symptom.Refs)),
		Advice: "Slow requests look so, too. A server's sweeper fails those that nobody can finish; others can be cancelled"}
	for n, ref := range symptom.Refs {
		if n == maxDescribed || !reachable && n == maxExamples {
			break
		}
		why := ""
		if reachable {
			why = i.why(ctx, ref)
		}
		if why != "" {
			f.Level = Problem
		}
		if why != "" || len(f.Examples) < maxExamples {
			f.Examples = append(f.Examples, example(ref)+why)
		}
	}
	f.Examples = some(f.Examples)
	return f
}

// why says what Temporal knows against a run; empty when nothing.
func (i Installation) why(ctx context.Context, ref store.SymptomRef) string {
	state, err := i.Workflows.RunState(ctx, ref.Org, ref.Run)
	switch {
	case err != nil:
		return ""
	case !state.Known:
		return ": its workflow is gone from Temporal"
	case !state.Open:
		return ": its workflow ended without finishing it (" + state.Status + ")"
	case state.TaskAttempt > taskAttempts:
		return fmt.Sprintf(": its workflow task has failed or timed out %d times; see a worker's log", state.TaskAttempt-1)
	}
	return ""
}

// temporal looks at Temporal; reachable says whether it answers.
func (i Installation) temporal(ctx context.Context) (findings []Finding, reachable bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	setup, err := i.Workflows.Setup(ctx)
	switch {
	case err != nil:
		return []Finding{{"temporal", Problem, "Temporal does not answer", "Start it (stepwell dev starts its own), or correct STEPWELL_TEMPORAL_ADDRESS; runs are accepted meanwhile and wait", nil}}, false
	case !setup.Namespace:
		return []Finding{{"temporal", Problem, "Temporal answers and has no namespace " + workflows.Namespace, "Start a server or worker: it registers the namespace", nil}}, false
	}
	findings = []Finding{{Check: "temporal", Level: OK, Summary: "Temporal answers"}}
	if setup.Retention < minRetention {
		findings = append(findings, Finding{"temporal retention", Problem, fmt.Sprintf("The namespace keeps closed workflows for %s", setup.Retention), "Set it to 72h or more: the id of a run must not be free in Temporal while the run is kept", nil})
	}
	if setup.Pollers == 0 {
		findings = append(findings, Finding{"temporal pollers", Problem, "No worker polls Temporal for work", "Start a worker, or give it the same STEPWELL_TEMPORAL_ADDRESS", nil})
	}
	return findings, true
}

// absent is a key under which no blob is.
const absent = "doctor/absent"

func (i Installation) blobs(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if i.Blobs == nil {
		return Finding{"blobs", Problem, "The blob store could not be opened", "Correct STEPWELL_BLOB_URL, or STEPWELL_DATA_DIR", nil}
	}
	body, err := i.Blobs.Get(ctx, absent)
	if err == nil {
		_ = body.Close()
	} else if stepwell.KindOf(err) != stepwell.KindLost {
		return Finding{"blobs", Problem, "The blob store cannot be read", "Check that it is there and that its credentials allow reading: runs with large bodies wait for it", nil}
	}
	return Finding{Check: "blobs", Level: OK, Summary: "The blob store can be read"}
}

func (i Installation) evaluators(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	if i.Evaluate != nil && i.Evaluate(ctx) != nil {
		return Finding{"evaluators", Problem, "No evaluator process works on this machine", "Its processes need to start this program again: check limits of processes and memory", nil}
	}
	return Finding{Check: "evaluators", Level: OK, Summary: "An evaluator process works on this machine"}
}

func some(all []string) []string { return all[:min(len(all), maxExamples)] }
