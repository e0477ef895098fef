package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"stepwell/internal/app"
	"stepwell/internal/config"
)

// workerArgument, as only argument, makes the test program a worker process.
const workerArgument = "stepwell-test-worker"

func workerRequested(args []string) bool { return len(args) == 2 && args[1] == workerArgument }

// workerMain is a worker process: its configuration is the first line of its stdin, whose
// end is its own.
func workerMain() {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	var cfg config.Config
	if err == nil {
		err = json.Unmarshal(line, &cfg)
	}
	log := zap.Must(zap.NewDevelopment(zap.IncreaseLevel(zap.WarnLevel)))
	var n *app.Node
	if err == nil {
		n, err = app.Start(context.Background(), cfg, app.Parts{Worker: true}, log)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, in)
	n.Close(context.Background())
	os.Exit(0)
}

// workerProcess is a worker that can be killed. It ends with the test.
type workerProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func startWorker(t *testing.T, cfg config.Config) *workerProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &workerProcess{cmd: exec.Command(exe, workerArgument)}
	w.cmd.Stderr = os.Stderr
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	document, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.stdin.Write(append(document, '\n')); err != nil {
		t.Fatal("write to the worker: ", err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the worker process said %q: %v", line, err)
	}
	return w
}

// kill ends the process with SIGKILL and waits for it.
func (w *workerProcess) kill() {
	if w.cmd.ProcessState == nil {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

// memory is the resident memory of a process in bytes, without its children's.
func memory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the system does not say how much memory the process has")
	return 0
}

// sampler notes the largest memory of a process while a test runs.
type sampler struct {
	stop chan struct{}
	done chan struct{}
	most int64
}

func sample(t *testing.T, pid int) *sampler {
	s := &sampler{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				s.most = max(s.most, memory(t, pid))
			}
		}
	}()
	return s
}

// end gives the largest memory seen.
func (s *sampler) end() int64 {
	close(s.stop)
	<-s.done
	return s.most
}
