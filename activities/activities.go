// Package activities does the work of runs: it builds requests, sends them,
// interprets the answers and stores what came of it. It owns the rules by which a page
// is asked for once: stored rows, leases, claims, one flight per key. It must not know
// Postgres, and nothing but indices and outcomes goes back to a workflow.
package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/fault"
	"stepwell/internal/metrics"
	"stepwell/internal/outbound"
	"stepwell/internal/tracing"
	"stepwell/results"
)

// Runs reads and ends runs.
type Runs interface {
	OpenRun(ctx context.Context, org, id string) (*stepwell.OpenRun, error)
	RunStatus(ctx context.Context, org, id string) (stepwell.RunStatus, error)
	FinalAmong(ctx context.Context, runs []stepwell.RunRef) ([]stepwell.RunRef, error)
	HookBody(ctx context.Context, org, run string) ([]byte, error)
	ToolByKey(ctx context.Context, org string, key int64) (*stepwell.Tool, error)
	FinishRun(ctx context.Context, f stepwell.Finish) (stepwell.Ended, error)
	Tool(ctx context.Context, org, id string) (*stepwell.Tool, error)
	ChainedRun(ctx context.Context, org, parent string) (*stepwell.Run, error)
}

// Pages keeps what steps stored.
type Pages interface {
	SavePage(ctx context.Context, k stepwell.PageKey, p *stepwell.Page, claimed bool) (saved bool, err error)
	PageHead(ctx context.Context, k stepwell.PageKey) (*stepwell.Page, error)
	PageHeads(ctx context.Context, org, run string, step, item, after int, visit func(*stepwell.Page) error) error
	Summaries(ctx context.Context, org, run string) ([]stepwell.StepSummary, error)
	SaveSelection(ctx context.Context, org, run string, step int, sel *stepwell.Selection) (saved bool, err error)
	SetWait(ctx context.Context, k stepwell.PageKey, w stepwell.Waiting) error
	WaitLeft(ctx context.Context, k stepwell.PageKey) (time.Duration, error)
}

// States reads what runs see of their tool's state.
type States interface {
	StartState(ctx context.Context, org, run string) (*stepwell.State, error)
	StateChanges(ctx context.Context, org, run string, steps []int, from, before [2]int, visit func(step, item int, c *stepwell.StateChange)) error
}

// Claims keeps who has which request in flight.
type Claims interface {
	RenewWorker(ctx context.Context, worker string) error
	EndWorker(ctx context.Context, worker string) error
	TakeClaim(ctx context.Context, k stepwell.PageKey, worker string, effect, takeOver bool) (mine bool, other *stepwell.Claim, running bool, err error)
	ReadClaim(ctx context.Context, k stepwell.PageKey) (c *stepwell.Claim, running bool, err error)
	ReleaseClaim(ctx context.Context, k stepwell.PageKey, worker string) error
}

// Deliveries keeps callbacks and what signs them.
type Deliveries interface {
	Delivery(ctx context.Context, org, id string) (*stepwell.Delivery, error)
	RecordAttempt(ctx context.Context, org, delivery string, a stepwell.DeliveryAttempt, ends bool, next time.Time) error
	WebhookSecrets(ctx context.Context, org string) ([]stepwell.WebhookSecret, error)
}

// Store is all that activities need of the store.
type Store interface {
	Runs
	Deliveries
	Pages
	Claims
	Systems
	States
	results.Store
}

// Sender sends requests to the outside.
type Sender interface {
	Do(ctx context.Context, r outbound.Request) (*outbound.Response, error)
}

// Config is what activities need. All fields but Metrics and Tracer are required.
type Config struct {
	Worker    string // unique id of this process
	Store     Store
	Evaluator engine.Evaluator
	Sender    Sender
	Masker    func(secrets []string) func(string) string // makes a function that hides secrets in a text
	// Ended is told of every run that this process finished, before its workflow task
	// completes. The run has Data and StepResults when they were at hand.
	Ended func(r *stepwell.Run)
	// Deliver is told of the callbacks that were recorded with the end of a run: it starts
	// their workflows and does not wait for that.
	Deliver func(org string, deliveries []string)
	// CallbackBody makes the body of a run's callback, of bounded size.
	CallbackBody func(ctx context.Context, org, run string) ([]byte, error)
	// BlobWait is how long work waits for a blob store that is away, before its step fails;
	// 0 means DefaultBlobWait. It waits for Postgres as long as it takes.
	BlobWait time.Duration
	Log      *zap.Logger
	Metrics  *metrics.Metrics // nil counts nothing
	Tracer   *tracing.Tracer  // nil makes no traces
}

