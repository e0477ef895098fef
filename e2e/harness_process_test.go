package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// readyTimeout bounds a start: recovery of Postgres after a kill and schemas included,
// on a machine that runs other tests too.
const readyTimeout = 60 * time.Second

// process is one program that a test starts, kills, stops and starts again with the
// same arguments. Its output goes to a file in its directory.
type process struct {
	name string // of its log
	args []string
	env  []string
	dir  string // working directory, by which its children are recognized too

	mu   sync.Mutex
	life *life
}

// life is one start of a process.
type life struct {
	cmd    *exec.Cmd
	ready  chan string   // one value: what follows the word ready
	exited chan struct{} // closed after the end, when err is set
	err    error
}

// start starts the process and gives what it prints after `ready `.
func (p *process) start(t testing.TB) string {
	t.Helper()
	l, err := p.spawn()
	if err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	select {
	case text := <-l.ready:
		return text
	case <-l.exited:
		t.Fatalf("%s ended before it was ready: %v", p.name, l.err)
	case <-timeout.C:
		t.Fatalf("%s was not ready within %s", p.name, readyTimeout)
	}
	return ""
}

// spawn starts one life. Its thread is kept for as long as the process lives: the
// system kills the process when that thread, and so this test process, ends.
func (p *process) spawn() (*life, error) {
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &life{ready: make(chan string, 1), exited: make(chan struct{})}
	l.cmd = exec.Command(p.args[0], p.args[1:]...)
	l.cmd.Dir, l.cmd.Env = p.dir, p.env
	l.cmd.Stderr = log
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err := l.cmd.StdinPipe(); err != nil { // temporald ends with its input
		return nil, err
	}
	started := make(chan error)
	go func() { // ends with the process, whose end the test's cleanup waits for
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		if err := l.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(log, lines.Text())
			if text, ok := strings.CutPrefix(lines.Text(), "ready"); ok {
				select {
				case l.ready <- strings.TrimSpace(text):
				default:
				}
			}
		}
		l.err = l.cmd.Wait()
		close(l.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life = l
	return l, nil
}

func (p *process) current() *life {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// pid is the process id of the current or last life, 0 before the first.
func (p *process) pid() int {
	if l := p.current(); l != nil {
		return l.cmd.Process.Pid
	}
	return 0
}

// alive reports whether it runs, stopped or not.
func (p *process) alive() bool {
	l := p.current()
	if l == nil {
		return false
	}
	select {
	case <-l.exited:
		return false
	default:
		return true
	}
}

// signal sends a signal.
func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.pid(), s); err != nil {
		t.Errorf("%s to %s: %v", s, p.name, err)
	}
}

// kill ends the process at once, when it runs, and waits for its end.
func (p *process) kill() {
	if !p.alive() {
		return
	}
	_ = syscall.Kill(p.pid(), syscall.SIGKILL) // it may have just ended
	<-p.current().exited
}

// wait waits for the end and gives it; ok is false after the limit.
func (p *process) wait(limit time.Duration) (err error, ok bool) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	l := p.current()
	select {
	case <-l.exited:
		return l.err, true
	case <-timeout.C:
		return nil, false
	}
}

func (p *process) logPath() string { return filepath.Join(p.dir, p.name+".log") }

// processesUnder lists the processes that work in a directory or below it, as
// `pid name`.
func processesUnder(dir string) []string {
	var found []string
	eachProcess(func(pid int, name string) {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			found = append(found, fmt.Sprintf("%d %s", pid, name))
		}
	})
	return found
}

// childOf gives the process id of a process's child of a name, 0 without one.
func childOf(parent int, name string) int {
	for _, pid := range childrenOf(parent) {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.TrimSpace(string(comm)) == name {
			return pid
		}
	}
	return 0
}

// childrenOf gives the process ids of a process's children that have not ended.
func childrenOf(parent int) []int {
	var found []int
	eachProcess(func(pid int, _ string) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		// pid (name) state parent …
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			found = append(found, pid)
		}
	})
	return found
}

func eachProcess(visit func(pid int, name string)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
			visit(pid, strings.TrimSpace(string(comm)))
		}
	}
}

// freeAddress gives an address to listen at, below the ports that the system gives to
// outgoing connections: a restarted server finds it free.
func freeAddress(t testing.TB) string {
	t.Helper()
	for port := 10000 + os.Getpid()%2000; port < 15000; port++ {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if _, taken := takenAddresses.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// takenAddresses are those that freeAddress has given.
var takenAddresses sync.Map

// pause stops a process that is not the test's own child; it goes on with the test's
// end at the latest.
func pause(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("stop process %d: %v", pid, err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it may have ended
}

// resume lets a stopped process go on.
func resume(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatalf("continue process %d: %v", pid, err)
	}
}
