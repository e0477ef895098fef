package js

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one evaluator child, used by one goroutine at a time.
type process struct {
	cmd     *exec.Cmd
	in, out *os.File
	reader  *bufio.Reader
	stderr  *tail
	dead    chan struct{} // closed when the child is gone
}

// starter starts children on a thread of its own, which lives as long as they
// do: the kernel takes the end of the thread that started a child for the
// parent's death.
type starter struct {
	executable string
	requests   chan func()
	done       chan struct{}
	children   sync.WaitGroup
}

func newStarter(executable string) *starter {
	s := &starter{executable: executable, requests: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for request := range s.requests {
			request()
		}
	}()
	return s
}

// close waits for all children, which must have been killed, and ends the thread.
func (s *starter) close() {
	s.children.Wait()
	close(s.requests)
	<-s.done
}

// start starts a child with a memory limit in bytes.
func (s *starter) start(memory int64) (*process, error) {
	var p *process
	var err error
	finished := make(chan struct{})
	s.requests <- func() {
		defer close(finished)
		p, err = s.launch(memory)
	}
	<-finished
	if err != nil {
		return nil, err
	}
	// The time to start must not count against the first evaluation.
	if err := p.greeting(); err != nil {
		p.kill()
		return nil, fmt.Errorf("starting an evaluator: %w: %s", err, p.stderr) // it has seen no data yet
	}
	return p, nil
}

// greeting waits until the child is ready to serve.
func (p *process) greeting() error {
	if err := p.out.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	_, err := readFrame(p.reader, 0)
	return err
}

func (s *starter) launch(memory int64) (*process, error) {
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting an evaluator: %w", err)
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("starting an evaluator: %w", err)
	}
	defer childOut.Close()
	p := &process{in: in, out: out, reader: bufio.NewReaderSize(out, 64<<10), stderr: &tail{}, dead: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path:        s.executable,
		Args:        []string{childName, strconv.FormatInt(memory, 10)},
		Env:         []string{},
		Dir:         "/",
		Stdin:       childIn,
		Stdout:      childOut,
		Stderr:      p.stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if err := p.cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("starting an evaluator: %w", err)
	}
	s.children.Go(func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		in.Close()
		close(p.dead)
	})
	return p, nil
}

// alive reports whether the child has not ended.
func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// kill ends the child and waits until it is gone.
func (p *process) kill() {
	p.signal()
	p.wait()
}

// signal tells the child to end. It may be called by any goroutine.
func (p *process) signal() {
	_ = p.cmd.Process.Kill() // gone already is as good
}

// wait waits for the end of a child that is dying.
func (p *process) wait() {
	<-p.dead
	p.out.Close()
}

// exchange sends a frame and reads n answers; each may take as long as timeout.
// got is called for every answer. The number of answers received is given back
// also with an error, after which the process must be killed.
func (p *process) exchange(ctx context.Context, frame []byte, n int, timeout time.Duration, got func(i int, answer *reading) error) (int, error) {
	stop := context.AfterFunc(ctx, p.signal)
	defer stop()
	// An answer that is ready lies in the pipe, so the deadline of the read is
	// that of the evaluation.
	deadline := time.Now().Add(timeout)
	if err := p.in.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := p.in.Write(frame); err != nil {
		return 0, err
	}
	for i := range n {
		if err := p.out.SetReadDeadline(deadline); err != nil {
			return i, err
		}
		answer, err := readFrame(p.reader, maxFrame)
		if err == nil {
			if err = got(i, answer); err == nil {
				err = answer.err
			}
		}
		if err != nil {
			return i, err
		}
		deadline = time.Now().Add(timeout)
	}
	return n, nil
}

// Deaths of children.
type death int

const (
	deathTime     death = iota // we killed it at the deadline
	deathMemory                // it ran out of memory
	deathStack                 // its stack overflowed
	deathOutside               // somebody else killed it
	deathProtocol              // it said what it should not
)

func (d death) String() string {
	return [...]string{"time", "memory", "stack", "killed from outside", "protocol"}[d]
}

// bury ends a process after an exchange failed with err and says what it died of.
func (p *process) bury(err error) death {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.kill()
		return deathTime
	case errors.Is(err, errWire):
		p.kill()
		return deathProtocol
	}
	// The pipes are closed, so the child is ending; what it ended of comes out
	// only when it is gone.
	select {
	case <-p.dead:
	case <-time.After(5 * time.Second):
		p.kill()
	}
	p.wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	said := p.stderr.String()
	switch {
	case strings.Contains(said, "stack overflow") || strings.Contains(said, "stack exceeds"):
		return deathStack
	case ok && status.Signaled() && status.Signal() != syscall.SIGSEGV && status.Signal() != syscall.SIGBUS && status.Signal() != syscall.SIGABRT:
		return deathOutside
	}
	return deathMemory
}

// tail keeps the first bytes that a dying child says. They may hold data and are
// only searched, never shown.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b[:min(len(b), maxStderr-len(t.b))]...)
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
