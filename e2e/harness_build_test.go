// Package e2e checks the built programs as their users meet them: real processes on
// free ports with data directories of their own, called over HTTP. It owns the
// harness that starts, kills and stops them, and what must hold whatever dies.
// It must not reach into a running process: what it knows comes from the API, the
// process table and the upstream that the runs call.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stepwell/internal/devstack/stacktest"
)

// binVariable names the environment variable with a directory of programs to test
// (stepwell, server, worker) in place of those built from this source.
const binVariable = "STEPWELL_E2E_BIN"

var (
	rounds = flag.Int("rounds", 0, "rounds of each scenario of TestChaos; 0 skips it")
	seed   = flag.Int64("seed", 0, "seed of random moments; 0 takes one from the clock")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = time.Now().UnixNano()
	}
	waitTogether()
	code := stacktest.Main(m)
	if built.dir != "" && built.own {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: remove the links to the programs:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// waitTogether lets more tests run at a time than there are processors, unless the
// command line says how many: they mostly wait.
func waitTogether() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if p := flag.Lookup("test.parallel"); !given && p != nil && runtime.GOMAXPROCS(0) < 12 {
		_ = p.Value.Set("12") // a number: it cannot fail
	}
}

// built are the programs of this test process.
var built struct {
	once sync.Once
	dir  string
	own  bool // the directory goes with this process
	err  error
}

// programs gives the directory with stepwell, server, worker and temporald, built when
// they are missing or older than their sources.
func programs(t testing.TB) string {
	t.Helper()
	temporald := stacktest.Binary(t)
	built.once.Do(func() {
		if built.dir = os.Getenv(binVariable); built.dir == "" {
			built.own = true
			built.dir, built.err = build(temporald)
		}
	})
	if built.err != nil {
		t.Fatal("build the programs: ", built.err)
	}
	return built.dir
}

// lookAtSources reads all directories of sources. The go command notices that, and
// keeps no result of these tests for sources that have changed: most of them are in
// programs that this package does not import.
func lookAtSources(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		return err
	})
}

// build builds the programs into the repository's bin/e2e, where go build finds those
// that are still good, and gives a directory of hard links to them: programs that this
// process starts again later stay the same, whatever is built meanwhile.
func build(temporald string) (string, error) {
	root, err := filepath.Abs("..")
	if err == nil {
		err = lookAtSources(root)
	}
	if err != nil {
		return "", err
	}
	fresh := filepath.Join(root, "bin", "e2e")
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(fresh, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", fresh+"/", "./cmd/stepwell", "./cmd/server", "./cmd/worker")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	dir, err := os.MkdirTemp(fresh, "process-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"stepwell", "server", "worker"} {
		err = errors.Join(err, os.Link(filepath.Join(fresh, name), filepath.Join(dir, name)))
	}
	return dir, errors.Join(err, os.Symlink(temporald, filepath.Join(dir, "temporald")))
}
