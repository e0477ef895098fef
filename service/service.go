// Package service does what the API asks for: it keeps tools and keys, starts, waits
// for, cancels and reads runs, and sweeps up after crashes. It is where a runs row and
// its workflow meet. It must not know HTTP, SQL or Temporal's own API.
package service

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"stepwell"
	"stepwell/api"
	"stepwell/engine"
	"stepwell/internal/fault"
	"stepwell/internal/metrics"
	"stepwell/results"
	"stepwell/store"
	"stepwell/workflows"
)

// Local is the worker in this process, if there is one.
type Local interface {
	// Cancelled cuts off what is in flight for a run; when it returns nothing is.
	Cancelled(org, run string)
}

// Config is what the service is made of. ListenURL is a direct address of the database;
// Local may be nil.
type Config struct {
	Store     *store.Store
	ListenURL string
	Workflows *workflows.Client
	Evaluator engine.Evaluator
	Local     Local
	Callbacks *api.Callbacks
	Worker    string // id of the worker in this process, empty without one
	MaxOpen   int    // unfinished runs that an organization may have; 0 means 10,000
	// Retention is how long ended runs are kept; 0 means for ever. Tidy removes what dead
	// writers left in the blob store; it is called once a day and may be nil.
	Retention time.Duration
	Tidy      func(ctx context.Context) error
	// PortalLinkLife is how long a portal link is good; 0 means 24 hours.
	PortalLinkLife time.Duration
	Log            *zap.Logger
	Metrics        *metrics.Metrics // nil counts nothing
}

// Service is one process's part of the service.
type Service struct {
	Config
	// Again starts a run with an id that takes up an ended one where it stopped, for a
	// caller, with the checks of a rerun. Set before Run; nil in a process without an API,
	// which then leaves bulk operations to others.
	Again    func(ctx context.Context, caller *stepwell.Caller, of *stepwell.Run, id string) error
	results  *results.Reader
	hub      *hub
	notifier *store.Notifier
	tools    *cache[toolKey, *stepwell.Tool]
	callers  *cache[[32]byte, knownCaller]
	schemas  *cache[int64, *engine.Schema]
	versions *cache[int64, *version]
	ended    *cache[store.RunRef, stepwell.Run]
	reached  *cache[store.RunRef, *stepwell.Progress]
	memory   *semaphore.Weighted // of results that are being read
	open     *openCounts
	used     usedKeys
	started  startedRuns
	rounds   rounds
	acks     acks
	watches  watches
	wg       sync.WaitGroup // of short work begun by notices
}

// cacheFor is for how long cached rows are good when the notice of a change is lost.
const cacheFor = 10 * time.Second

// New makes a service; Run does its background work.
func New(c Config) *Service {
	if c.MaxOpen == 0 {
		c.MaxOpen = 10_000
	}
	if c.PortalLinkLife == 0 {
		c.PortalLinkLife = 24 * time.Hour
	}
	s := &Service{Config: c, results: results.NewReader(c.Store), hub: newHub(c.Store, c.Log),
		tools: newCache[toolKey, *stepwell.Tool](10_000, cacheFor), callers: newCache[[32]byte, knownCaller](100_000, cacheFor),
		schemas: newCache[int64, *engine.Schema](1000, time.Hour), versions: newCache[int64, *version](1000, time.Hour),
		ended: newCache[store.RunRef, stepwell.Run](endedKept, endedFor), reached: newCache[store.RunRef, *stepwell.Progress](10_000, progressFor),
		memory: semaphore.NewWeighted(resultMemory), open: newOpenCounts()}
	s.rounds.wake = make(chan struct{}, 1)
	s.used.at = map[[2]string]time.Time{}
	s.watches.byRun = map[store.RunRef]*watch{}
	s.acks.byRun = map[store.RunRef]*ackWait{}
	s.notifier = store.NewNotifier(c.Store, c.ListenURL, s.handle, s.missed, c.Log)
	if c.Metrics != nil {
		s.notifier.OnDelay, s.notifier.OnLost = c.Metrics.NoticeDelay, c.Metrics.ListenLost
	}
	return s
}

// Run does the background work until ctx ends: notices, polling, marks, the sweeper.
func (s *Service) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.notifier.Run(ctx) })
	wg.Go(func() { s.hub.poll(ctx) })
	wg.Go(func() { every(ctx, watchTick, func() { s.follow(ctx) }) })
	wg.Go(func() { every(ctx, time.Second, func() { s.flush(ctx) }) })
	wg.Go(func() { s.startRounds(ctx) })
	wg.Go(func() { s.sweep(ctx) })
	wg.Go(func() { s.retain(ctx) })
	wg.Go(func() { s.workBulks(ctx) })
	wg.Wait()
	s.wg.Wait()
	// What is still to be noted when the process stops.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	s.flush(last)
}

// flush writes what is noted in passing: started runs, used keys.
func (s *Service) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if refs := s.started.take(); len(refs) > 0 {
		if err := s.Store.MarkDispatched(ctx, refs); err != nil {
			s.Log.Debug("started runs were not marked; the sweeper starts them again, which changes nothing", zap.Error(err))
		}
		fault.Point(fault.RunMarked)
	}
	if rounds := s.rounds.takeStarted(); len(rounds) > 0 {
		if err := s.Store.MarkRounds(ctx, rounds); err != nil {
			s.Log.Debug("started callbacks were not marked; the sweeper starts them again, which changes nothing", zap.Error(err))
		}
	}
	if used := s.used.take(); len(used) > 0 {
		if err := s.Store.TouchKeys(ctx, used); err != nil {
			s.Log.Debug("the last use of keys was not noted", zap.Error(err))
		}
	}
}

// handle takes in a notice of any process. It must not block.
func (s *Service) handle(n store.Notice) {
	switch {
	case n.Topic == store.TopicFinished && len(n.Words) == 2:
		s.hub.ended(store.RunRef{Org: n.Words[0], Run: n.Words[1]}, nil)
	case n.Topic == store.TopicCancel && len(n.Words) == 2:
		s.cancelledElsewhere(store.RunRef{Org: n.Words[0], Run: n.Words[1]})
	case n.Topic == store.TopicStopped && len(n.Words) == 3:
		s.acks.stopped(store.RunRef{Org: n.Words[0], Run: n.Words[1]}, n.Words[2])
	case n.Topic == store.TopicTool && len(n.Words) == 2:
		s.tools.drop(toolKey{n.Words[0], n.Words[1]})
	case n.Topic == store.TopicKeys:
		s.callers.clear()
	}
}

// missed is called when notices may have been lost.
func (s *Service) missed() {
	s.tools.clear()
	s.callers.clear()
}

// Ended takes in a run that the worker of this process finished.
func (s *Service) Ended(r *stepwell.Run) {
	s.hub.ended(store.RunRef{Org: r.OrgID, Run: r.ID}, r)
	s.notifier.Send(store.Notice{Topic: store.TopicFinished, Words: []string{r.OrgID, r.ID}})
}
