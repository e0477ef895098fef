package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// RunProgress is what is stored of a running run, summed up.
type RunProgress struct {
	Steps   []stepwell.StepSummary
	Waiting *stepwell.Waiting // the wait that ends last; nil without one
	Quiet   time.Duration     // since the run began or stored its last page
	Claimed bool              // a request of it is in flight, or was when its worker died
}

// Progress sums up what runs have stored, in one round trip for all of them. Runs that
// have ended or are gone are not among the answers.
func (s *Store) Progress(ctx context.Context, runs []RunRef) (map[RunRef]*RunProgress, error) {
	orgs, ids := split(runs)
	out := map[RunRef]*RunProgress{}
	var b pgx.Batch
	b.Queue(`
SELECT r.org_id, r.id, clock_timestamp() - r.started_at, EXISTS (SELECT FROM claims c WHERE c.org_id = r.org_id AND c.run_id = r.id), w.reason, w.wait_until
FROM unnest($1::text[], $2::text[]) AS x (org, id) JOIN runs r ON r.org_id = x.org AND r.id = x.id AND r.status = 'running'
LEFT JOIN LATERAL (SELECT reason, wait_until FROM waits WHERE org_id = r.org_id AND run_id = r.id AND wait_until > now() ORDER BY wait_until DESC LIMIT 1) AS w ON true`,
		orgs, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var ref RunRef
			var p RunProgress
			var reason *string
			var until *time.Time
			if err := rows.Scan(&ref.Org, &ref.Run, &p.Quiet, &p.Claimed, &reason, &until); err != nil {
				return err
			}
			if reason != nil {
				p.Waiting = &stepwell.Waiting{Reason: *reason, Until: *until}
			}
			out[ref] = &p
		}
		return rows.Err()
	})
	b.Queue(summaries, orgs, ids).Query(func(rows pgx.Rows) error {
		return eachSummary(rows, func(ref RunRef, sum stepwell.StepSummary, quiet time.Duration) {
			if p := out[ref]; p != nil {
				p.Steps, p.Quiet = append(p.Steps, sum), min(p.Quiet, quiet)
			}
		})
	})
	return out, s.wrap("read progress", s.pool.SendBatch(ctx, &b).Close())
}

// summaries sums up the pages of runs, by run and step: each run's own rows are looked up,
// however many others there are.
const summaries = `
SELECT x.org, x.id, sums.* FROM unnest($1::text[], $2::text[]) AS x (org, id) CROSS JOIN LATERAL (
    SELECT step, count(*), sum(pages)::bigint, count(*) FILTER (WHERE done), count(*) FILTER (WHERE error IS NOT NULL),
           sum(records)::bigint, sum(bytes)::bigint, max(item),
           (array_agg(last ORDER BY item DESC))[1], coalesce((array_agg(ended_by ORDER BY item DESC))[1], ''),
           coalesce((array_agg(error ORDER BY item) FILTER (WHERE error IS NOT NULL))[1], ''),
           bool_and(done AND pages = last AND last = done_page), clock_timestamp() - max(newest)
    FROM (SELECT step, item, count(*) AS pages, max(page) AS last, bool_or(done) AS done,
                 coalesce(max(page) FILTER (WHERE done), 0) AS done_page, max(created_at) AS newest,
                 max(error) AS error, max(ended_by) AS ended_by, sum(records) AS records, sum(bytes) AS bytes
          FROM pages WHERE org_id = x.org AND run_id = x.id GROUP BY step, item) AS items
    GROUP BY step) AS sums ORDER BY x.org, x.id, step`

func eachSummary(rows pgx.Rows, visit func(ref RunRef, sum stepwell.StepSummary, quiet time.Duration)) error {
	for rows.Next() {
		var ref RunRef
		var x stepwell.StepSummary
		var quiet time.Duration
		err := rows.Scan(&ref.Org, &ref.Run, &x.Step, &x.Items, &x.Pages, &x.Done, &x.Failed, &x.Records, &x.Bytes, &x.LastItem,
			&x.LastPage, &x.EndedBy, &x.FirstError, &x.Whole, &quiet)
		if err != nil {
			return err
		}
		visit(ref, x, quiet)
	}
	return rows.Err()
}

// Summaries gives one row for each step of a run that has stored pages, in order.
func (s *Store) Summaries(ctx context.Context, org, run string) (out []stepwell.StepSummary, err error) {
	rows, err := s.pool.Query(ctx, summaries, []string{org}, []string{run})
	if err != nil {
		return nil, s.wrap("summarize steps", err)
	}
	defer rows.Close()
	err = eachSummary(rows, func(_ RunRef, sum stepwell.StepSummary, _ time.Duration) { out = append(out, sum) })
	return out, s.wrap("summarize steps", err)
}
