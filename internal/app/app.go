// Package app wires the program: it makes the parts from the configuration, starts
// them, and stops them in the right order. It owns no behaviour of its own.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/activities"
	"stepwell/api"
	"stepwell/engine/js"
	"stepwell/internal/blob"
	"stepwell/internal/config"
	"stepwell/internal/metrics"
	"stepwell/internal/outbound"
	"stepwell/internal/secret"
	"stepwell/internal/temporalsetup"
	"stepwell/internal/tracing"
	"stepwell/service"
	"stepwell/store"
	"stepwell/web"
	"stepwell/workflows"
)

// Parts says what a process is.
type Parts struct {
	Server, Worker bool
	// Settings shape the runs that this process starts; nil means the defaults. For
	// tests: small ones reach in seconds what takes large runs hours.
	Settings *workflows.Settings
}

// name is that of the process in traces.
func (p Parts) name() string {
	switch {
	case p.Server && p.Worker:
		return "dev"
	case p.Server:
		return "server"
	}
	return "worker"
}

// unfinishedFor is how long nobody must have written to a blob for its writer to count
// as dead.
const unfinishedFor = 24 * time.Hour

// Node is a running server, worker, or both.
type Node struct {
	Config  config.Config
	Service *service.Service
	log     *zap.Logger

	ring      *secret.Ring
	blobs     *blob.Store
	store     *store.Store
	evaluator *js.Pool
	temporal  client.Client
	sender    *outbound.Client
	metrics   *metrics.Metrics // nil when they are off
	tracer    *tracing.Tracer  // nil when traces are off
	asides    []*aside
	ready     *readiness

	activities *activities.Activities // nil without a worker
	joining    context.CancelFunc     // ends the attempts to reach Temporal
	joined     chan struct{}          // closed when they have ended
	workers    []worker.Worker        // of runs and of callbacks; set before joined is closed, none when Temporal was never reached
	listener   net.Listener           // nil without a server
	http       *http.Server

	background sync.WaitGroup
	stop       context.CancelFunc
}

// startTimeout bounds what a start waits for: Postgres for migrations, Temporal for a
// process that is a worker only.
const startTimeout = 60 * time.Second

// joinPatience is how long a server's start waits for Temporal. Then it serves without:
// runs are accepted and wait.
const joinPatience = 5 * time.Second

// Start makes and starts the parts of a process. Addresses of Postgres and Temporal
// must be set. Close stops it.
func Start(ctx context.Context, cfg config.Config, parts Parts, log *zap.Logger) (n *Node, err error) {
	n = &Node{Config: cfg, log: log}
	defer func() {
		if err != nil {
			n.Close(context.WithoutCancel(ctx))
		}
	}()
	if n.tracer, err = tracing.New(ctx, "stepwell-"+parts.name(), log); err != nil {
		return n, err
	}
	if cfg.MetricsListen != "" {
		n.metrics = metrics.New()
	}
	if err := n.open(ctx); err != nil {
		return n, err
	}
	if parts.Server {
		if n.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
			return n, fmt.Errorf("listen on %s: %w", cfg.Listen, err)
		}
	}
	if err := n.listenAside(); err != nil {
		return n, err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := n.migrate(starting); err != nil {
		return n, err
	}
	if err := n.assemble(parts); err != nil {
		return n, err
	}
	return n, n.run(ctx, starting)
}

// open makes what server and worker share.
func (n *Node) open(ctx context.Context) error {
	cfg := n.Config
	if cfg.DatabaseURL == "" || cfg.TemporalAddress == "" {
		return errors.New("STEPWELL_DATABASE_URL and STEPWELL_TEMPORAL_ADDRESS must be set; `stepwell dev` brings both")
	}
	var err error
	if n.ring, err = OpenRing(cfg); err != nil {
		return err
	}
	if cfg.BlobURL == "" {
		dir, err := filepath.Abs(filepath.Join(cfg.DataDir, "blobs"))
		if err != nil {
			return err
		}
		cfg.BlobURL = blob.DirectoryURL(dir)
	}
	if n.blobs, err = blob.Open(ctx, cfg.BlobURL); err != nil {
		return err
	}
	n.store, err = store.Open(ctx, store.Config{URL: cfg.DatabaseURL, MaxConns: int32(cfg.DatabaseConns), RunDeadline: cfg.RunDeadline, Blobs: n.blobs, Sealer: n.ring, Log: n.log})
	if err != nil {
		return err
	}
	if n.temporal, err = temporalsetup.Connect(cfg.TemporalAddress, n.log, n.metrics, n.tracer); err != nil {
		return err
	}
	n.evaluator, err = js.NewPool(js.Options{Size: cfg.Evaluators, OnRestart: n.metrics.EvaluatorRestarted})
	return err
}

