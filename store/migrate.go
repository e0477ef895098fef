package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the key of the advisory lock under which migrations run
// ("stepwell" read as a number).
const migrationLock = 0x7374657077656c6c

// Migrate brings the schema up to date: numbered files, each in a transaction of
// its own, under an advisory lock so that several processes may start at once.
func (s *Store) Migrate(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig.Copy())
	if err != nil {
		return s.wrap("migrate", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(migrationLock)); err != nil {
		return s.wrap("migrate: lock", err)
	}
	if _, err := conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS schema_migrations (number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`); err != nil {
		return s.wrap("migrate", err)
	}
	var done int
	if err := conn.QueryRow(ctx, `SELECT coalesce(max(number), 0) FROM schema_migrations`).Scan(&done); err != nil {
		return s.wrap("migrate", err)
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, file := range files {
		if err := applyMigration(ctx, conn, file, done); err != nil {
			return s.wrap("migrate", err)
		}
	}
	return nil
}

func applyMigration(ctx context.Context, conn *pgx.Conn, file string, done int) error {
	number, _, _ := strings.Cut(strings.TrimPrefix(file, "migrations/"), "_")
	n, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("migration %s has no number", file)
	}
	if n <= done {
		return nil
	}
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, string(text)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		_, err := tx.Exec(ctx, `INSERT INTO schema_migrations (number) VALUES ($1)`, n)
		return err
	})
}
