package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// temporald knows how to run temporald.
type temporald struct {
	binary   string
	dir      string // its working directory: it keeps nothing there
	adminURL string
	settings map[string]string
	logPath  string
	log      *zap.Logger
}

func newTemporald(o Options, adminURL string) (*temporald, error) {
	binary, err := findTemporald(o.Temporald)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.DataDir, "temporald")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make temporald's directory: %w", err)
	}
	return &temporald{
		binary: binary, dir: dir, adminURL: adminURL, settings: o.TemporalSettings,
		logPath: filepath.Join(o.DataDir, "temporald.log"), log: o.Log,
	}, nil
}

// findTemporald looks for the binary where it was said to be, else beside the
// running executable, else in PATH.
func findTemporald(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if self, err := os.Executable(); err == nil {
		if self, err = filepath.EvalSymlinks(self); err == nil {
			beside := filepath.Join(filepath.Dir(self), "temporald")
			if info, err := os.Stat(beside); err == nil && !info.IsDir() {
				return beside, nil
			}
		}
	}
	if found, err := exec.LookPath("temporald"); err == nil {
		return filepath.Abs(found)
	}
	return "", errors.New("temporald was found neither beside this program nor in PATH: " +
		"build it there (go build in the directory temporald), or give the address of a Temporal that runs already")
}

// child describes temporald with its frontend at a port.
func (t *temporald) child(port int) *child {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	args := []string{"--listen", address}
	for _, key := range slices.Sorted(maps.Keys(t.settings)) {
		args = append(args, "--set", key+"="+t.settings[key])
	}
	var life *readyWriter // of the last start
	return &child{
		name:    "temporald",
		dir:     t.dir,
		logPath: t.logPath,
		command: func(output *os.File) *exec.Cmd {
			cmd := exec.Command(t.binary, args...)
			cmd.Dir = t.dir
			cmd.Env = append(environment(), "TEMPORALD_POSTGRES="+t.adminURL)
			life = &readyWriter{ready: make(chan struct{})}
			cmd.Stdout = life
			cmd.Stderr = output
			_, _ = cmd.StdinPipe() // its end tells temporald that we died
			cmd.SysProcAttr = childAttributes(syscall.SIGKILL)
			return cmd
		},
		ready: func(ctx context.Context) error {
			select {
			case <-life.ready:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("wait for temporald: %w", ctx.Err())
			}
		},
		taken:    "address already in use",
		stopping: []stopSignal{{syscall.SIGTERM, 5 * time.Second}},
		log:      t.log,
	}
}

// readyWriter reads what temporald prints, and closes ready at the line `ready`.
type readyWriter struct {
	ready chan struct{}
	once  sync.Once
	seen  []byte
}

func (w *readyWriter) Write(p []byte) (int, error) {
	if len(w.seen) < 1024 { // it prints nothing else
		w.seen = append(w.seen, p...)
	}
	if bytes.Contains(w.seen, []byte("ready\n")) {
		w.once.Do(func() { close(w.ready) })
	}
	return len(p), nil
}
