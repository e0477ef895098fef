package activities

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/engine"
)

// DefaultBlobWait is how long work waits for a blob store that is away, unless configured.
// Waiting holds an answer in memory and a worker's slot, which others need: so it is
// minutes, not hours.
const DefaultBlobWait = 2 * time.Minute

// persist repeats an action of the store while the store is away, until it succeeds, the
// run ends in this process, or the process does. For the blob store, which not every run
// needs, it waits BlobWait at most: then, and when a stored body is gone for good, the
// error is the step's own.
func (a *Activities) persist(ctx context.Context, s *session, action func() error) error {
	began, told := time.Now(), false
	for wait := 50 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		err := action()
		if stepwell.KindOf(err) == stepwell.KindLost {
			a.Log.Error("a run needs a stored body that cannot be read", zap.String("run", s.key.run), zap.Error(err))
			return &engine.StepError{Message: stepwell.MessageOf(err)}
		}
		if err == nil || stepwell.KindOf(err) != stepwell.KindUnavailable {
			return err
		}
		if stepwell.IsBlobStoreAway(err) && s.waitedEnough(began, a.BlobWait) {
			a.Log.Error("a run has waited for the blob store in vain", zap.String("run", s.key.run), zap.Error(err))
			return &engine.StepError{Message: fmt.Sprintf("%s (waited for %s)", stepwell.MessageOf(err), a.BlobWait)}
		}
		if !told && wait == time.Second {
			told = true
			a.Log.Warn("a run waits for the store", zap.String("run", s.key.run), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return err
		case <-s.ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// waitedEnough reports whether a wait for the blob store that began at a time is to be
// given up. What comes after it in the same run, the next item of a loop or the regular
// activity that follows a local one, does not wait the same time again.
func (s *session) waitedEnough(began time.Time, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(began) < limit && time.Since(s.noBlobsAt) >= limit {
		return false
	}
	s.noBlobsAt = time.Now()
	return true
}
