package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/logging"
	"stepwell/internal/secret"
)

// stack is everything that runs: Postgres, temporald, the demo upstream, and a node
// (server and worker) in this process.
type stack struct {
	dir       string
	stacks    []*devstack.Stack
	upstream  *upstream
	node      *app.Node
	admin     string // key
	database  string // direct URL of the application's database; secret
	temporal  string // direct address
	disk      string // how fast it is
	log       *zap.Logger
	observers *observers // nil without a profile
}

// startStack starts everything in a new directory; close removes it. With observers the
// parts talk to each other through these.
func startStack(ctx context.Context, o options, watch *observers) (s *stack, err error) {
	s = &stack{log: zap.NewNop(), observers: watch}
	if o.verbose {
		if s.log, err = logging.New("info"); err != nil {
			return nil, err
		}
	}
	if s.dir, err = os.MkdirTemp(o.dir, "stepwell-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.disk, err = diskSpeed(s.dir); err != nil {
		return nil, err
	}
	if s.upstream, err = startUpstream(ctx); err != nil {
		return nil, err
	}
	if err := s.startDatabases(ctx, o.temporald); err != nil {
		return nil, err
	}
	return s, s.startNode(ctx)
}

// startDatabases starts Postgres and temporald with the settings of `stepwell dev`.
func (s *stack) startDatabases(ctx context.Context, temporald string) error {
	data := devstack.Options{DataDir: filepath.Join(s.dir, "data"), Temporald: temporald, Log: s.log}
	if s.observers != nil {
		data.TemporalAddress = "127.0.0.1:1" // Postgres alone: temporald's is observed
	}
	first, err := devstack.Start(ctx, data)
	if err != nil {
		return err
	}
	s.stacks = append(s.stacks, first)
	s.database, s.temporal = first.DatabaseURL(), first.TemporalAddress()
	if s.observers == nil {
		return nil
	}
	through, err := s.observers.postgres("temporald", s.database)
	if err != nil {
		return err
	}
	second, err := devstack.Start(ctx, devstack.Options{DataDir: filepath.Join(s.dir, "temporal"),
		DatabaseURL: through, Temporald: temporald, Log: s.log})
	if err != nil {
		return err
	}
	s.stacks = append(s.stacks, second)
	s.temporal = second.TemporalAddress()
	return nil
}

// startNode starts server and worker by the constructor that `stepwell dev` uses.
func (s *stack) startNode(ctx context.Context) error {
	cfg, err := config.Read()
	if err != nil {
		return err
	}
	cfg.Listen, cfg.DataDir, cfg.BlobURL = "127.0.0.1:0", filepath.Join(s.dir, "data"), ""
	cfg.DatabaseURL, cfg.ListenURL, cfg.TemporalAddress = s.database, s.database, s.temporal
	cfg.EncryptionKeys = "bench:" + secret.NewKey()
	cfg.Egress = "private"
	cfg.MaxOpenRuns = 1_000_000
	if s.observers != nil {
		if cfg.DatabaseURL, err = s.observers.postgres("stepwell", s.database); err != nil {
			return err
		}
		if cfg.TemporalAddress, err = s.observers.grpc("stepwell", s.temporal); err != nil {
			return err
		}
		if s.upstream.url, err = s.observers.http("stepwell", s.upstream.url); err != nil {
			return err
		}
	}
	if s.node, err = app.Start(ctx, cfg, app.Parts{Server: true, Worker: true}, s.log); err != nil {
		return err
	}
	if s.admin, err = s.node.Service.EnsureAdmin(ctx, ""); err != nil {
		return err
	}
	s.node.Serve()
	return nil
}

// close stops everything and removes its directory.
func (s *stack) close() {
	if s.node != nil {
		s.node.Close(context.Background())
	}
	for i := len(s.stacks) - 1; i >= 0; i-- {
		if err := s.stacks[i].Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "bench: stop the databases:", err)
		}
	}
	if s.upstream != nil {
		s.upstream.close()
	}
	if s.observers != nil {
		s.observers.close()
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench: remove the databases:", err)
	}
}

// diskSpeed says how long it takes to make 8 KiB durable: what a commit waits for.
func diskSpeed(dir string) (string, error) {
	f, err := os.CreateTemp(dir, "disk-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	block, took := make([]byte, 8<<10), make([]float64, 100)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(block, 0); err != nil {
			return "", err
		}
		if err := f.Sync(); err != nil {
			return "", err
		}
		took[i] = milliseconds(time.Since(began))
	}
	return fmt.Sprintf("fsync of 8 KiB takes %.2f ms at the median", median(took)), nil
}

// throughProxy is a URL with another host:port.
func throughProxy(address, proxy string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("an address of the stack is malformed")
	}
	u.Host = proxy
	return u.String(), nil
}

func hostPort(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Port() == "" {
		return "", fmt.Errorf("an address of the stack is malformed")
	}
	return net.JoinHostPort(u.Hostname(), u.Port()), nil
}
