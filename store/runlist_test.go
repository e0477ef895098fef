package store

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell"
	"stepwell/internal/devstack/stacktest"
)

// listRuns is how many runs the list test lists: 500,000 in the long form.
var listRuns = flag.Int("list-runs", 20_000, "runs that TestRunListSpeed lists")

// fillRuns makes runs of two organizations: of 20 tools, 40 users, all sources and
// statuses, some with parents; 1 in 1,000 failed, 1 in 5,000 came from a webhook.
func fillRuns(t *testing.T, s *testStore, n int) {
	t.Helper()
	ctx := context.Background()
	_, err := s.pool.Exec(ctx, `
WITH v AS (INSERT INTO tool_versions (org_id, tool_id, version, document)
           SELECT $1, 'tool-' || i, '1.0.0', '{}' FROM generate_series(0, 19) AS i RETURNING key, tool_id),
     x AS (INSERT INTO tool_version_systems (org_id, system_id, version_key) SELECT $1, 'crm', key FROM v WHERE tool_id = 'tool-3')
INSERT INTO runs (org_id, id, tool_id, tool_version, status, error, inputs, options, request_source, mode, trace_id, user_id, parent_run_id, rerun_of, started_at, completed_at)
SELECT $1, 'run-' || i, v.tool_id, v.key,
       CASE WHEN i % 1000 = 7 THEN 'failed' WHEN i % 3000 = 11 THEN 'aborted' WHEN i % 20000 = 13 THEN 'running' ELSE 'success' END,
       CASE WHEN i % 1000 = 7 OR i % 3000 = 11 THEN 'no' END, '{}', '{}',
       CASE WHEN i % 5000 = 17 THEN 'webhook' WHEN i % 50 = 19 THEN 'tool-chain' ELSE 'api' END,
       'prod', 'trace', 'user-' || i % 40,
       CASE WHEN i % 50 = 19 THEN 'run-' || i - 1 END, CASE WHEN i % 900 = 23 THEN 'run-' || i - 2 END,
       now() - make_interval(secs => $2 - i), CASE WHEN i % 20000 <> 13 THEN now() END
FROM generate_series(1, $2::integer) AS i JOIN v ON v.tool_id = 'tool-' || i % 20`, s.org, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(ctx, `VACUUM ANALYZE runs`); err != nil {
		t.Fatal(err)
	}
}

// TestRunListSpeed lists runs with every filter, on first and deep pages, and looks at
// the 95th percentile of each.
func TestRunListSpeed(t *testing.T) {
	s := newStore(t)
	fillRuns(t, s, *listRuns)
	now := time.Now()
	n := *listRuns
	queries := map[string]RunQuery{
		"all":             {},
		"deep page":       {Page: n / 100},
		"tool":            {ToolID: "tool-3"},
		"tool, deep":      {ToolID: "tool-3", Page: n / 20 / 100},
		"failed":          {Status: stepwell.RunFailed},
		"aborted":         {Status: stepwell.RunAborted},
		"running":         {Status: stepwell.RunRunning},
		"success":         {Status: stepwell.RunSuccess},
		"user":            {UserID: "user-7"},
		"no such user":    {UserID: "nobody"},
		"system":          {SystemID: "crm"},
		"no such system":  {SystemID: "none"},
		"webhook":         {RequestSources: []string{"webhook"}},
		"two sources":     {RequestSources: []string{"webhook", "tool-chain"}},
		"no such source":  {RequestSources: []string{"mcp"}},
		"children":        {ParentRunID: "run-18"},
		"reruns":          {RerunOf: "run-21"},
		"a minute":        {StartedAfter: now.Add(-time.Minute)},
		"before":          {StartedBefore: now.Add(-time.Duration(n/2) * time.Second)},
		"tools of a key":  {OnlyTools: []string{"tool-1", "tool-2"}},
		"failed of tool":  {Status: stepwell.RunFailed, ToolID: "tool-7"},
		"nothing in tool": {Status: stepwell.RunAborted, ToolID: "tool-7"},
	}
	for name, q := range queries {
		q.Page, q.Limit = max(q.Page, 1), 100
		var took []time.Duration
		for range 20 {
			began := time.Now()
			if _, _, _, err := s.ListRuns(t.Context(), s.org, q); err != nil {
				t.Fatal(name, err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		t.Logf("%-16s median %6.1f ms, 95th percentile %6.1f ms", name, ms(took[10]), ms(took[18]))
		if took[18] > stacktest.Promised(50*time.Millisecond) && name != "deep page" { // one jump to the end of everything costs what the index costs
			t.Errorf("%s: the 95th percentile is %s, over 50 ms: %s", name, took[18], explain(t, s, q))
		}
	}
}

// TestRunListWalk walks through all runs page by page: each once, the last pages as
// quick as the first, also while new runs arrive.
func TestRunListWalk(t *testing.T) {
	s := newStore(t)
	n := *listRuns / 4
	fillRuns(t, s, n)
	seen := map[string]bool{}
	var slowest time.Duration
	for page := 1; ; page++ {
		began := time.Now()
		runs, _, more, err := s.ListRuns(t.Context(), s.org, RunQuery{Page: page, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		for _, r := range runs {
			if seen[r.ID] {
				t.Fatalf("page %d repeats run %s", page, r.ID)
			}
			seen[r.ID] = true
		}
		if page == 20 {
			s.run("new", "")
		}
		if !more {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d runs were listed", len(seen), n)
	}
	t.Logf("the slowest page took %.1f ms", ms(slowest))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func explain(t *testing.T, s *testStore, q RunQuery) string {
	c := q.where(s.org)
	rows, err := s.pool.Query(t.Context(), fmt.Sprintf(`EXPLAIN ANALYZE SELECT org_id, id FROM runs WHERE %s ORDER BY started_at DESC, id DESC LIMIT %d OFFSET %d`,
		strings.Join(c.texts, " AND "), q.Limit+1, offset(q.Page, q.Limit)), c.args...)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	var out strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err.Error()
		}
		out.WriteString("\n" + line)
	}
	return out.String()
}
