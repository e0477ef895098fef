package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"stepwell/internal/demo"
)

// upstreamArgument makes this binary the demo upstream.
const upstreamArgument = "upstream"

// serveUpstream is the demo upstream in a process of its own: it prints its address
// and serves until stdin ends. It keeps almost no orders as text, so that page 10,000
// costs it as much as page 1.
func serveUpstream(stdin io.Reader, stdout io.Writer) error {
	s, err := demo.NewServer(demo.Options{Pages: 1})
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, s.URL())
	_, err = io.Copy(io.Discard, stdin)
	return errors.Join(err, s.Close())
}

// upstream is the child that serves the demo upstream.
type upstream struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
}

func startUpstream(ctx context.Context) (*upstream, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, upstreamArgument)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the demo upstream: %w", err)
	}
	u := &upstream{cmd: cmd, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		u.close()
		return nil, fmt.Errorf("the demo upstream gave no address: %w", err)
	}
	u.url = strings.TrimSpace(line)
	return u, nil
}

func (u *upstream) close() {
	_ = u.stdin.Close() // ends it
	_ = u.cmd.Wait()
}
