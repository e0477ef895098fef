package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/tools/common/schema"
	"go.temporal.io/server/tools/sql"
	"golang.org/x/sync/errgroup"
)

// Temporal's databases, beside the application's. They cannot be one: both
// schemas keep a schema_version table.
const (
	databaseName           = "temporal"
	visibilityDatabaseName = "temporal_visibility"
)

// schemaLock is the key of the advisory lock under which databases and schemas
// are made; any constant that nobody else uses will do.
const schemaLock = 0x7374657077656c6c

// duplicateDatabase is Postgres's error code for a database that exists.
const duplicateDatabase = "42P04"

// prepareDatabases creates the two databases when they are missing and brings
// their schemas to this server's version. It waits for Postgres and for others
// who do the same until ctx ends, and may be repeated at any time.
func prepareDatabases(ctx context.Context, pg postgres, logger log.Logger) error {
	conn, err := connect(ctx, pg.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // also releases the lock
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(schemaLock)); err != nil {
		return fmt.Errorf("lock the schema: %w", err)
	}
	var updates errgroup.Group // both at once: they are most of a first start
	for name, schemaName := range map[string]string{
		databaseName:           "postgresql/v12/temporal",
		visibilityDatabaseName: "postgresql/v12/visibility",
	} {
		if err := createDatabase(ctx, conn, name); err != nil {
			return errors.Join(err, updates.Wait())
		}
		updates.Go(func() error {
			if err := updateSchema(pg.store(name), schemaName, logger); err != nil {
				return fmt.Errorf("schema of database %s: %w", name, err)
			}
			return nil
		})
	}
	return updates.Wait()
}

// connect waits until Postgres answers, for it may be starting or recovering.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		conn, err := pgx.Connect(attempt, url)
		cancel()
		if err == nil {
			return conn, nil
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code != "57P03" { // 57P03: starting up or recovering
			return nil, fmt.Errorf("connect to postgres: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to postgres: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func createDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	var exists bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == duplicateDatabase {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// updateSchema runs the two tasks of the server's own schema tool. The commits
// of its hundred statements need not each wait for the disk: whatever commits
// durably later, makes them durable too.
func updateSchema(store *config.SQL, schemaName string, logger log.Logger) error {
	store.ConnectAttributes["synchronous_commit"] = "off"
	store.MaxConns, store.MaxIdleConns = 1, 1
	db, err := sql.NewConnection(store, logger)
	if err != nil {
		return err
	}
	defer db.Close()
	setup := &schema.SetupConfig{InitialVersion: "0.0"}
	if err := schema.NewSetupSchemaTask(db, setup, logger).Run(); err != nil {
		return err
	}
	update := &schema.UpdateConfig{DBName: store.DatabaseName, SchemaName: schemaName}
	return schema.NewUpdateSchemaTask(db, update, logger).Run()
}
