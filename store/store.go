// Package store keeps everything in Postgres: organizations, keys, tools, runs
// and their pages. It owns all SQL and the schema; every query is scoped by
// organization. It must not know Temporal, HTTP or what a step means.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"stepwell"
)

// Blobs keeps bodies too large for a row. Put returns when the body is durable; Delete
// gives, with its error, the keys that it could not remove. Errors have the kinds of
// package blob.
type Blobs interface {
	Put(ctx context.Context, key string, body io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, keys ...string) (failed []string, err error)
}

// Sealer seals and opens secrets bound to the row that holds them.
type Sealer interface {
	Seal(plaintext []byte, aad ...string) ([]byte, error)
	Open(sealed []byte, aad ...string) ([]byte, error)
	// NeedsRotation reports whether a value is sealed under another than the current key.
	NeedsRotation(sealed []byte) bool
}

// Config is what a Store needs.
type Config struct {
	URL      string // postgres:// address of the application's database
	MaxConns int32  // connections of the pool; 0 means 16
	// RunDeadline is how long after its start a run that is recorded now may be open;
	// 0 means for ever.
	RunDeadline time.Duration
	Blobs       Blobs
	Sealer      Sealer
	Log         *zap.Logger
}

// Store is the Postgres store. Its methods may be called from many goroutines.
type Store struct {
	pool   *pgxpool.Pool
	blobs  Blobs
	sealer Sealer
	log    *zap.Logger
	ends   pageEnds

	runDeadline time.Duration // 0 means none
}

// Open connects to Postgres, without waiting for it to answer. Call Migrate before use.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		// The driver's text may hold the password.
		return nil, errors.New("the database address is not a postgres:// URL")
	}
	pc.MaxConns = cfg.MaxConns
	if pc.MaxConns == 0 {
		pc.MaxConns = 16
	}
	pc.MinIdleConns = 2
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	pc.ConnConfig.RuntimeParams["application_name"] = "stepwell"
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return &Store{pool: pool, blobs: cfg.Blobs, sealer: cfg.Sealer, log: cfg.Log, runDeadline: cfg.RunDeadline}, nil
}

// Close closes the pool after its connections are returned.
func (s *Store) Close() { s.pool.Close() }

// Ping reports whether Postgres answers.
func (s *Store) Ping(ctx context.Context) error { return s.wrap("ping", s.pool.Ping(ctx)) }

// PoolState is the state of the pool of connections.
type PoolState struct {
	Max, InUse, Idle int
	Acquired, Waited int64 // connections taken since the start, and those of them that had to be waited for
	WaitTime         time.Duration
}

// Pool gives the state of the pool. It asks nobody.
func (s *Store) Pool() PoolState {
	p := s.pool.Stat()
	return PoolState{Max: int(p.MaxConns()), InUse: int(p.AcquiredConns()), Idle: int(p.IdleConns()),
		Acquired: p.AcquireCount(), Waited: p.EmptyAcquireCount(), WaitTime: p.EmptyAcquireWaitTime()}
}

// wrap gives an error its context and, when Postgres is away or overloaded, the kind
// Unavailable. An error that has a kind keeps it: those of the blob store have one.
func (s *Store) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	var se *stepwell.Error
	if errors.As(err, &se) {
		return err
	}
	err = fmt.Errorf("%s: %w", what, err)
	if isOutage(err) {
		return &stepwell.Error{Kind: stepwell.KindUnavailable, Code: "database_unavailable",
			Message: "The database is not available; try again shortly", Cause: err}
	}
	return err
}

// inTx runs f in one transaction.
func (s *Store) inTx(ctx context.Context, what string, f func(tx pgx.Tx) error) error {
	return s.wrap(what, pgx.BeginFunc(ctx, s.pool, f))
}

// Address is the host:port of a postgres:// URL, empty when there is none.
func Address(url string) string {
	c, err := pgx.ParseConfig(url)
	if err != nil || c.Port == 0 {
		return ""
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
}
