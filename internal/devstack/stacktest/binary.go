package stacktest

import (
	"errors"
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
)

// BinaryVariable names the environment variable with the path of a temporald
// that is to be used instead of one built here.
const BinaryVariable = "STEPWELL_TEMPORALD_BIN"

var builtBinary = sync.OnceValues(func() (string, error) { return buildBinary("temporald", "temporald") })

// Binary gives the path of temporald. It is built into the repository's bin/
// when it is missing there or older than its sources: the first time on a
// machine takes minutes.
func Binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv(BinaryVariable)
	var err error
	if path == "" {
		path, err = builtBinary()
	}
	if err != nil {
		t.Fatal("build temporald: ", err)
	}
	return path
}

// buildBinary builds a module of the repository into bin/, one test process at a time.
func buildBinary(name, module string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(bin, "."+name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	binary, sources := filepath.Join(bin, name), filepath.Join(root, filepath.FromSlash(module))
	fresh, err := newerThan(binary, sources)
	if err != nil || fresh {
		return binary, err
	}
	// Renamed into place: a running one keeps its file.
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary+".new", ".")
	build.Dir = sources
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return binary, os.Rename(binary+".new", binary)
}

// repository is the directory of the module that this file was compiled from,
// or, when paths were trimmed, the one above the working directory.
func repository() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	dir := filepath.Dir(file)
	if !ok || !filepath.IsAbs(dir) {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return "", err
		}
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "temporald", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the sources of temporald were not found; set " + BinaryVariable)
}

// newerThan reports whether a file is newer than every file in a directory that
// goes into a build.
func newerThan(file, dir string) (bool, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	newest := time.Time{}
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		source, err := entry.Info()
		built := !entry.IsDir() && !strings.HasSuffix(entry.Name(), "_test.go")
		if err == nil && built && source.ModTime().After(newest) {
			newest = source.ModTime()
		}
		return err
	})
	return info.ModTime().After(newest), err
}

// lock waits for an exclusive lock on a file; the result releases it.
func lock(path string) (func(), error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}
