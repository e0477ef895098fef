package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// RunQuery filters and pages a list of runs. Zero values filter nothing.
type RunQuery struct {
	ToolID, UserID, SystemID, RerunOf, ParentRunID string
	Status                                         stepwell.RunStatus
	RequestSources                                 []string
	StartedAfter, StartedBefore                    time.Time
	OnlyTools                                      []string // nil means all
	Page, Limit                                    int
}

// countBound is where the count of a list stops: counting millions of rows would
// cost more than the list itself.
const countBound = 10_000

// where gives the conditions of a query, which name only indexed columns where they can.
func (q *RunQuery) where(org string) (string, []any) {
	conditions, args := []string{"org_id = $1"}, []any{org}
	add := func(condition string, value any) {
		args = append(args, value)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if q.ToolID != "" {
		add("tool_id = $%d", q.ToolID)
	}
	if q.UserID != "" {
		add("user_id = $%d", q.UserID)
	}
	if q.SystemID != "" {
		add("tool_version IN (SELECT version_key FROM tool_version_systems WHERE org_id = $1 AND system_id = $%d)", q.SystemID)
	}
	if q.RerunOf != "" {
		add("rerun_of = $%d", q.RerunOf)
	}
	if q.ParentRunID != "" {
		add("parent_run_id = $%d", q.ParentRunID)
	}
	if q.Status != "" {
		add("status = $%d", string(q.Status))
	}
	if len(q.RequestSources) > 0 {
		add("request_source = ANY($%d)", q.RequestSources)
	}
	if !q.StartedAfter.IsZero() {
		add("started_at > $%d", q.StartedAfter)
	}
	if !q.StartedBefore.IsZero() {
		add("started_at < $%d", q.StartedBefore)
	}
	if q.OnlyTools != nil {
		add("tool_id = ANY($%d)", q.OnlyTools)
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// ListRuns gives a page of runs, newest first. total stops at a bound; more reports
// whether a later page has runs.
func (s *Store) ListRuns(ctx context.Context, org string, q RunQuery) (runs []*stepwell.Run, total int, more bool, err error) {
	where, args := q.where(org)
	err = s.pool.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM (SELECT 1 FROM runs%s LIMIT %d) AS r`, where, countBound), args...).Scan(&total)
	if err != nil {
		return nil, 0, false, s.wrap("list runs", err)
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`SELECT %s FROM runs%s ORDER BY started_at DESC, id DESC LIMIT %d OFFSET %d`,
		runColumns, where, q.Limit+1, offset(q.Page, q.Limit)), args...)
	if err != nil {
		return nil, 0, false, s.wrap("list runs", err)
	}
	runs, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.Run, error) {
		var r stepwell.Run
		return &r, scanRun(row, &r)
	})
	if more = len(runs) > q.Limit; more {
		runs = runs[:q.Limit]
	}
	return runs, max(total, offset(q.Page, q.Limit)+len(runs)), more, s.wrap("list runs", err)
}
