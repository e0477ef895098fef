package fault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/internal/fault"
	"stepwell/internal/secret"
)

// apiKey is the admin key of every process here.
const apiKey = "fault-test-admin-key"

// program is the program with crash points, built once for a test process.
var program struct {
	sync.Once
	path string
	err  error
}

func build(t testing.TB) string {
	t.Helper()
	program.Do(func() {
		var dir string
		if dir, program.err = os.MkdirTemp("", "stepwell-fault-"); program.err != nil {
			return
		}
		program.path = filepath.Join(dir, "stepwell")
		cmd := exec.Command("go", "build", "-tags", "fault", "-o", program.path, "stepwell/cmd/stepwell")
		if output, err := cmd.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("%w: %s", err, output)
		}
	})
	if program.err != nil {
		t.Fatal("build the program with crash points: ", program.err)
	}
	return program.path
}

// lane is a Postgres and a Temporal that outlive the processes that are killed: what is
// tested is the death of stepwell's own.
type lane struct {
	stack *devstack.Stack
	dir   string
	keys  string
}

func newLane(t *testing.T) *lane {
	t.Helper()
	return &lane{stack: stacktest.Start(t, devstack.Options{}), dir: t.TempDir(), keys: "test:" + secret.NewKey()}
}

// process is a running server and worker with its crash points.
type process struct {
	base string
	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{} // closed when it has ended
}

// start starts a process with a plan of faults and waits until it serves. The process
// is nil when it died at a fault before that.
func (l *lane) start(t *testing.T, plan string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(build(t), "dev", "--listen", "127.0.0.1:0", "--data-dir", l.dir), log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), fault.Variable+"="+plan, "STEPWELL_API_KEY="+apiKey, "STEPWELL_LOG_LEVEL=info",
		"STEPWELL_DATABASE_URL="+l.stack.DatabaseURL(), "STEPWELL_TEMPORAL_ADDRESS="+l.stack.TemporalAddress(), "STEPWELL_ENCRYPTION_KEYS="+l.keys)
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if base, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
				ready <- base
			}
		}
		_ = p.cmd.Wait() // how it ended is looked at by signalled
	}()
	t.Cleanup(func() { p.kill() })
	select {
	case p.base = <-ready:
		return p
	case <-p.done:
		if p.died() {
			return nil
		}
		t.Fatalf("the process ended: %s\n%s", p.cmd.ProcessState, p.log)
	case <-time.After(time.Minute):
		t.Fatalf("the process does not serve\n%s", p.log)
	}
	return nil
}

// died reports whether an ended process was killed, as a fault kills.
func (p *process) died() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// ended reports whether the process has ended by itself.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process and all that it started, and waits for it.
func (p *process) kill() {
	if !p.ended() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // gone already is as good
	}
	<-p.done
}

// waitDeath waits until the process has died at its fault; false when it is alive after
// limit.
func (p *process) waitDeath(limit time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// syncBuffer keeps the last lines that a process logged.
type syncBuffer struct {
	mu   sync.Mutex
	data []byte
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	if len(b.data) > 64<<10 {
		b.data = b.data[len(b.data)-32<<10:]
	}
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data)
}

// eventually asks until the answer is yes, or fails the test.
func eventually(ctx context.Context, limit time.Duration, ask func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		yes, err := ask(ctx)
		if yes {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not within %s", limit), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestMain(m *testing.M) {
	code := stacktest.Main(m)
	if program.path != "" {
		_ = os.RemoveAll(filepath.Dir(program.path)) // a temporary directory
	}
	os.Exit(code)
}
