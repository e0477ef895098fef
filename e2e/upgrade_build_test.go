package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var upgradeFrom = flag.String("upgrade.from", "", "commit or tag of the release before; default: the newest release commit before this one, without one the 20th commit before")

// Where the release before is looked for when no commit says that it is one.
const (
	commitsBack = 20
	tryBuilding = 15 // commits, from that one on, until one builds
)

// before are the programs of the release before, for all tests of this process.
var before struct {
	once   sync.Once
	dir    string
	commit string
	err    error
}

var errNoHistory = errors.New("the history of the source is not here")

// programsBefore gives the directory with server and worker of the release before. A
// test without history is skipped; say -upgrade.from to insist.
func programsBefore(t testing.TB) string {
	t.Helper()
	before.once.Do(func() { before.dir, before.commit, before.err = buildBefore() })
	if errors.Is(before.err, errNoHistory) && *upgradeFrom == "" {
		t.Skip("NOT TESTED: upgrade and rollback, because ", before.err)
	}
	if before.err != nil {
		t.Fatal("build the release before: ", before.err)
	}
	t.Logf("the release before is %s", before.commit)
	return before.dir
}

func buildBefore() (dir, commit string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	candidates, err := commitsBefore(ctx)
	if err != nil {
		return "", "", err
	}
	for _, commit := range candidates {
		var dir string
		if dir, err = buildCommit(ctx, commit); err == nil {
			return dir, commit, nil
		}
	}
	return "", "", err
}

// commitsBefore gives the commits to try, in order.
func commitsBefore(ctx context.Context) ([]string, error) {
	if *upgradeFrom != "" {
		commit, err := git(ctx, "rev-parse", "--verify", *upgradeFrom+"^{commit}")
		return []string{commit}, err
	}
	text, err := git(ctx, "log", "--format=%H %s", "HEAD~1")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHistory, err)
	}
	lines := strings.Split(text, "\n")
	var all []string
	for _, line := range lines {
		commit, subject, _ := strings.Cut(line, " ")
		if strings.HasPrefix(subject, "release ") {
			return []string{commit}, nil
		}
		all = append(all, commit)
	}
	if len(all) < commitsBack {
		return nil, fmt.Errorf("%w: there are only %d commits before this one", errNoHistory, len(all))
	}
	return all[commitsBack-1 : min(commitsBack-1+tryBuilding, len(all))], nil
}

// git runs a command of git in the repository and gives what it prints.
func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// buildCommit builds server and worker of a commit into a directory of their own below
// bin/e2e, where a later test process finds them.
func buildCommit(ctx context.Context, commit string) (string, error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "e2e", "release-"+commit[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	complete := filepath.Join(dir, "complete")
	if now := time.Now(); os.Chtimes(complete, now, now) == nil {
		return dir, nil
	}
	removeOld(filepath.Dir(dir))
	source, err := os.MkdirTemp("", "stepwell-release-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(source) }()
	archive := filepath.Join(source, "source.tar")
	if _, err := git(ctx, "archive", "--format=tar", "--output="+archive, commit); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"tar", "-xf", archive},
		{"go", "build", "-trimpath", "-o", dir + "/", "./cmd/server", "./cmd/worker"},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
		if output, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s of %s: %w: %s", args[0], commit, err, output)
		}
	}
	return dir, os.WriteFile(complete, nil, 0o600)
}

// keepBuilt is for how long the programs of a release that nobody uses are kept.
const keepBuilt = 24 * time.Hour

// removeOld removes programs of releases that have not been used for long.
func removeOld(dir string) {
	old, err := filepath.Glob(filepath.Join(dir, "release-*", "complete"))
	if err != nil {
		return
	}
	for _, complete := range old {
		if info, err := os.Stat(complete); err == nil && time.Since(info.ModTime()) > keepBuilt {
			_ = os.RemoveAll(filepath.Dir(complete)) // the next one tries again
		}
	}
}