// Activities are the activities of one worker process.
type Activities struct {
	Config
	results  *results.Reader
	sessions *sessions
	flights  *flights
	renewals *renewals
	large    chan struct{}   // held while the inputs of a chained run are whole in memory
	base     context.Context // ends with Close
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// New makes the activities and starts what they need in the background; Close ends it.
func New(c Config) *Activities {
	if c.BlobWait == 0 {
		c.BlobWait = DefaultBlobWait
	}
	base, stop := context.WithCancel(context.Background())
	a := &Activities{Config: c, results: results.NewReader(c.Store), large: make(chan struct{}, 1), base: base, stop: stop}
	a.sessions = newSessions(a)
	a.renewals = newRenewals(a)
	a.flights = newFlights(base, c.Log)
	a.wg.Go(a.renewLease)
	a.wg.Go(func() { a.sessions.tidy(base) })
	a.wg.Go(func() { a.sessions.watch(base) })
	return a
}

// Close lets requests in flight end until ctx ends, cuts off the rest, and waits.
func (a *Activities) Close(ctx context.Context) {
	a.flights.wait(ctx)
	a.stop()
	a.flights.wait(context.Background())
	a.wg.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := a.Store.EndWorker(ctx, a.Worker); err != nil {
		a.Log.Debug("the worker's lease was not ended; it runs out by itself", zap.Error(err))
	}
}

// renewLease keeps the lease of this worker process in the store.
func (a *Activities) renewLease() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	renewed := time.Now()
	for {
		ctx, cancel := context.WithTimeout(a.base, 2*time.Second)
		err := a.Store.RenewWorker(ctx, a.Worker)
		cancel()
		switch {
		case err == nil:
			if time.Since(renewed) > workerLease {
				a.Metrics.LeaseLost(metrics.WorkerLease)
			}
			renewed = time.Now()
		case a.base.Err() == nil:
			a.Log.Warn("the worker's lease was not renewed", zap.Error(err))
		}
		select {
		case <-a.base.Done():
			return
		case <-tick.C:
		}
	}
}

// workerLease is how long others take this process for alive after a renewal: the
// store's constant, for counting only.
const workerLease = 4 * time.Second

// localPatience is how long a local activity waits for its flight: one that never
// reaches the workflow task's heartbeat never runs twice (design, "Which kind of activity").
const localPatience = 2 * time.Second

// heartbeatEvery is how often a regular activity heartbeats and looks at its lease.
const heartbeatEvery = time.Second

// staleAfter is the silence after which a process counts as stalled: less than the
// 5 s after which Temporal gives its work to another.
const staleAfter = 3500 * time.Millisecond

// Page asks for one page: builds the request, sends it, stores the answer. It is
// harmless to repeat: what is stored is read back.
func (a *Activities) Page(ctx context.Context, req PageRequest) (PageResult, error) {
	key := stepwell.PageKey{Org: req.Org, Run: req.Run, Step: req.Step, Item: req.Item, Page: req.Page}
	return await(ctx, a, key, req.Lease, func(ctx context.Context, l *lease) (PageResult, error) {
		u := &unit{a: a, key: key, req: req, lease: l}
		return u.run(ctx)
	}, func(r PageResult) bool { return r.Outcome == Pending }, PageResult{Outcome: Pending, TookMS: localPatience.Milliseconds()})
}

// Select runs a step's dataSelector and stores its choice.
func (a *Activities) Select(ctx context.Context, req SelectRequest) (SelectResult, error) {
	key := stepwell.PageKey{Org: req.Org, Run: req.Run, Step: req.Step, Item: -1}
	return await(ctx, a, key, req.Lease, func(ctx context.Context, l *lease) (SelectResult, error) {
		return a.selectItems(ctx, req)
	}, func(r SelectResult) bool { return r.Outcome == Pending }, SelectResult{Outcome: Pending})
}

// Finish ends a run.
func (a *Activities) Finish(ctx context.Context, req FinishRequest) (FinishResult, error) {
	local := activity.GetInfo(ctx).IsLocalActivity
	key := stepwell.PageKey{Org: req.Org, Run: req.Run, Step: -1, Item: len(req.Status)}
	return await(ctx, a, key, req.Lease, func(ctx context.Context, l *lease) (FinishResult, error) {
		return a.finish(ctx, req, local)
	}, func(r FinishResult) bool { return r.Outcome == Pending }, FinishResult{Outcome: Pending})
}

// await joins the flight of a key, or begins it. A local activity gives pending after
// localPatience; a regular one heartbeats until the flight ends. The flight goes on
// when the activity ends first.
func await[R any](ctx context.Context, a *Activities, key stepwell.PageKey, until time.Time, work func(context.Context, *lease) (R, error), isPending func(R) bool, pending R) (R, error) {
	local := activity.GetInfo(ctx).IsLocalActivity
	l := newLease(until, a.Metrics)
	begin := func(base context.Context) (any, error) { return work(a.Tracer.Carry(base, ctx), l) }
	if local {
		began := time.Now()
		defer func() { a.Metrics.Local(time.Since(began)) }()
		patience := time.NewTimer(localPatience)
		defer patience.Stop()
		f := a.flights.join(key, begin)
		select {
		case <-f.done:
			return ended[R](f)
		case <-patience.C:
		case <-ctx.Done():
		}
		return pending, nil
	}
	beat := time.NewTicker(heartbeatEvery)
	defer beat.Stop()
	for {
		f := a.flights.join(key, begin)
		for waiting := true; waiting; {
			select {
			case <-f.done:
				waiting = false
			case <-beat.C:
				l.renew()
				activity.RecordHeartbeat(ctx)
			case <-ctx.Done():
				l.end()
				var none R
				return none, ctx.Err()
			}
		}
		res, err := ended[R](f)
		if err != nil || !isPending(res) {
			return res, err
		}
		if l.lost() {
			return res, errors.New("the worker stalled; the activity is repeated")
		}
	}
}

func ended[R any](f *flight) (R, error) {
	fault.Point(fault.ActivityEnded)
	res, _ := f.result.(R)
	if f.err == nil {
		return res, nil
	}
	return res, classify(f.err)
}

// classify turns an error into what the workflow should do: an outage is repeated for
// as long as it takes, a bug only some times.
func classify(err error) error {
	if stepwell.KindOf(err) == stepwell.KindUnavailable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return temporal.NewApplicationError("the service is not available; the activity is repeated", "unavailable")
	}
	return temporal.NewNonRetryableApplicationError("internal error; the service's log says more", InternalError, nil)
}
