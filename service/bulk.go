package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/api"
	"stepwell/store"
)

// How bulk operations are worked at: in one process at a time, one batch of each
// operation after the other, so that a large one does not keep a small one waiting.
const (
	bulkEvery    = 500 * time.Millisecond
	bulkFor      = 20 * time.Second // after which another process may take over
	bulkOpen     = 20               // operations that are worked at in turn
	bulkBatch    = 50               // runs whose outcomes are recorded together
	bulkParallel = 8                // runs at a time
)

// Bulks is the part of the service that begins and reads bulk operations.
func (s *Service) Bulks() Bulks { return Bulks{s} }

// Bulks begins and reads bulk operations.
type Bulks struct{ s *Service }

// Count counts the runs that an operation would cover.
func (b Bulks) Count(ctx context.Context, org string, kind stepwell.BulkKind, q api.RunQuery) (int, error) {
	return b.s.Store.CountBulk(ctx, org, kind, storeQuery(q))
}

// Begin records an operation.
func (b Bulks) Begin(ctx context.Context, op *stepwell.BulkOperation, q api.RunQuery) error {
	return b.s.Store.InsertBulk(ctx, op, storeQuery(q))
}

// Get reads an operation.
func (b Bulks) Get(ctx context.Context, org, id string) (*stepwell.BulkOperation, error) {
	return b.s.Store.Bulk(ctx, org, id)
}

// workBulks gives the runs of bulk operations their turns, in one process at a time,
// until ctx ends.
func (s *Service) workBulks(ctx context.Context) {
	if s.Again == nil {
		return
	}
	every(ctx, bulkEvery, func() {
		open, err := s.Store.OpenBulks(ctx, 1) // most of the time there is none: no lock then
		if err == nil && len(open) > 0 {
			_, err = s.Store.WorkBulks(ctx, s.bulkRounds)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("bulk operations go on later", zap.Error(err))
		}
	})
}

// bulkRounds does one batch of each open operation, again and again for bulkFor.
func (s *Service) bulkRounds(ctx context.Context) error {
	for deadline := time.Now().Add(bulkFor); time.Now().Before(deadline) && ctx.Err() == nil; {
		ops, err := s.Store.OpenBulks(ctx, bulkOpen)
		if err != nil {
			return err
		}
		recorded := 0
		for _, op := range ops {
			n, err := s.bulkTurn(ctx, op)
			if err != nil {
				return err
			}
			recorded += n
		}
		if recorded == 0 { // nothing is left, or each waits for its organization's other runs to end
			return nil
		}
	}
	return nil
}

// bulkTurn does one batch of an operation and records what became of it. A run whose
// outcome was not recorded, because this process died, gets its turn again: a cancel is
// the same again, and a rerun has the same id again.
func (s *Service) bulkTurn(ctx context.Context, op *stepwell.BulkOperation) (recorded int, err error) {
	runs, err := s.Store.NextOfBulk(ctx, op.OrgID, op.ID, bulkBatch)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var results []stepwell.BulkResult
	var failures []error
	var wg sync.WaitGroup
	slots := make(chan struct{}, bulkParallel)
	for _, run := range runs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			outcome, reason, err := s.bulkOne(ctx, op, run)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failures = append(failures, err)
			case outcome != "":
				results = append(results, stepwell.BulkResult{Run: run, Outcome: outcome, Error: reason})
			}
		})
	}
	wg.Wait()
	if len(results) > 0 || len(runs) == 0 {
		failures = append(failures, s.Store.RecordBulk(ctx, op.OrgID, op.ID, results))
	}
	return len(results), errors.Join(failures...)
}

// bulkOne gives one run its turn. No outcome means later; an error that the service is
// not available.
func (s *Service) bulkOne(ctx context.Context, op *stepwell.BulkOperation, run string) (outcome stepwell.BulkOutcome, reason string, err error) {
	if op.Kind == stepwell.BulkCancel {
		_, err = s.Cancel(ctx, op.OrgID, run)
	} else {
		err = s.rerunOnce(ctx, op, run)
	}
	var public *stepwell.Error
	switch kind := stepwell.KindOf(err); {
	case err == nil:
		return stepwell.BulkDone, "", nil
	case kind == stepwell.KindUnavailable || ctx.Err() != nil:
		return "", "", err
	case kind == stepwell.KindRateLimited:
		return "", "", nil
	case errors.As(err, &public) && kind != stepwell.KindInternal:
		if op.Kind == stepwell.BulkCancel && (kind == stepwell.KindInvalid || kind == stepwell.KindNotFound) {
			return stepwell.BulkSkipped, public.Message, nil
		}
		return stepwell.BulkFailed, public.Message, nil
	}
	s.Log.Error("a run of a bulk operation failed", zap.String("operation", op.ID), zap.String("run", run), zap.Error(err))
	return stepwell.BulkFailed, "Internal error; the service's log says more", nil
}

// rerunOnce starts the one rerun of a run that an operation makes.
func (s *Service) rerunOnce(ctx context.Context, op *stepwell.BulkOperation, run string) error {
	of, err := s.Get(ctx, op.OrgID, run)
	if err != nil {
		return err
	}
	id := rerunID(op.ID, run)
	err = s.Again(ctx, &op.Caller, of, id)
	if stepwell.KindOf(err) != stepwell.KindConflict {
		return err
	}
	there, readErr := s.Store.Run(ctx, op.OrgID, id)
	if readErr == nil && there.RerunOf == run {
		return nil // it was started before this process's predecessor died
	}
	return err
}

// rerunID is the id of the rerun of a run by an operation: always the same one.
func rerunID(operation, run string) string {
	space, _ := uuid.Parse(operation) // checked when it was accepted
	return uuid.NewSHA1(space, []byte(run)).String()
}

// storeQuery is a query as the store takes it.
func storeQuery(q api.RunQuery) store.RunQuery {
	return store.RunQuery{
		ToolID: q.ToolID, Status: q.Status, RequestSources: q.RequestSources, UserID: q.UserID, SystemID: q.SystemID,
		RerunOf: q.RerunOf, ParentRunID: q.ParentRunID, StartedAfter: q.StartedAfter, StartedBefore: q.StartedBefore,
		OnlyTools: q.OnlyTools, EndUserID: q.EndUserID, Page: q.Page, Limit: q.Limit}
}
