package devstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// applicationDatabase is the database that stepwell keeps its own tables in.
const applicationDatabase = "stepwell"

// superuser is the one role of our Postgres.
const superuser = "postgres"

// postgres knows how to make and run one Postgres.
type postgres struct {
	binaries binaries
	home     home
	password string
	settings map[string]string
	logPath  string
	log      *zap.Logger
}

// newPostgres finds the programs and makes the databases' directory when there
// is none yet.
func newPostgres(ctx context.Context, o Options, h home) (*postgres, error) {
	version, err := h.version()
	if err != nil {
		return nil, err
	}
	found, err := findBinaries(ctx, version, o.Log)
	if err != nil {
		return nil, err
	}
	password, err := loadPassword(filepath.Join(o.DataDir, "postgres-password"))
	if err != nil {
		return nil, err
	}
	p := &postgres{
		binaries: found, home: h, password: password,
		logPath: filepath.Join(o.DataDir, "postgres.log"), log: o.Log,
	}
	if version == 0 {
		if err := p.initialize(ctx); err != nil {
			return nil, err
		}
	}
	p.settings = p.defaultSettings(ctx)
	maps.Copy(p.settings, o.PostgresSettings)
	return p, nil
}

// loadPassword gives the superuser's password, which it makes when there is
// none. It is random and long, and known to nobody but this data directory.
func loadPassword(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err == nil && len(data) > 0 {
		return string(data), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the password of postgres: %w", err)
	}
	password := rand.Text()
	if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
		return "", fmt.Errorf("keep the password of postgres: %w", err)
	}
	return password, nil
}

// orphanPatience is how long the children of an initdb that was killed may go on.
const orphanPatience = 20 * time.Second

// removeHalfMade removes what an initdb left that was killed. Its own children die with
// it only when they next write to it, and until then may put files where others were just
// removed.
func removeHalfMade(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, orphanPatience)
	defer cancel()
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove a half made directory of databases: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// initialize makes the databases' directory. It works beside its final place
// and renames, so that a crash leaves a whole one or none.
func (p *postgres) initialize(ctx context.Context) error {
	fresh, passwordFile := p.home.dir("data.new"), p.home.dir("password.new")
	if err := removeHalfMade(ctx, fresh); err != nil {
		return err
	}
	if err := os.WriteFile(passwordFile, []byte(p.password), 0o600); err != nil {
		return fmt.Errorf("hand over the password of postgres: %w", err)
	}
	defer func() { _ = os.Remove(passwordFile) }()
	if err := p.home.giveAway(passwordFile); err != nil {
		return err
	}
	// Byte order, which every machine agrees about, and all of Unicode's letters
	// where the system knows them.
	var err error
	for _, ctype := range []string{"C.UTF-8", "C"} {
		cmd := exec.CommandContext(ctx, p.binaries.path("initdb"),
			"--pgdata="+fresh, "--username="+superuser, "--pwfile="+passwordFile,
			"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--lc-ctype="+ctype)
		cmd.Dir, cmd.Env = p.home.base, environment()
		cmd.SysProcAttr = p.home.attributes(syscall.SIGKILL)
		var output []byte
		if output, err = cmd.CombinedOutput(); err == nil {
			break
		}
		err = fmt.Errorf("make the databases (initdb): %w: %s", err, strings.TrimSpace(string(output)))
		if ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := os.Rename(fresh, p.home.data()); err != nil {
		return fmt.Errorf("put the databases into place: %w", err)
	}
	return syncDir(p.home.base)
}

// syncDir makes a rename in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return fmt.Errorf("sync a directory: %w", err)
	}
	return nil
}

