package devstack

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/zap/zaptest"
)

// TestOtherUser runs Postgres as root must where user namespaces are not
// allowed: as another user, in a directory of that user's.
func TestOtherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	outside, err := os.MkdirTemp("/var/tmp", "stepwell-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(outside) })
	if err := os.Chmod(outside, 0o711); err != nil {
		t.Fatal(err)
	}
	h, err := otherUsersHome(filepath.Join(outside, "home"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPostgres(t.Context(), Options{DataDir: t.TempDir(), Log: zaptest.NewLogger(t)}, h)
	if err != nil {
		t.Fatal(err)
	}
	port := choosePort()
	c := p.child(port)
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the test's context has ended: at once
		if err := c.stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
	info, err := os.Stat(filepath.Join("/proc", strconv.Itoa(c.currentPID())))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner == 0 || owner != h.identity.Uid {
		t.Errorf("postgres runs as %d, want %d", owner, h.identity.Uid)
	}
}

func TestTakenPortIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := findHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPostgres(t.Context(), Options{DataDir: dir, Log: zaptest.NewLogger(t)}, h)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port
	if err := p.child(taken).start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("a start at a taken port gave %v", err)
	}
	chosen := &ports{path: filepath.Join(dir, "ports.json"), known: map[string]int{"postgres": taken}}
	c, err := chosen.start(t.Context(), "postgres", p.child)
	if err != nil {
		t.Fatal(err)
	}
	if chosen.of("postgres") == taken {
		t.Error("the taken port was kept")
	}
	if err := c.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLongLogIsCut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if _, err := l.file.Write(make([]byte, maxLogSize+1)); err != nil {
		t.Fatal(err)
	}
	l.trim()
	if _, err := l.file.WriteString("later"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{path: 5, path + ".1": maxLogSize + 1} {
		if info, err := os.Stat(name); err != nil || info.Size() != want {
			t.Errorf("%s has not %d bytes: %v, %v", name, want, info, err)
		}
	}
}
