package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/secret"
	"stepwell/service"
	"stepwell/store"
)

// keysFile holds the key ring of a data directory.
const keysFile = "encryption-keys"

// settled is how long after a new key has come first a process may still seal under the
// old one: longer than it takes to notice a changed file, and than a request takes that
// has sealed and not yet written.
const settled = 3 * time.Second

// RotateKeys seals every stored secret under the first key of the ring, also while the
// installation works. With the keys of the environment, newest must be the id of that key.
// In a data directory a new key is made and put first, unless newest names the first one.
func RotateKeys(ctx context.Context, cfg config.Config, newest, dir string, out io.Writer, log *zap.Logger) error {
	if err := placeKey(&cfg, newest, dir); err != nil {
		return err
	}
	ring, err := app.OpenRing(cfg)
	if err != nil {
		return err
	}
	if newest != "" && ring.Current() != newest {
		return fmt.Errorf("the first key of the ring is %q, not %q: put the new key first, in every process, then rotate", ring.Current(), newest)
	}
	url, release, err := databaseOf(ctx, cfg, dir, log)
	if err != nil {
		return err
	}
	defer release()
	s, err := store.Open(ctx, store.Config{URL: url, Sealer: ring, Log: log})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	if err := reseal(ctx, s, ring.Current(), out); err != nil {
		return err
	}
	return service.AuditRotation(ctx, s, ring.Current())
}

// placeKey finds the ring that is to be used, and puts a new key first in the file of a
// data directory.
func placeKey(cfg *config.Config, newest, dir string) error {
	if cfg.EncryptionKeys != "" || cfg.KeysFile != "" {
		if newest == "" {
			return errors.New("name the new key: stepwell admin rotate-keys KEY; it must be the first of the ring")
		}
		return nil
	}
	cfg.KeysFile = filepath.Join(dir, keysFile)
	if newest != "" {
		return nil
	}
	text, err := os.ReadFile(cfg.KeysFile)
	if err != nil {
		return fmt.Errorf("the key ring of %s: %w", dir, err)
	}
	if _, err := secret.ParseRing(string(text)); err != nil {
		return fmt.Errorf("%s: %w", cfg.KeysFile, err)
	}
	id := "dev-" + time.Now().UTC().Format("20060102-150405.000")
	return writeDurably(cfg.KeysFile, []byte(id+":"+secret.NewKey()+","+strings.TrimSpace(string(text))))
}

// reseal goes over all values, and once more when every process must have seen the key.
func reseal(ctx context.Context, s *store.Store, key string, out io.Writer) error {
	began := time.Now()
	progress := func(r store.Resealed) {
		fmt.Fprintf(out, "%s: %d of %d sealed again\n", r.Table, r.Resealed, r.Seen)
	}
	n, err := s.Reseal(ctx, progress)
	if err != nil {
		return fmt.Errorf("%d values are sealed under %s now, but not all: %w", n, key, err)
	}
	if left := settled - time.Since(began); left > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(left):
		}
	}
	late, err := s.Reseal(ctx, func(store.Resealed) {})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "done: every secret is sealed under %s (%d sealed again)\n", key, n+late)
	return nil
}

// databaseOf gives the address of the database that a configuration names, or that of the
// installation in a data directory, which is started when it does not run.
func databaseOf(ctx context.Context, cfg config.Config, dir string, log *zap.Logger) (url string, release func(), err error) {
	if cfg.DatabaseURL != "" {
		return cfg.DatabaseURL, func() {}, nil
	}
	stack, err := devstack.Start(ctx, devstack.Options{DataDir: dir, Log: log})
	switch {
	case err == nil:
		return stack.DatabaseURL(), func() {
			if err := stack.Close(context.WithoutCancel(ctx)); err != nil {
				log.Warn("the stack did not stop cleanly", zap.Error(err))
			}
		}, nil
	case errors.Is(err, devstack.ErrAlreadyRunning):
		text, err := os.ReadFile(filepath.Join(dir, urlFile))
		if err != nil {
			return "", nil, fmt.Errorf("the running installation is not ready yet; try again: %w", err)
		}
		return string(text), func() {}, nil
	}
	return "", nil, err
}
