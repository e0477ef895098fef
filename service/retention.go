package service

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// How retention works: now and then, in small batches, never more than half of the time.
const (
	retainEvery = time.Minute
	retainLimit = 30 * time.Second // for one batch
	tidyEvery   = 24 * time.Hour
)

// retain deletes runs that are older than they are kept, and their blobs, until ctx ends.
func (s *Service) retain(ctx context.Context) {
	var tidied time.Time
	every(ctx, retainEvery, func() {
		s.batches(ctx, "keys of hooks", s.Store.DeleteHookKeys)
		if s.Retention > 0 {
			s.Retain(ctx)
		}
		if s.Tidy != nil && time.Since(tidied) > tidyEvery {
			tidied = time.Now()
			if err := s.Tidy(ctx); err != nil && ctx.Err() == nil {
				s.Log.Warn("what dead writers left in the blob store was not removed; the next time is tomorrow", zap.Error(err))
			}
		}
	})
}

// Retain deletes the runs that are older than they are kept, then their blobs, and bulk
// operations.
func (s *Service) Retain(ctx context.Context) {
	s.batches(ctx, "runs", func(ctx context.Context) (int, error) { return s.Store.DeleteExpired(ctx, s.Retention) })
	s.removeBlobs(ctx)
	s.batches(ctx, "bulk operations", func(ctx context.Context) (int, error) { return s.Store.DeleteBulks(ctx, s.Retention) })
}

// removeBlobs removes the blobs of deleted runs. Those that cannot be removed do not keep
// the others, and are tried again the next time.
func (s *Service) removeBlobs(ctx context.Context) {
	after := ""
	s.batches(ctx, "blobs", func(ctx context.Context) (int, error) {
		for {
			last, n, err := s.Store.RemoveDeletedBlobs(ctx, after)
			if last == "" {
				return 0, err
			}
			after = last
			if err != nil {
				s.Log.Warn("some blobs of deleted runs are not removed yet; retention will try again", zap.Error(err))
			}
			if n > 0 {
				return n, nil
			}
		}
	})
}

// batches deletes one batch after the other, with pauses as long as they took, until
// nothing is left.
func (s *Service) batches(ctx context.Context, what string, batch func(context.Context) (int, error)) {
	deleted := 0
	for ctx.Err() == nil {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, retainLimit)
		n, err := batch(limited)
		cancel()
		deleted += n
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("retention will try again", zap.String("what", what), zap.Error(err))
		}
		if err != nil || n == 0 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Since(began)):
		}
	}
	if deleted > 0 {
		s.Log.Info("retention deleted", zap.String("what", what), zap.Int("number", deleted))
	}
}
