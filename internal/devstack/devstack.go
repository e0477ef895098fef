// Package devstack runs what stepwell needs beside itself, Postgres and
// temporald, as supervised child processes: for `stepwell dev`, tests and
// benchmarks. It owns the data directory and the life of the two children: they
// are started again when they die, at the same ports, and none outlives its
// parent. It must not be linked into the production binaries, knows nothing of
// what the databases hold, and keeps no settings of stepwell.
//
// It works on Linux and, without user namespaces and death signals, on other
// Unix systems.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
)

// ErrAlreadyRunning says that another process uses the data directory.
var ErrAlreadyRunning = errors.New("already running")

// closeTimeout bounds Close, whatever the children do: `stepwell dev`, which gives work
// in flight 15 s before, ends within 30.
const closeTimeout = 12 * time.Second

// Options say what to start and where. The zero value of every field but
// DataDir is a sensible default.
type Options struct {
	// DataDir keeps everything: databases, logs, ports, the password. It is
	// created with mode 0700, and locked while a Stack uses it.
	DataDir string
	// DatabaseURL is a postgres:// URL to use instead of an own Postgres. Its
	// role must be allowed to create databases when temporald is to be started.
	DatabaseURL string
	// TemporalAddress is the HOST:PORT of a Temporal to use instead of temporald.
	TemporalAddress string
	// Temporald is the path of the temporald binary. By default it is looked
	// for beside the running executable, then in PATH.
	Temporald string
	// TemporalSettings are dynamic configuration of temporald (its --set), for
	// tests: "limit.blobSize.error": "4096".
	TemporalSettings map[string]string
	// PostgresSettings are settings of Postgres (its -c) that win over ours, for
	// tests: "fsync": "off".
	PostgresSettings map[string]string
	// Log gets a line for everything unexpected, and for slow steps such as an
	// installation. Nil discards.
	Log *zap.Logger
}

// Stack is a running Postgres and a running Temporal. Its methods may be called
// from any goroutine.
type Stack struct {
	lock        *os.File
	databaseURL string
	address     string
	postgres    *child // nil when it is not ours
	temporald   *child // nil when it is not ours
	closing     sync.Once
}

// Start locks the data directory, ends what an earlier process may have left
// in it, and returns when both Postgres and Temporal serve. The first start
// takes some seconds, a later one about one. ErrAlreadyRunning says that
// another process has the directory. Ctx bounds the start only: a Stack lives
// until Close.
func Start(ctx context.Context, o Options) (*Stack, error) {
	if o.DataDir == "" {
		return nil, errors.New("devstack: no data directory given")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	dir, err := prepareDir(o.DataDir)
	if err != nil {
		return nil, err
	}
	o.DataDir = dir
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Stack{lock: lock, databaseURL: o.DatabaseURL, address: o.TemporalAddress}
	if err := s.start(ctx, o); err != nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(err, s.Close(closing))
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context, o Options) error {
	ports, err := loadPorts(filepath.Join(o.DataDir, "ports.json"))
	if err != nil {
		return err
	}
	adminURL := o.DatabaseURL
	if adminURL == "" {
		home, err := findHome(o.DataDir)
		if err != nil {
			return err
		}
		server, err := newPostgres(ctx, o, home)
		if err != nil {
			return fmt.Errorf("prepare postgres: %w", err)
		}
		s.postgres, err = ports.start(ctx, "postgres", server.child)
		if err != nil {
			return fmt.Errorf("start postgres: %w", err)
		}
		port := ports.of("postgres")
		s.databaseURL, adminURL = server.url(port, applicationDatabase), server.url(port, "postgres")
		if err := createDatabase(ctx, adminURL, applicationDatabase); err != nil {
			return err
		}
	}
	if o.TemporalAddress == "" {
		server, err := newTemporald(o, adminURL)
		if err != nil {
			return err
		}
		s.temporald, err = ports.start(ctx, "temporald", server.child)
		if err != nil {
			return fmt.Errorf("start temporald: %w", err)
		}
		s.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.of("temporald")))
	}
	return nil
}

// DatabaseURL is the postgres:// URL of the application's database. It holds a
// password: it belongs in no log.
func (s *Stack) DatabaseURL() string { return s.databaseURL }

// TemporalAddress is the HOST:PORT of Temporal's frontend.
func (s *Stack) TemporalAddress() string { return s.address }

// PostgresPID is the process id of the postmaster now, for tests that kill it;
// 0 when it is down at the moment or not ours.
func (s *Stack) PostgresPID() int { return s.postgres.currentPID() }

// TemporaldPID is the process id of temporald now, for tests that kill it; 0
// when it is down at the moment or not ours.
func (s *Stack) TemporaldPID() int { return s.temporald.currentPID() }

// Close stops temporald, then Postgres, and gives the data directory free. It
// leaves no process behind, and returns within 12 s: what does not stop when
// asked to, or when ctx ends first, is killed. Closing again does nothing.
func (s *Stack) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var err error
	s.closing.Do(func() {
		err = errors.Join(s.temporald.stop(ctx), s.postgres.stop(ctx), s.lock.Close())
	})
	return err
}

// prepareDir makes the data directory and gives its path without symbolic
// links, in the form in which the system shows working directories.
func prepareDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the data directory: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the data directory: %w", err)
	}
	return dir, nil
}
