package store

import (
	"context"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// symptomBound is where a symptom stops counting.
const symptomBound = 1000

// Symptom is something that may be wrong with several runs or workers, of all
// organizations, for an operator's eyes.
type Symptom struct {
	Refs []SymptomRef // oldest first, at most 1,000
}

// SymptomRef is one that has a symptom: Run is empty for a worker, whose id Name is then.
type SymptomRef struct {
	Org, Run, Name string
	At             time.Time // since when, or until when
}

// symptoms are the questions of Symptoms. Each gives org, run, name and time.
var symptoms = map[string]string{
	"undispatched": `SELECT org_id, id, '', started_at FROM runs WHERE status = 'running' AND NOT dispatched
		AND started_at < clock_timestamp() - interval '30 seconds' ORDER BY started_at`,
	"silent": `SELECT org_id, id, '', started_at FROM (SELECT org_id, id, started_at FROM runs WHERE status = 'running' AND dispatched
			AND started_at < clock_timestamp() - interval '2 minutes' ORDER BY coalesce(checked_at, started_at) LIMIT 5000) r
		WHERE NOT EXISTS (SELECT 1 FROM pages p WHERE p.org_id = r.org_id AND p.run_id = r.id AND p.created_at > clock_timestamp() - interval '2 minutes')
		AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.org_id = r.org_id AND w.run_id = r.id AND w.wait_until > clock_timestamp())
		AND NOT EXISTS (SELECT 1 FROM claims c JOIN workers w ON w.id = c.worker WHERE c.org_id = r.org_id AND c.run_id = r.id AND w.lease_until > clock_timestamp())
		ORDER BY started_at`,
	"waiting": `SELECT org_id, run_id, reason, wait_until FROM waits WHERE wait_until > clock_timestamp() ORDER BY wait_until`,
	"unknown": `SELECT c.org_id, c.run_id, c.worker, c.claimed_at FROM claims c WHERE c.effect
		AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = c.worker AND w.lease_until > clock_timestamp()) ORDER BY c.claimed_at`,
	"orphaned": `SELECT c.org_id, c.run_id, c.worker, c.claimed_at FROM claims c WHERE NOT c.effect
		AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = c.worker AND w.lease_until > clock_timestamp()) ORDER BY c.claimed_at`,
	"live":      `SELECT '', '', id, lease_until FROM workers WHERE lease_until > clock_timestamp() ORDER BY started_at`,
	"dead":      `SELECT '', '', id, lease_until FROM workers WHERE lease_until BETWEEN clock_timestamp() - interval '1 hour' AND clock_timestamp() ORDER BY lease_until`,
	"unsettled": `SELECT org_id, id, '', completed_at FROM runs WHERE status = 'aborted' AND NOT settled AND completed_at BETWEEN clock_timestamp() - interval '72 hours' AND clock_timestamp() - interval '2 minutes' ORDER BY completed_at`,
	"overdue":   `SELECT org_id, run_id, id, next_attempt_at FROM deliveries WHERE status = 'pending' AND next_attempt_at < clock_timestamp() - interval '1 minute' ORDER BY next_attempt_at`,
	"bulk":      `SELECT org_id, '', id, created_at FROM bulk_operations WHERE completed_at IS NULL AND created_at < clock_timestamp() - interval '1 hour' ORDER BY created_at`,
}

// Symptom asks one of the questions: undispatched, silent, unsettled (runs), waiting (runs
// and until when), unknown, orphaned (claims of dead workers, with and without effects),
// live, dead (workers), overdue (deliveries), bulk (operations).
func (s *Store) Symptom(ctx context.Context, name string) (Symptom, error) {
	rows, err := s.pool.Query(ctx, symptoms[name]+` LIMIT `+strconv.Itoa(symptomBound))
	if err != nil {
		return Symptom{}, s.wrap("ask for "+name, err)
	}
	refs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[SymptomRef])
	return Symptom{refs}, s.wrap("ask for "+name, err)
}

// PendingMigrations lists the migrations of this program that the database has not, and
// reports whether the database is of a later program.
func (s *Store) PendingMigrations(ctx context.Context) (pending []string, later bool, err error) {
	var table *string
	if err := s.pool.QueryRow(ctx, `SELECT to_regclass('schema_migrations')::text`).Scan(&table); err != nil {
		return nil, false, s.wrap("read migrations", err)
	}
	applied := map[int]bool{}
	if table != nil {
		rows, err := s.pool.Query(ctx, `SELECT number FROM schema_migrations`)
		if err != nil {
			return nil, false, s.wrap("read migrations", err)
		}
		numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return nil, false, s.wrap("read migrations", err)
		}
		for _, n := range numbers {
			applied[n] = true
		}
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, false, err
	}
	for _, file := range files {
		name := strings.TrimPrefix(file, "migrations/")
		number, _, _ := strings.Cut(name, "_")
		n, _ := strconv.Atoi(number) // Migrate checks the names
		if !applied[n] {
			pending = append(pending, name)
		}
		delete(applied, n)
	}
	return pending, len(applied) > 0, nil
}

// ClockSkew is how far Postgres's clock is ahead of this machine's, as exactly as the round
// trip allows.
func (s *Store) ClockSkew(ctx context.Context) (time.Duration, error) {
	var there time.Time
	began := time.Now()
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
		return 0, s.wrap("read the clock", err)
	}
	return there.Sub(began.Add(time.Since(began) / 2)), nil
}
