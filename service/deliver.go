package service

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/fault"
	"stepwell/store"
)

const (
	unstartedDelivery = 10 * time.Second // after which a round whose workflow is not known to have started is started again
	lateDelivery      = 2 * time.Minute  // after the time of an attempt, when its workflow may be gone
	startersAtOnce    = 16               // starts of workflows of callbacks in a process
)

// rounds are rounds of callbacks that were committed: those to be started, and those whose
// workflow has started and whose row does not say so yet.
type rounds struct {
	mu      sync.Mutex
	due     []store.Round
	started []store.Round
	wake    chan struct{}
}

// Deliver gets callbacks going that were just recorded. It does not wait, and does not
// fail: what does not start now is started by the sweeper.
func (s *Service) Deliver(org string, deliveries []string) {
	all := make([]store.Round, len(deliveries))
	for i, id := range deliveries {
		all[i] = store.Round{Org: org, Delivery: id, Round: 1}
	}
	s.startSoon(all...)
}

func (s *Service) startSoon(all ...store.Round) {
	s.rounds.mu.Lock()
	s.rounds.due = append(s.rounds.due, all...)
	s.rounds.mu.Unlock()
	select {
	case s.rounds.wake <- struct{}{}:
	default:
	}
}

// startRounds starts the workflows of callbacks until ctx ends.
func (s *Service) startRounds(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.rounds.wake:
		}
		s.rounds.mu.Lock()
		due := s.rounds.due
		s.rounds.due = nil
		s.rounds.mu.Unlock()
		var wg sync.WaitGroup
		slots := make(chan struct{}, startersAtOnce)
		for _, r := range due {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				s.startRound(ctx, r)
			})
		}
		wg.Wait()
	}
}

func (s *Service) startRound(ctx context.Context, r store.Round) {
	if time.Now().UnixNano() < s.started.downUntil.Load() {
		return
	}
	fault.Point(fault.DeliverUnstarted)
	ctx, cancel := context.WithTimeout(ctx, dispatchTimeout)
	defer cancel()
	if err := s.Workflows.StartDelivery(ctx, r.Org, r.Delivery, r.Round); err != nil {
		s.started.downUntil.Store(time.Now().Add(downFor).UnixNano())
		s.Log.Warn("the callback is recorded and waits for Temporal", zap.String("delivery", r.Delivery), zap.Error(err))
		return
	}
	fault.Point(fault.DeliverStarted)
	s.rounds.note(r)
}

func (x *rounds) note(r store.Round) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.started = append(x.started, r)
}

// takeStarted gives the rounds that are to be marked.
func (x *rounds) takeStarted() []store.Round {
	x.mu.Lock()
	defer x.mu.Unlock()
	started := x.started
	x.started = nil
	return started
}

// sweepDeliveries starts rounds of callbacks that nobody started, or whose workflow is
// gone.
func (s *Service) sweepDeliveries(ctx context.Context) error {
	due, err := s.Store.DueRounds(ctx, unstartedDelivery, lateDelivery, startsPerSweep)
	if err != nil || len(due) == 0 {
		return err
	}
	for _, r := range due {
		one, cancel := context.WithTimeout(ctx, dispatchTimeout)
		err := s.Workflows.StartDelivery(one, r.Org, r.Delivery, r.Round)
		cancel()
		if err != nil {
			return err
		}
		s.rounds.note(r)
	}
	return nil
}

// OfRun gives the callbacks of a run: one at most.
func (s *Service) OfRun(ctx context.Context, org, run string) ([]*stepwell.Delivery, error) {
	d, err := s.Store.RunDelivery(ctx, org, run)
	if stepwell.KindOf(err) == stepwell.KindNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []*stepwell.Delivery{d}, nil
}

// Delivery gives a callback with its attempts.
func (s *Service) Delivery(ctx context.Context, org, id string) (*stepwell.Delivery, error) {
	return s.Store.Delivery(ctx, org, id)
}

// Redeliver asks durably for one more attempt of a callback, and gets it going.
func (s *Service) Redeliver(ctx context.Context, org, id string) (*stepwell.Delivery, error) {
	d, err := s.Store.Redeliver(ctx, org, id)
	if err == nil {
		s.startSoon(store.Round{Org: org, Delivery: d.ID, Round: d.Rounds})
	}
	return d, err
}

// Secrets gives the valid signing secrets of an organization, newest first.
func (s *Service) Secrets(ctx context.Context, org string) ([]stepwell.WebhookSecret, error) {
	return s.Store.WebhookSecrets(ctx, org)
}

// RotateSecret makes a new signing secret.
func (s *Service) RotateSecret(ctx context.Context, org string) (*stepwell.WebhookSecret, error) {
	return s.Store.RotateWebhookSecret(ctx, org)
}

// CallbackBody makes the body of an ended run's callback.
func (s *Service) CallbackBody(ctx context.Context, org, run string) ([]byte, error) {
	r, err := s.Get(ctx, org, run)
	if err != nil {
		return nil, err
	}
	return s.Callbacks.Body(r)
}
