// Command temporald is Temporal's server in one process, tuned for one node,
// on Postgres. `stepwell dev`, tests and benchmarks start it; production points
// at any Temporal. It owns its two databases and the registration of the
// namespace `stepwell`. It must not know anything else of stepwell, and it is a
// module of its own, so that nobody pays for the server's dependencies who does
// not run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/common/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// startTimeout bounds the wait for Postgres, for the schema and for the
// services together.
const startTimeout = 2 * time.Minute

// stopTimeout bounds an orderly stop. The server keeps nothing that a kill
// would lose, so there is no reason to wait long.
const stopTimeout = 3 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	go func() { // lives as long as the process
		// The parent holds the other end: it closes when the parent dies, however.
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "temporald:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("temporald", flag.ContinueOnError)
	url := flags.String("postgres", os.Getenv("TEMPORALD_POSTGRES"),
		"`URL` of Postgres, whose role may create databases (better given as TEMPORALD_POSTGRES: arguments are public)")
	address := flags.String("listen", "127.0.0.1:7233", "`HOST:PORT` of the frontend; the host is an IP address")
	var overrides []string
	flags.Func("set", "`key=value` of the dynamic configuration (repeated)", func(s string) error {
		overrides = append(overrides, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", strings.Join(flags.Args(), " "))
	}
	pg, err := parsePostgres(*url)
	if err != nil {
		return err
	}
	listen, err := net.ResolveTCPAddr("tcp", *address)
	if err != nil || listen.Port == 0 || listen.IP == nil {
		return fmt.Errorf("--listen %s is not IP:PORT", *address)
	}
	settings, err := loadSettings(overrides)
	if err != nil {
		return err
	}

	level := zap.NewAtomicLevelAt(zap.WarnLevel)
	logger := newLogger(level)

	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := prepareDatabases(starting, pg, logger); err != nil {
		return err
	}
	server, err := newServer(pg, listen, settings, logger)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	if err := waitUntilUsable(starting, reachable(listen.IP.String(), listen.Port)); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	level.SetLevel(zap.FatalLevel) // what the services say of each other's end is of no use
	return stopWithin(stopTimeout, server.Stop)
}

// newLogger logs to stderr, a JSON object a line, without stack traces: the
// server logs passing errors of its own calls with thirty frames each.
func newLogger(level zap.AtomicLevel) log.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.Lock(os.Stderr), level)
	return log.NewZapLogger(zap.New(core))
}

// stopWithin runs stop and gives up waiting for it after limit: the end of the
// process then ends the rest.
func stopWithin(limit time.Duration, stop func() error) error {
	done := make(chan error, 1)
	go func() { done <- stop() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return nil
	}
}
