package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Waits between a child's death and its next start: short, because clients are
// waiting for it; growing, because one that dies at once will do so again.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
	stableTime = time.Minute // alive for so long, the next wait is the shortest
)

// stopSignal is one step of a stop: the signal, and how long it may take.
type stopSignal struct {
	signal syscall.Signal
	wait   time.Duration
}

// child is a supervised process: once started, it is started again whenever it
// ends, until stop. A nil child is one that is not ours: it does nothing.
type child struct {
	name     string
	dir      string                          // its working directory, which tells its processes from others
	logPath  string                          // where its output goes
	command  func(output *os.File) *exec.Cmd // a new command for each start
	ready    func(context.Context) error     // waits until it serves
	cleanUp  func() error                    // puts away what a killed one left, when none of its processes is alive
	taken    string                          // what it says when its port is taken
	stopping []stopSignal                    // politest first
	log      *zap.Logger

	output  *logFile // since start
	mu      sync.Mutex
	current *process
	cancel  context.CancelFunc // ends the supervision
	done    chan struct{}      // closed when the supervision has ended
}

// process is one life of a child.
type process struct {
	pid    int
	exited chan struct{} // closed after the end, when err is set
	err    error
}

// start starts the child and its supervision, and returns when it serves. On an
// error nothing is left running.
func (c *child) start(ctx context.Context) error {
	if err := c.clear(ctx); err != nil {
		return err
	}
	output, err := openLog(c.logPath)
	if err != nil {
		return err
	}
	c.output = output
	p, err := c.spawn()
	if err != nil {
		output.close()
		return err
	}
	supervising, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel, c.done = cancel, make(chan struct{})
	err = c.awaitReady(ctx, p)
	if err != nil {
		cancel()
		close(c.done)
		killing, release := context.WithCancel(context.WithoutCancel(ctx))
		release() // at once
		err = c.explain(err)
		return errors.Join(err, c.end(killing, p))
	}
	go c.supervise(supervising, p)
	return nil
}

// explain adds to an error of a start what the child said.
func (c *child) explain(err error) error {
	said := c.output.tail()
	if strings.Contains(said, c.taken) {
		err = errors.Join(err, errPortTaken)
	}
	return fmt.Errorf("%w: %s", err, said)
}

// awaitReady waits until the child serves, has ended, or ctx ends.
func (c *child) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with cancel at the latest
		select {
		case <-p.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := c.ready(ctx)
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended: %w", c.name, exitError(p.err))
	default:
		return err
	}
}

// supervise starts the child again whenever it ends, until ctx ends.
func (c *child) supervise(ctx context.Context, p *process) {
	defer close(c.done)
	backoff := minBackoff
	for {
		started := time.Now()
		if !c.watch(ctx, p) {
			return
		}
		if time.Since(started) > stableTime {
			backoff = minBackoff
		}
		for p = nil; p == nil; backoff = min(2*backoff, maxBackoff) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			p = c.restart(ctx)
		}
	}
}

// watch waits for the end of p, and reports whether it is to be started again.
func (c *child) watch(ctx context.Context, p *process) bool {
	trim := time.NewTicker(logCheckInterval)
	defer trim.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-trim.C:
			c.output.trim()
		case <-p.exited:
			if ctx.Err() != nil {
				return false
			}
			c.log.Warn(c.name+" ended and is started again", zap.NamedError("cause", exitError(p.err)))
			return true
		}
	}
}

// restart starts the child once more; nil says that it did not work.
func (c *child) restart(ctx context.Context) *process {
	err := c.clear(ctx)
	if err == nil {
		var p *process
		if p, err = c.spawn(); err == nil {
			return p
		}
	}
	if ctx.Err() == nil {
		c.log.Error(c.name+" could not be started again", zap.Error(err))
	}
	return nil
}

// clear waits for the end of what an earlier life or an earlier parent left,
// and puts away its traces.
func (c *child) clear(ctx context.Context) error {
	if err := endLeftovers(ctx, c.name, c.dir); err != nil {
		return err
	}
	if c.cleanUp == nil {
		return nil
	}
	return c.cleanUp()
}

// spawn starts one life.
//
// The death signal that the command asks for is sent when the *thread* that
// created the child ends. So a goroutine keeps its thread to itself for as long
// as the child lives.
func (c *child) spawn() (*process, error) {
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() { // ends with the child, whose end stop waits for
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := c.command(c.output.file)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	c.mu.Lock()
	c.current = p
	c.mu.Unlock()
	return p, nil
}

// currentPID is the process id of the life that runs now, else 0.
func (c *child) currentPID() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.current.exited:
		return 0
	default:
		return c.current.pid
	}
}

// stop ends the supervision and the child. When ctx ends, it is killed.
func (c *child) stop(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.cancel()
	<-c.done
	return c.end(ctx, c.current)
}

// end makes a life end, with one signal after the other.
func (c *child) end(ctx context.Context, p *process) error {
	defer c.output.close()
	for _, step := range append(c.stopping, stopSignal{syscall.SIGKILL, time.Second}) {
		if gone(p) {
			break
		}
		if ctx.Err() == nil || step.signal == syscall.SIGKILL {
			_ = syscall.Kill(p.pid, step.signal) // it may have just ended
			waitEnd(ctx, p, step)
		}
	}
	if !gone(p) {
		return fmt.Errorf("%s (process %d) does not end", c.name, p.pid)
	}
	// A killed postmaster's children end by themselves, a moment later.
	return endLeftovers(context.WithoutCancel(ctx), c.name, c.dir)
}

// waitEnd waits for the end of p after a signal: as long as the step says, and
// not beyond ctx, unless the signal is the last one.
func waitEnd(ctx context.Context, p *process, step stopSignal) {
	if step.signal == syscall.SIGKILL {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, step.wait)
	defer cancel()
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
}

func gone(p *process) bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// exitError is why a process ended; one that ended well ended unasked.
func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