// migrate brings the schema up to date. It waits for a Postgres that is away or still
// recovering: a process that is started meanwhile must not need to be started again.
func (n *Node) migrate(ctx context.Context) error {
	for {
		err := n.store.Migrate(ctx)
		if stepwell.KindOf(err) != stepwell.KindUnavailable {
			return err
		}
		n.log.Warn("waiting for Postgres", zap.Error(err))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// assemble makes service, worker and server.
func (n *Node) assemble(parts Parts) error {
	cfg := n.Config
	settings := workflows.DefaultSettings()
	if parts.Settings != nil {
		settings = *parts.Settings
	}
	settings.Activities = cfg.Activities
	base := cfg.PublicURL
	if n.listener != nil && base == "" {
		base = n.BaseURL()
	}
	sc := service.Config{Callbacks: api.NewCallbacks(n.ring, base, cfg.Notice), Store: n.store, ListenURL: cfg.ListenURL, Workflows: workflows.NewClient(n.temporal, settings),
		Evaluator: n.evaluator, MaxOpen: cfg.MaxOpenRuns, Log: n.log, Metrics: n.metrics,
		PortalLinkLife: cfg.PortalLinkLife,
		Retention:      cfg.Retention, Tidy: func(ctx context.Context) error { return n.blobs.RemoveUnfinished(ctx, unfinishedFor) }}
	if sc.ListenURL == "" {
		sc.ListenURL = cfg.DatabaseURL
	}
	if err := n.makeSender(); err != nil {
		return err
	}
	if parts.Worker {
		n.makeWorker(&sc)
	}
	n.Service = service.New(sc)
	n.ready = newReadiness(n.store, sc.Workflows, n.evaluator)
	n.watch(parts)
	if parts.Server {
		brands, err := web.ReadBrands(cfg.Brands)
		if err != nil {
			return fmt.Errorf("STEPWELL_BRANDS: %w", err)
		}
		portal := web.New(web.Config{Portal: n.Service.Portal(n.sender), PublicURL: cfg.PublicURL, Brands: brands, Contact: cfg.PortalContact, Log: n.log})
		handler := api.New(api.Config{
			Keys: n.Service.Keys(), Tools: n.Service.Tools(), Validator: n.Service, Runs: n.Service, Runner: n.Service, Links: n.ring, Systems: n.Service.Systems(),
			States: n.Service.States(), EndUsers: n.Service.EndUsers(), Audit: n.Service.Audit(), Portal: portal,
			Deliveries: n.Service,
			Ready:      n.ready.checks, Tracer: n.tracer, Measure: n.metrics.HTTP,
			Log: n.log, SyncWait: cfg.SyncWait, MaxBody: cfg.MaxBody, PublicURL: cfg.PublicURL, Notice: cfg.Notice,
			MaxInFlight: cfg.MaxInFlight, MaxWaiting: cfg.MaxWaiting, Bulk: n.Service.Bulks(),
		})
		n.Service.Again = handler.Again
		n.http = api.NewServer(cfg.Listen, handler, n.log)
	}
	return nil
}

// makeSender makes the client to the outside: of the worker, and of sign-ins in the portal.
func (n *Node) makeSender() (err error) {
	cfg := n.Config
	refuse := []string{cfg.TemporalAddress, store.Address(cfg.DatabaseURL)}
	if n.listener != nil {
		refuse = append(refuse, n.listener.Addr().String())
	}
	for _, a := range n.asides {
		refuse = append(refuse, a.listener.Addr().String())
	}
	n.sender, err = outbound.New(outbound.Config{Mode: cfg.Egress, Allow: cfg.EgressAllow, Refuse: refuse, MaxAnswer: cfg.MaxAnswer})
	return err
}

func (n *Node) makeWorker(sc *service.Config) {
	sc.Worker = uuid.NewString()
	n.activities = activities.New(activities.Config{
		Worker: sc.Worker, Store: n.store, Evaluator: n.evaluator, Sender: n.sender, Log: n.log,
		Masker:  func(secrets []string) func(string) string { return secret.NewMasker(secrets).Mask },
		Ended:   func(r *stepwell.Run) { n.Service.Ended(r) },
		Deliver: func(org string, deliveries []string) { n.Service.Deliver(org, deliveries) },
		CallbackBody: func(ctx context.Context, org, run string) ([]byte, error) {
			return n.Service.CallbackBody(ctx, org, run)
		},
		BlobWait: n.Config.BlobWait, Metrics: n.metrics, Tracer: n.tracer,
	})
	sc.Local = n.activities
}

// run starts everything that was made.
func (n *Node) run(ctx, starting context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	for _, a := range n.asides {
		n.background.Go(func() { a.serve(n.log) })
	}
	n.background.Go(func() { n.Service.Run(background) })
	if n.Config.KeysFile != "" {
		n.background.Go(func() { n.watchKeys(background) })
	}
	var joining context.Context
	joining, n.joining = context.WithCancel(background)
	n.joined = make(chan struct{})
	go n.join(joining) // ends with Close, which waits for it
	var patience <-chan time.Time
	if n.http != nil {
		timer := time.NewTimer(joinPatience)
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-n.joined:
	case <-patience:
		n.log.Warn("serving without Temporal: runs are accepted and wait for it")
	case <-starting.Done():
		return fmt.Errorf("the Temporal at %s does not answer", n.Config.TemporalAddress)
	}
	return nil
}

// join makes sure that the namespace is there and starts the worker, again and again
// until Temporal answers: it may be started after this process.
func (n *Node) join(ctx context.Context) {
	defer close(n.joined)
	for {
		err := n.tryJoin(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		n.log.Warn("waiting for Temporal", zap.String("address", n.Config.TemporalAddress), zap.Error(err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

func (n *Node) tryJoin(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	if err := temporalsetup.EnsureNamespace(asking, n.temporal); err != nil || n.activities == nil {
		return err
	}
	// A worker whose start failed cannot be started again.
	// The SDK lets workflow tasks end first, and activities after them: together within StopWait.
	stopWait := n.Config.StopWait * 2 / 3
	made := []worker.Worker{temporalsetup.NewWorker(n.temporal, n.activities, n.Config.WorkerSlots, stopWait),
		temporalsetup.NewDeliverer(n.temporal, n.activities, stopWait)}
	for i, w := range made {
		if err := w.Start(); err != nil {
			for _, started := range made[:i] {
				started.Stop()
			}
			return fmt.Errorf("start the worker: %w", err)
		}
	}
	n.workers = made
	return nil
}

// leave ends the attempts to reach Temporal, or stops the worker.
func (n *Node) leave(ctx context.Context) {
	if n.joined == nil {
		return
	}
	n.joining()
	select {
	case <-n.joined:
	case <-ctx.Done():
		return
	}
	var stopping sync.WaitGroup
	for _, w := range n.workers {
		stopping.Go(w.Stop)
	}
	stopping.Wait()
}

// Serve begins to answer requests, when the process is a server.
func (n *Node) Serve() {
	n.background.Go(func() {
		if err := n.http.Serve(n.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("the HTTP server ended", zap.Error(err))
		}
	})
}

// BaseURL is the address of the API, with /v1.
func (n *Node) BaseURL() string {
	addr := n.listener.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(addr.Port)) + "/v1"
}

// Close stops everything: no new requests and no new work, then what is in flight may
// end for StopWait, then the rest is cut off. It leaves no goroutine behind.
func (n *Node) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.Config.StopWait)
	defer cancel()
	var stopping sync.WaitGroup
	if n.http != nil {
		stopping.Go(func() { n.closeHTTP(ctx) })
	}
	stopping.Go(func() { n.leave(ctx) })
	stopping.Wait()
	if n.activities != nil {
		n.activities.Close(ctx)
	}
	if n.stop != nil {
		n.stop()
	}
	for _, a := range n.asides {
		a.close()
	}
	n.background.Wait()
	if err := n.tracer.Close(context.WithoutCancel(ctx)); err != nil {
		n.log.Warn("the last traces were not exported", zap.Error(err))
	}
	n.release()
}

// closeHTTP lets requests end, but for those that wait for a run: the run goes on
// elsewhere, or at the next start.
func (n *Node) closeHTTP(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.Config.StopWait/2)
	defer cancel()
	if err := n.http.Shutdown(ctx); err != nil {
		n.http.Close()
	}
}

// release closes connections and children, in the order of their making reversed.
func (n *Node) release() {
	if n.sender != nil {
		n.sender.Close()
	}
	if n.evaluator != nil {
		n.evaluator.Close()
	}
	if n.temporal != nil {
		n.temporal.Close()
	}
	if n.store != nil {
		n.store.Close()
	}
	if n.blobs != nil {
		if err := n.blobs.Close(); err != nil {
			n.log.Debug("close blobs", zap.Error(err))
		}
	}
	if n.listener != nil {
		n.listener.Close()
	}
}
