package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"go.uber.org/zap"

	"stepwell/internal/metrics"
)

// aside is a listener for operators beside the API: nobody else should reach it.
type aside struct {
	name     string
	listener net.Listener
	server   *http.Server
}

// Limits of the listeners beside the API. A profile may be asked for over a minute.
const (
	asideHeaders = 5 * time.Second
	asideWrite   = 2 * time.Minute
	asideIdle    = 2 * time.Minute
	asideBytes   = 16 << 10 // of headers
)

// listenAside opens the listeners of metrics and profiles, as far as they are wanted.
func (n *Node) listenAside() error {
	if address := n.Config.MetricsListen; address != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", n.metrics.Handler())
		mux.HandleFunc("GET /health/ready", n.showReady)
		if err := n.addAside("metrics", address, mux); err != nil {
			return err
		}
	}
	if address := n.Config.PprofListen; address != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		return n.addAside("pprof", loopback(address), mux)
	}
	return nil
}

// loopback puts the loopback address in the place of a host that is not given: a
// profile shows memory, and memory holds secrets.
func loopback(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" {
		return address
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func (n *Node) addAside(name, address string, h http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s for %s: %w", address, name, err)
	}
	n.log.Info("listening for operators", zap.String("for", name), zap.String("address", l.Addr().String()))
	n.asides = append(n.asides, &aside{name, l, &http.Server{Handler: h, ReadHeaderTimeout: asideHeaders, ReadTimeout: asideHeaders,
		WriteTimeout: asideWrite, IdleTimeout: asideIdle, MaxHeaderBytes: asideBytes, ErrorLog: zap.NewStdLog(n.log)}})
	return nil
}

// serve answers until close.
func (a *aside) serve(log *zap.Logger) {
	if err := a.server.Serve(a.listener); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		log.Error("a listener ended", zap.String("for", a.name), zap.Error(err))
	}
}

// close ends the listener, served or not, and cuts off who is asking: it can ask again.
func (a *aside) close() {
	_ = a.server.Close()
	_ = a.listener.Close()
}

// AsideAddress is where metrics or pprof can be asked for, empty when they are off.
func (n *Node) AsideAddress(name string) string {
	for _, a := range n.asides {
		if a.name == name {
			return a.listener.Addr().String()
		}
	}
	return ""
}

// watch shows figures that are read when they are asked for. What is the same for all
// processes is shown by servers alone.
func (n *Node) watch(parts Parts) {
	n.metrics.WatchDatabase(func() metrics.Database { return metrics.Database(n.store.Pool()) })
	if parts.Server {
		n.metrics.WatchRuns(func(ctx context.Context) (metrics.Open, error) {
			running, oldest, err := n.store.OpenRuns(ctx)
			if err != nil {
				return metrics.Open{}, err
			}
			undelivered, err := n.store.OldestDelivery(ctx)
			return metrics.Open{Running: running, OldestUnstarted: oldest, OldestDelivery: undelivered}, err
		})
	}
}

// showReady answers like GET /v1/health/ready of the API, for workers, which have none.
// A worker needs Temporal: without it there is nothing to do.
func (n *Node) showReady(w http.ResponseWriter, r *http.Request) {
	status, states := http.StatusOK, map[string]string{}
	for _, c := range n.ready.checks(r.Context()) {
		states[c.Name] = "ok"
		if c.Err != nil {
			states[c.Name] = "down"
			if c.Required || n.http == nil {
				status = http.StatusServiceUnavailable
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(map[string]any{"checks": states}); err != nil {
		n.log.Debug("who asked for readiness has hung up", zap.Error(err))
	}
}
