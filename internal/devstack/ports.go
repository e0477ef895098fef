package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// Ports are chosen below the range that Linux gives to outgoing connections
// (32768 and up): a port of that range could be taken by any connection while
// its server is down, even by a client's attempt to reach the dead server.
const (
	lowestPort  = 15000
	highestPort = 32767
)

// portAttempts is how many ports are tried for one server.
const portAttempts = 10

// errPortTaken says that a server could not listen at its port.
var errPortTaken = errors.New("the port is taken")

// ports remembers each server's port, so that a data directory keeps its
// addresses over restarts.
type ports struct {
	path  string
	known map[string]int
}

func loadPorts(path string) (*ports, error) {
	p := &ports{path: path, known: map[string]int{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the ports: %w", err)
	}
	if err := json.Unmarshal(data, &p.known); err != nil {
		p.known = map[string]int{} // cut off by a crash: others will do
	}
	return p, nil
}

// of gives the port of a server that was started.
func (p *ports) of(name string) int { return p.known[name] }

// start starts a server at its port of last time, or at another one when that
// is taken, and remembers the port.
func (p *ports) start(ctx context.Context, name string, make func(port int) *child) (*child, error) {
	port := p.known[name]
	for attempt := 1; ; attempt++ {
		if port == 0 || !free(port) {
			port = choosePort()
		}
		c := make(port)
		err := c.start(ctx)
		if err == nil {
			p.known[name] = port
			return c, p.save()
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return nil, err
		}
		port = 0
	}
}

func (p *ports) save() error {
	data, err := json.Marshal(p.known)
	if err == nil {
		err = os.WriteFile(p.path, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the ports: %w", err)
	}
	return nil
}

// choosePort gives a port that is free now.
func choosePort() int {
	for {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if free(port) {
			return port
		}
	}
}

func free(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}
