package activities

import (
	"context"
	"time"

	"stepwell"
)

// claimAfter is how long a request without a claim may be in flight before one is
// written, so that another worker waits for it and does not ask again.
const claimAfter = time.Second

// lookEvery is how often a request that took over from a worker that seemed dead looks
// whether that one has stored the page after all: it adds to the run's time then.
const lookEvery = 250 * time.Millisecond

// accompany looks after a request in flight. It writes a claim when there is none after
// claimAfter. When another worker had the page before, it cuts the request off once that
// one, which had only stalled, has stored the page. The returned function ends that,
// waits for it, and gives the page that was found stored, if one was.
func (u *unit) accompany(ctx context.Context, cut func()) (settle func() *stepwell.Page) {
	if u.claimed && !u.tookOver {
		return func() *stepwell.Page { return nil }
	}
	ctx, stop := context.WithCancel(ctx)
	var claimed bool
	var stored *stepwell.Page
	ended := make(chan struct{})
	// Most requests are answered long before: a timer costs them nothing, a goroutine would.
	timer := time.AfterFunc(claimAfter, func() {
		defer close(ended)
		if !u.claimed {
			// Not with ctx: a claim that may have been written must be known.
			claimed, _, _, _ = u.a.Store.TakeClaim(context.WithoutCancel(ctx), u.key, u.a.Worker, false, true)
		}
		for u.tookOver && stored == nil && pause(ctx, lookEvery) {
			if head, err := u.a.Store.PageHead(ctx, u.key); err == nil { // else the next look decides
				stored = head
			}
		}
		if stored != nil {
			cut()
		}
	})
	return func() *stepwell.Page {
		stop()
		if !timer.Stop() {
			<-ended
		}
		u.claimed = u.claimed || claimed
		return stored
	}
}

// pause waits; false when ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
