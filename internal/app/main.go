package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"stepwell/internal/config"
	"stepwell/internal/logging"
)

// Main runs the parts of a production process until a signal ends it, and gives the
// exit code.
func Main(parts Parts) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, parts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, parts Parts) error {
	cfg, err := config.Read()
	if err != nil {
		return err
	}
	log, err := logging.New(cfg.LogLevel)
	if err != nil {
		return err
	}
	n, err := Start(ctx, cfg, parts, log)
	if err != nil {
		return err
	}
	defer n.Close(context.WithoutCancel(ctx))
	if parts.Server {
		if err := n.announce(ctx); err != nil {
			return err
		}
	}
	if parts.Worker {
		fmt.Println("ready")
	}
	log.Info("running", zap.Bool("server", parts.Server), zap.Bool("worker", parts.Worker), zap.String("egress", cfg.Egress))
	<-ctx.Done()
	return nil
}

// announce makes sure that there is an admin key, begins to serve and says so.
func (n *Node) announce(ctx context.Context) error {
	key, err := n.Service.EnsureAdmin(ctx, n.Config.APIKey)
	if err != nil {
		return err
	}
	n.Serve()
	fmt.Println("ready", n.BaseURL())
	if key != "" {
		fmt.Println("admin key (shown once):", key)
	}
	return nil
}
