package devstack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// parentDir names the data directory for a test binary that is to be a parent
// which a test kills.
const parentDir = "DEVSTACK_TEST_PARENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDir); dir != "" {
		beParent(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// beParent starts a stack, says so, and never stops it.
func beParent(dir string) {
	stack, err := devstack.Start(context.Background(), devstack.Options{
		DataDir: dir, Temporald: os.Getenv(stacktest.BinaryVariable),
	})
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString("pids " + strconv.Itoa(stack.PostgresPID()) + " " + strconv.Itoa(stack.TemporaldPID()) + "\n")
	select {}
}

func start(t *testing.T, dir string) *devstack.Stack {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Options{DataDir: dir, Temporald: stacktest.Binary(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStack(t, stack) })
	return stack
}

func closeStack(t *testing.T, stack *devstack.Stack) {
	t.Helper()
	begin := time.Now()
	if err := stack.Close(context.Background()); err != nil {
		t.Error("close:", err)
	}
	if took := time.Since(begin); took > 60*time.Second {
		t.Error("closing took", took)
	}
}

// eventually waits until f says that it is so.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func execSQL(t *testing.T, stack *devstack.Stack, sql string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, stack.DatabaseURL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// alive lists the processes with one of the pids that still run.
func alive(pids ...int) error {
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			return errors.New("process " + strconv.Itoa(pid) + " is alive")
		}
	}
	return nil
}

func TestSurvivesKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stack := start(t, dir)
	for name, pid := range map[string]int{"postgres": stack.PostgresPID(), "temporald": stack.TemporaldPID()} {
		comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if err != nil || strings.TrimSpace(string(comm)) != name {
			t.Errorf("process %d is called %q (%v), want %s", pid, comm, err, name)
		}
	}
	if err := execSQL(t, stack, `CREATE TABLE kept AS SELECT 1 AS one`); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{stack.PostgresPID(), stack.TemporaldPID()} {
		if group, err := syscall.Getpgid(pid); err != nil || group != pid {
			t.Errorf("process %d is in group %d (%v): Ctrl-C would reach it", pid, group, err)
		}
	}
	old, untouched := stack.PostgresPID(), stack.TemporaldPID()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "postgres comes back with its data", func() error {
		return execSQL(t, stack, `SELECT one FROM kept`)
	})
	if now := stack.PostgresPID(); now == old || now == 0 {
		t.Errorf("postgres is process %d, was %d", now, old)
	}
	eventually(t, "temporal works after postgres was away", func() error {
		return stacktest.Probe(t.Context(), stack.TemporalAddress())
	})

	if now := stack.TemporaldPID(); now != untouched {
		t.Errorf("temporald is process %d, was %d: it did not survive the end of postgres", now, untouched)
	}

	old = stack.TemporaldPID()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "temporald comes back", func() error {
		if now := stack.TemporaldPID(); now == old || now == 0 {
			return errors.New("not started again")
		}
		return stacktest.Probe(t.Context(), stack.TemporalAddress())
	})
}

func TestCloseAndStartAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, dir)
	if _, err := devstack.Start(t.Context(), devstack.Options{DataDir: dir}); !errors.Is(err, devstack.ErrAlreadyRunning) {
		t.Errorf("a second start gave %v, want %v", err, devstack.ErrAlreadyRunning)
	}
	if err := execSQL(t, first, `CREATE TABLE kept AS SELECT 1 AS one`); err != nil {
		t.Fatal(err)
	}
	pids := []int{first.PostgresPID(), first.TemporaldPID()}
	closeStack(t, first)
	if err := alive(pids...); err != nil {
		t.Error("after Close:", err)
	}
	if left := processesUnder(t, dir); len(left) > 0 {
		t.Errorf("after Close: processes in the data directory: %v", left)
	}

	second := start(t, dir)
	if err := execSQL(t, second, `SELECT one FROM kept`); err != nil {
		t.Error("after a new start:", err)
	}
	if first.DatabaseURL() != second.DatabaseURL() || first.TemporalAddress() != second.TemporalAddress() {
		t.Error("the addresses changed with a new start")
	}
}

func TestKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kill, postgres, temporald := startParent(t, dir)
	kill()
	begin := time.Now()
	eventually(t, "nothing is left", func() error {
		if left := processesUnder(t, dir); len(left) > 0 {
			return errors.New("processes are left")
		}
		return alive(postgres, temporald)
	})
	if took := time.Since(begin); took > 20*time.Second {
		t.Error("the children took", took, "to end")
	}
	start(t, dir)
}

// A Postgres that was killed leaves its lock file, and may leave processes. The
// process id in the file may be another's by now.
func TestLeftoversAreEnded(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	closeStack(t, start(t, dir))
	data := filepath.Join(dir, "postgres", "data")
	leftover, stranger := sleeper(t, data), sleeper(t, elsewhere)
	pidFile := filepath.Join(data, "postmaster.pid")
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(stranger)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stack := start(t, dir)
	if err := execSQL(t, stack, `SELECT 1`); err != nil {
		t.Error(err)
	}
	eventually(t, "the leftover ends", func() error { return alive(leftover) })
	if err := alive(stranger); err == nil {
		t.Error("a stranger was killed")
	}
}

// sleeper starts a process called postgres that works in dir and does nothing.
func sleeper(t *testing.T, dir string) (pid int) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "postgres")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "100")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // so that a killed one is gone
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	return cmd.Process.Pid
}

// startParent starts a process that has a stack in dir, and gives the pids of
// its children and a function that kills it.
func startParent(t *testing.T, dir string) (kill func(), postgres, temporald int) {
	t.Helper()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentDir+"="+dir, stacktest.BinaryVariable+"="+stacktest.Binary(t))
	parent.Stderr = os.Stderr
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = parent.Process.Kill()
		_ = parent.Wait()
	})
	t.Cleanup(kill)
	line := make([]byte, 100)
	n, err := stdout.Read(line)
	if err == nil {
		_, err = fmt.Sscanf(string(line[:n]), "pids %d %d", &postgres, &temporald)
	}
	if err != nil {
		t.Fatalf("the parent said %q: %v", line[:n], err)
	}
	if err := alive(postgres, temporald); err == nil {
		t.Fatal("the children of the parent are not there")
	}
	return kill, postgres, temporald
}

func TestOthersServers(t *testing.T) {
	t.Parallel()
	first := start(t, t.TempDir())
	second, err := devstack.Start(t.Context(), devstack.Options{
		DataDir: t.TempDir(), DatabaseURL: first.DatabaseURL(), TemporalAddress: first.TemporalAddress(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if second.PostgresPID() != 0 || second.TemporaldPID() != 0 {
		t.Error("servers were started although others are to be used")
	}
	closeStack(t, second)
	if err := execSQL(t, first, `SELECT 1`); err != nil {
		t.Error("another's postgres was stopped:", err)
	}
}

func TestRefusedSettingLeavesNothing(t *testing.T) {
	t.Parallel()
	for misspelt, o := range map[string]devstack.Options{
		"limit.blobsize.eror": {TemporalSettings: map[string]string{"limit.blobSize.eror": "1"}},
		"max_conections":      {PostgresSettings: map[string]string{"max_conections": "1"}},
	} {
		t.Run(misspelt, func(t *testing.T) {
			t.Parallel()
			o.DataDir, o.Temporald = t.TempDir(), stacktest.Binary(t)
			stack, err := devstack.Start(t.Context(), o)
			if err == nil {
				closeStack(t, stack)
				t.Fatal("a misspelt setting was taken")
			}
			if !strings.Contains(err.Error(), misspelt) {
				t.Errorf("the error does not name it: %v", err)
			}
			if left := processesUnder(t, o.DataDir); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}

// processesUnder lists the processes whose working directory is below dir.
func processesUnder(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			found = append(found, link)
		}
	}
	return found
}
