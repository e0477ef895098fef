package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// RunQuery filters and pages a list of runs. Zero values filter nothing.
type RunQuery struct {
	ToolID, UserID, EndUserID, SystemID, RerunOf, ParentRunID string
	Status                                                    stepwell.RunStatus
	RequestSources                                            []string
	StartedAfter, StartedBefore                               time.Time
	OnlyTools                                                 []string // nil means all
	Page, Limit                                               int

	systemTools    []string
	systemVersions []int64
}

// countBound is where the count of a list stops: counting millions of rows would
// cost more than the list itself.
const countBound = 10_000

// conditions collects the parts of a WHERE clause with their arguments.
type conditions struct {
	texts []string
	args  []any
}

// add adds a condition; %d stands for the number of its argument.
func (c *conditions) add(text string, value any) {
	c.args = append(c.args, value)
	c.texts = append(c.texts, fmt.Sprintf(text, len(c.args)))
}

// literal adds a condition on one of a few known words. They stand in the text: only
// then can the planner use the partial indexes.
func (c *conditions) literal(column string, known []string, words ...string) {
	quoted := []string{"NULL"} // an unknown word matches nothing
	for _, word := range words {
		if slices.Contains(known, word) {
			quoted = append(quoted, "'"+word+"'")
		}
	}
	if len(quoted) == 2 {
		c.texts = append(c.texts, column+" = "+quoted[1])
		return
	}
	c.texts = append(c.texts, column+" IN ("+strings.Join(quoted, ", ")+")")
}

var statuses = []string{string(stepwell.RunRunning), string(stepwell.RunSuccess), string(stepwell.RunFailed), string(stepwell.RunAborted)}

func (q *RunQuery) where(org string) conditions {
	var c conditions
	c.add("org_id = $%d", org)
	for column, value := range map[string]string{"tool_id": q.ToolID, "user_id": q.UserID, "end_user_id": q.EndUserID, "rerun_of": q.RerunOf, "parent_run_id": q.ParentRunID} {
		if value != "" {
			c.add(column+" = $%d", value)
		}
	}
	if q.SystemID != "" {
		// The tools are for the index, the versions for the truth.
		c.add("tool_id = ANY($%d)", q.systemTools)
		c.add("tool_version = ANY($%d)", q.systemVersions)
	}
	if q.Status != "" {
		c.literal("status", statuses, string(q.Status))
	}
	if len(q.RequestSources) > 0 {
		c.literal("request_source", stepwell.RequestSources, q.RequestSources...)
		if !slices.Contains(q.RequestSources, "api") {
			c.texts = append(c.texts, "request_source <> 'api'")
		}
	}
	if !q.StartedAfter.IsZero() {
		c.add("started_at > $%d", q.StartedAfter)
	}
	if !q.StartedBefore.IsZero() {
		c.add("started_at < $%d", q.StartedBefore)
	}
	if q.OnlyTools != nil {
		c.add("tool_id = ANY($%d)", q.OnlyTools)
	}
	return c
}

// ListRuns gives a page of runs, newest first. total stops at a bound; more reports
// whether a later page has runs. The page is found in an index before its rows are
// read; one that follows a page that was listed in the last minute begins where that
// ended, so walking through a long list costs the same at its end.
func (s *Store) ListRuns(ctx context.Context, org string, q RunQuery) (runs []*stepwell.Run, total int, more bool, err error) {
	if q.SystemID != "" {
		if err := s.resolveSystem(ctx, org, &q); err != nil {
			return nil, 0, false, err
		}
	}
	c := q.where(org)
	var b pgx.Batch
	b.Queue(fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM runs WHERE %s LIMIT %d) AS r`, strings.Join(c.texts, " AND "), countBound), c.args...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&total) })
	list := fmt.Sprint(org, c, q.Limit)
	skip := offset(q.Page, q.Limit)
	if at, ok := s.ends.take(list, q.Page-1); ok {
		skip = 0
		c.args = append(c.args, at.started, at.id)
		c.texts = append(c.texts, fmt.Sprintf("(started_at, id) < ($%d, $%d)", len(c.args)-1, len(c.args)))
	}
	b.Queue(fmt.Sprintf(`SELECT %s FROM runs JOIN (
			SELECT org_id, id FROM runs WHERE %s ORDER BY started_at DESC, id DESC LIMIT %d OFFSET %d
		) AS page USING (org_id, id) ORDER BY started_at DESC, id DESC`, runColumns, strings.Join(c.texts, " AND "), q.Limit+1, skip), c.args...).
		Query(func(rows pgx.Rows) (err error) {
			runs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.Run, error) {
				var r stepwell.Run
				return &r, scanRun(row, &r)
			})
			return err
		})
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, 0, false, s.wrap("list runs", err)
	}
	if more = len(runs) > q.Limit; more {
		runs = runs[:q.Limit]
		last := runs[len(runs)-1]
		s.ends.put(list, q.Page, pageEnd{last.StartedAt, last.ID, time.Now()})
	}
	if len(runs) > 0 {
		total = max(total, offset(q.Page, q.Limit)+len(runs))
	}
	return runs, total, more, nil
}

// resolveSystem finds the tools and versions that use the query's system.
func (s *Store) resolveSystem(ctx context.Context, org string, q *RunQuery) error {
	q.systemTools, q.systemVersions = []string{}, []int64{}
	rows, err := s.pool.Query(ctx, `SELECT v.tool_id, v.key FROM tool_version_systems x JOIN tool_versions v ON v.key = x.version_key
		WHERE x.org_id = $1 AND x.system_id = $2`, org, q.SystemID)
	if err != nil {
		return s.wrap("list runs", err)
	}
	defer rows.Close()
	for rows.Next() {
		var tool string
		var version int64
		if err := rows.Scan(&tool, &version); err != nil {
			return s.wrap("list runs", err)
		}
		if !slices.Contains(q.systemTools, tool) {
			q.systemTools = append(q.systemTools, tool)
		}
		q.systemVersions = append(q.systemVersions, version)
	}
	return s.wrap("list runs", rows.Err())
}

const (
	endsKept = 5000        // ends of listed pages that a process remembers
	endsFor  = time.Minute // for how long
	endsFrom = 10          // from this page on: the first pages are quick and should be fresh
)

// pageEnds remembers where listed pages ended.
type pageEnds struct {
	mu    sync.Mutex
	byKey map[string]pageEnd
}

type pageEnd struct {
	started time.Time
	id      string
	at      time.Time
}

func endKey(list string, page int) string { return fmt.Sprint(page, " ", list) }

func (p *pageEnds) take(list string, page int) (pageEnd, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end, ok := p.byKey[endKey(list, page)]
	return end, ok && time.Since(end.at) < endsFor
}

func (p *pageEnds) put(list string, page int, end pageEnd) {
	if page < endsFrom {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byKey) >= endsKept || p.byKey == nil {
		p.byKey = map[string]pageEnd{}
	}
	p.byKey[endKey(list, page)] = end
}
