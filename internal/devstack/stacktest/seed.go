package stacktest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"stepwell/internal/devstack"
)

// notSeeded are the files of a data directory that are one stack's own.
var notSeeded = []string{"lock", "ports.json", "postgres.log", "temporald.log"}

// seed fills a new data directory with a copy of one that is kept for this
// machine, whose databases are made and whose Temporal has its schema. That
// takes a tenth of a second instead of two or three.
func seed(ctx context.Context, o devstack.Options) error {
	if o.DatabaseURL != "" || o.TemporalAddress != "" {
		return nil
	}
	if entries, err := os.ReadDir(o.DataDir); err != nil || len(entries) > 0 {
		return err // not new
	}
	source, err := seedDir(o.Temporald)
	if err != nil {
		return err
	}
	unlock, err := lock(source + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(source); errors.Is(err, fs.ErrNotExist) {
		removeStale(filepath.Join(os.TempDir(), fmt.Sprintf("stepwell-seed-%d-*[0-9a-f]", os.Geteuid())),
			func(dir string) string { return dir + ".lock" })
		err = makeSeed(ctx, source, o.Temporald)
		if err != nil {
			return fmt.Errorf("make the cached data directory: %w", err)
		}
	}
	return copyTree(source, o.DataDir)
}

// seedDir is where the cached directory is kept: another one for each user,
// temporald and Postgres.
func seedDir(temporald string) (string, error) {
	info, err := os.Stat(temporald)
	if err != nil {
		return "", err
	}
	postgres, _ := exec.LookPath("postgres")
	postgres, _ = filepath.EvalSymlinks(postgres) // "" says: a place that is found otherwise
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s", temporald, info.Size(), info.ModTime().UnixNano(), postgres))
	return filepath.Join(os.TempDir(), fmt.Sprintf("stepwell-seed-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:8]))), nil
}

func makeSeed(ctx context.Context, path, temporald string) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	stack, err := devstack.Start(ctx, devstack.Options{
		DataDir:   fresh,
		Temporald: temporald,
		// Few and small files to copy.
		PostgresSettings: map[string]string{"fsync": "off", "min_wal_size": "32MB", "wal_recycle": "off"},
	})
	if err != nil {
		return err
	}
	if err := stack.Close(ctx); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// removeStale removes the directories that match a pattern, are a day old and
// whose lock nobody holds: those of test processes that were killed, and of
// builds that are gone. What cannot be removed stays for the next time.
func removeStale(pattern string, lockOf func(dir string) string) {
	dirs, _ := filepath.Glob(pattern) // fails for malformed patterns only
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < 24*time.Hour {
			continue
		}
		file, err := os.Open(lockOf(dir))
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = file.Close()
	}
}

// copyTree copies the files of a directory, with their modes, into another.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == from {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil || slices.Contains(notSeeded, relative) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.Mkdir(target, info.Mode().Perm())
		}
		return copyFile(path, target, info.Mode().Perm())
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
