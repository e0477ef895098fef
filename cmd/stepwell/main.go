// Command stepwell is what a person types: the whole stack on one machine, and the
// client of a running service.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"stepwell/engine/js"
	"stepwell/internal/app/dev"
	"stepwell/internal/cli"
	"stepwell/internal/config"
	"stepwell/internal/logging"
)

// version is set when a release is built.
var version = "development"

func main() {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := config.Read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stepwell:", err)
		os.Exit(2)
	}
	log, err := logging.New(cfg.LogLevel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stepwell:", err)
		os.Exit(2)
	}
	tty := term.IsTerminal(int(os.Stdout.Fd()))
	code := cli.Main(ctx, os.Args[1:], cli.Commands{
		Version:  version,
		Defaults: cli.DevOptions{Listen: cfg.Listen, DataDir: cfg.DataDir},
		Dev:      func(ctx context.Context, o cli.DevOptions) error { return dev.Run(ctx, cfg, o, os.Stdout, tty, log) },
		Doctor:   func(ctx context.Context, dir string) ([]cli.Finding, error) { return dev.Doctor(ctx, cfg, dir) },
		CreateOrganization: func(ctx context.Context, name, dir string) (string, error) {
			return dev.CreateOrganization(ctx, cfg, name, dir, log)
		},
		RotateKeys: func(ctx context.Context, newest, dir string, out io.Writer) error {
			return dev.RotateKeys(ctx, cfg, newest, dir, out, log)
		},
	})
	stop()
	os.Exit(code)
}