// defaultSettings are Postgres's settings for one node that shares a machine
// with its clients. What is committed is on the disk: fsync, full_page_writes
// and synchronous_commit stay on.
func (p *postgres) defaultSettings(ctx context.Context) map[string]string {
	return map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		// temporald keeps 64 connections, a process of stepwell some dozens.
		"max_connections": "300",
		"shared_buffers":  "256MB",
		// Recovery after a crash replays at most about this much: seconds.
		"max_wal_size":       "256MB",
		"checkpoint_timeout": "5min",
		// So frequent checkpoints write many full pages; they compress well.
		"wal_compression": p.walCompression(ctx),
		// There is no replica: less is written.
		"wal_level":       "minimal",
		"max_wal_senders": "0",
		// Small queries all, for which compiling and retitling cost more than
		// they bring.
		"jit":                  "off",
		"update_process_title": "off",
		"random_page_cost":     "1.1", // solid state disks
		// Temporal's queues are tables whose rows live for milliseconds.
		"autovacuum_naptime":              "15s",
		"autovacuum_vacuum_scale_factor":  "0.05",
		"autovacuum_analyze_scale_factor": "0.05",
		"log_checkpoints":                 "off",
		"log_line_prefix":                 "%m [%p] ",
	}
}

// walCompression is the fastest method that this build of Postgres has.
func (p *postgres) walCompression(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, p.binaries.path("postgres"),
		"-D", p.home.data(), "-C", "wal_compression", "-c", "wal_compression=lz4")
	cmd.Dir, cmd.Env = p.home.base, environment()
	cmd.SysProcAttr = p.home.attributes(syscall.SIGKILL)
	if cmd.Run() == nil {
		return "lz4"
	}
	return "on"
}

// url is the postgres:// URL of a database, password included.
func (p *postgres) url(port int, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// child describes Postgres at a port.
func (p *postgres) child(port int) *child {
	args := []string{"-D", p.home.data(), "-p", strconv.Itoa(port)}
	for _, key := range slices.Sorted(maps.Keys(p.settings)) {
		args = append(args, "-c", key+"="+p.settings[key])
	}
	return &child{
		name:    "postgres",
		dir:     p.home.data(),
		logPath: p.logPath,
		command: func(output *os.File) *exec.Cmd {
			cmd := exec.Command(p.binaries.path("postgres"), args...)
			cmd.Dir, cmd.Env = p.home.data(), environment()
			cmd.Stdout, cmd.Stderr = output, output
			// An immediate shutdown: a fast one would wait for a checkpoint, and
			// a next start for its end.
			cmd.SysProcAttr = p.home.attributes(syscall.SIGQUIT)
			return cmd
		},
		ready:   func(ctx context.Context) error { return awaitPostgres(ctx, p.url(port, "postgres")) },
		cleanUp: p.cleanUp,
		taken:   "Address already in use",
		// A fast shutdown ends the sessions and writes a checkpoint; an immediate
		// one leaves that to the next start's recovery.
		stopping: []stopSignal{{syscall.SIGINT, 6 * time.Second}, {syscall.SIGQUIT, 2 * time.Second}},
		log:      p.log,
	}
}

// cleanUp removes the lock file of a killed Postgres. Postgres would do so
// itself, unless the process id in it belongs to another process by now; and we
// know more: we hold the data directory's lock, and no process works in it.
func (p *postgres) cleanUp() error {
	if !leftoversKnown {
		return nil
	}
	err := os.Remove(filepath.Join(p.home.data(), "postmaster.pid"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the lock of a killed postgres: %w", err)
	}
	return nil
}

// awaitPostgres waits until Postgres accepts sessions.
func awaitPostgres(ctx context.Context, url string) error {
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code != cannotConnectNow {
			return fmt.Errorf("connect to postgres: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres: %w", errors.Join(ctx.Err(), err))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Error codes of Postgres.
const (
	cannotConnectNow  = "57P03" // starting, recovering or stopping
	duplicateDatabase = "42P04"
)

// createDatabase makes a database when it is missing.
func createDatabase(ctx context.Context, adminURL, name string) error {
	conn, err := pgx.Connect(ctx, adminURL)
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
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

// environment is what our children see of ours: nothing that configures or
// belongs to stepwell, and no PG… variable that would configure them.
func environment() []string {
	env := []string{"LC_ALL=C"} // of messages and parsing, not of the databases
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "TZ"} {
		if value, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+value)
		}
	}
	return env
}
