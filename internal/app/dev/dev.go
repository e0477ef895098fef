// Package dev is `stepwell dev`: the stack of one machine, server and worker in this
// process, and the demo. It owns what a data directory holds beside the databases. It is
// apart from app so that no production binary links the stack's supervisor.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/client"
	"stepwell/internal/app"
	"stepwell/internal/cli"
	"stepwell/internal/config"
	"stepwell/internal/demo"
	"stepwell/internal/devstack"
	"stepwell/internal/secret"
	"stepwell/service"
	"stepwell/store"
)

// demoMark is the file in the data directory that says that the demo was shown.
const demoMark = "demo-shown"

// urlFile holds the address of the running Postgres, for `stepwell admin`.
const urlFile = "database-url"

// temporalFile holds the address of the running Temporal, for `stepwell doctor`.
const temporalFile = "temporal-address"

// Run runs the whole stack on this machine until ctx ends.
func Run(ctx context.Context, cfg config.Config, opts cli.DevOptions, out io.Writer, tty bool, log *zap.Logger) error {
	cfg.Listen, cfg.DataDir = opts.Listen, opts.DataDir
	stack, err := devstack.Start(ctx, devstack.Options{DataDir: cfg.DataDir, DatabaseURL: cfg.DatabaseURL, TemporalAddress: cfg.TemporalAddress, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if err := stack.Close(context.WithoutCancel(ctx)); err != nil {
			log.Warn("the stack did not stop cleanly", zap.Error(err))
		}
	}()
	if cfg.DatabaseURL == "" {
		cfg.DatabaseURL = stack.DatabaseURL()
	}
	if cfg.TemporalAddress == "" {
		cfg.TemporalAddress = stack.TemporalAddress()
	}
	if err := devFiles(&cfg); err != nil {
		return err
	}
	n, err := app.Start(ctx, cfg, app.Parts{Server: true, Worker: true}, log)
	if err != nil {
		return err
	}
	defer n.Close(context.WithoutCancel(ctx))
	key, err := n.Service.EnsureAdmin(ctx, cfg.APIKey)
	if err != nil {
		return err
	}
	if cfg.APIKey != "" {
		key = cfg.APIKey
	}
	n.Serve()
	fmt.Fprintf(out, "ready %s\n", n.BaseURL())
	log.Info("serving", zap.String("base", n.BaseURL()), zap.String("egress", cfg.Egress))
	if err := show(ctx, n, opts.Demo, key, out, tty, log); err != nil && ctx.Err() == nil {
		fmt.Fprintln(out, err)
	}
	<-ctx.Done()
	return nil
}

// devFiles makes what dev keeps beside the databases: the key ring, and Postgres's
// address for `stepwell admin`. Both are secrets.
func devFiles(cfg *config.Config) error {
	if cfg.EncryptionKeys == "" && cfg.KeysFile == "" {
		cfg.KeysFile = filepath.Join(cfg.DataDir, keysFile)
		_, err := os.Stat(cfg.KeysFile)
		if errors.Is(err, os.ErrNotExist) {
			err = writeDurably(cfg.KeysFile, []byte("dev:"+secret.NewKey()))
		}
		if err != nil {
			return fmt.Errorf("the key ring: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, temporalFile), []byte(cfg.TemporalAddress), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(cfg.DataDir, urlFile), []byte(cfg.DatabaseURL), 0o600)
}

// writeDurably writes a file that must not be lost once something was sealed with it.
func writeDurably(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// show runs the demo when it is asked for, and writes what stays on the screen.
func show(ctx context.Context, n *app.Node, mode cli.DemoMode, key string, out io.Writer, tty bool, log *zap.Logger) error {
	ready := cli.Ready{BaseURL: n.BaseURL(), AdminKey: key}
	var failed error
	if mode != cli.DemoOff {
		upstream, err := startUpstream()
		if err != nil {
			return err
		}
		defer func() {
			<-ctx.Done() // the demo tool can be run again for as long as the stack is up
			upstream.Close()
		}()
		ready.Upstream = upstream.URL()
		mark := filepath.Join(n.Config.DataDir, demoMark)
		_, err = os.Stat(mark)
		if mode == cli.DemoAlways || err != nil {
			if failed = runDemo(ctx, n, out, tty, upstream.URL(), log); failed == nil {
				failed = os.WriteFile(mark, nil, 0o600)
			}
		}
		ready.DemoTool = failed == nil
	}
	cli.WriteReady(out, tty, ready)
	if failed != nil && ctx.Err() == nil {
		fmt.Fprintln(out, failed)
	}
	return nil
}

// startUpstream starts the demo upstream at the address that the documents name, or at
// a free one.
func startUpstream() (*demo.Server, error) {
	if s, err := demo.NewServer(demo.Options{Addr: demo.DefaultAddr}); err == nil {
		return s, nil
	}
	return demo.NewServer(demo.Options{})
}

// runDemo runs the demo with a key of its own, which ends with it.
func runDemo(ctx context.Context, n *app.Node, out io.Writer, tty bool, upstream string, log *zap.Logger) error {
	org, err := n.Service.Store.FirstOrganization(ctx)
	if err != nil {
		return err
	}
	keys := n.Service.Keys()
	key, text, err := keys.Create(ctx, org, &stepwell.APIKey{Name: "demo", Role: stepwell.RoleMember, ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		return err
	}
	defer func() {
		if err := keys.Delete(context.WithoutCancel(ctx), org, key.ID); err != nil {
			log.Warn("the demo's key was not deleted; it ends within an hour", zap.Error(err))
		}
	}()
	return cli.RunDemo(ctx, out, tty, client.New(n.BaseURL(), text), upstream)
}

// CreateOrganization makes an organization in the installation of a data directory,
// running or not, or in that of the environment.
func CreateOrganization(ctx context.Context, cfg config.Config, name, dir string, log *zap.Logger) (string, error) {
	url, release, err := databaseOf(ctx, cfg, dir, log)
	if err != nil {
		return "", err
	}
	defer release()
	s, err := store.Open(ctx, store.Config{URL: url, Log: log})
	if err != nil {
		return "", err
	}
	defer s.Close()
	if err := s.Migrate(ctx); err != nil {
		return "", err
	}
	return service.CreateOrganization(ctx, s, name)
}
