package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/oauth"
)

const (
	renewalPoll     = 100 * time.Millisecond // between two looks at what another worker renews
	renewalPatience = 45 * time.Second       // for another worker, beyond which a renewal has failed
	renewalPause    = 10 * time.Second       // after a failed renewal, for steps that do not name the system
	renewalSave     = 60 * time.Second       // for which a new token is not given up while the store is away
)

// renewals are the access tokens that this process renews: each once, whoever asks. Other
// processes are kept away by a claim in the store.
type renewals struct {
	a      *Activities
	mu     sync.Mutex
	by     map[stepwell.CredentialPlace]*renewal
	failed map[stepwell.CredentialPlace]time.Time
}

type renewal struct {
	done chan struct{}
	held stepwell.HeldCredentials
	err  error
}

func newRenewals(a *Activities) *renewals {
	return &renewals{a: a, by: map[stepwell.CredentialPlace]*renewal{}, failed: map[stepwell.CredentialPlace]time.Time{}}
}

// errRenewalFailed stands for a renewal that failed a moment ago.
var errRenewalFailed = &oauth.Unavailable{Reason: "the renewal failed a moment ago"}

// get gives credentials whose access token is not due. It waits for a renewal that is
// under way, which goes on when ctx ends: a refresh token that was used must not be lost.
func (rs *renewals) get(ctx context.Context, b *stepwell.BoundSystem, again bool) (stepwell.HeldCredentials, error) {
	rs.mu.Lock()
	r := rs.by[b.Place]
	if r == nil && !again && time.Since(rs.failed[b.Place]) < renewalPause {
		rs.mu.Unlock()
		return stepwell.HeldCredentials{}, errRenewalFailed
	}
	if r == nil {
		r = &renewal{done: make(chan struct{})}
		rs.by[b.Place] = r
		rs.a.wg.Go(func() { rs.run(b, r) })
	}
	rs.mu.Unlock()
	select {
	case <-r.done:
		return r.held, r.err
	case <-ctx.Done():
		return stepwell.HeldCredentials{}, ctx.Err()
	}
}

func (rs *renewals) run(b *stepwell.BoundSystem, r *renewal) {
	r.held, r.err = rs.renew(rs.a.base, b)
	rs.mu.Lock()
	delete(rs.by, b.Place)
	if len(rs.failed) > maxToolsKept {
		clear(rs.failed)
	}
	delete(rs.failed, b.Place)
	if r.err != nil {
		rs.failed[b.Place] = time.Now()
	}
	rs.mu.Unlock()
	close(r.done)
}

// renew claims the renewal, or waits for whoever has claimed it.
func (rs *renewals) renew(ctx context.Context, b *stepwell.BoundSystem) (stepwell.HeldCredentials, error) {
	for until := time.Now().Add(renewalPatience); ; {
		held, mine, busy, err := rs.a.Store.TakeRenewal(ctx, b.Place, rs.a.Worker, func(values map[string]string, at time.Time) bool {
			s, ok := oauth.Read(as(b, values, at))
			return ok && s.Due(time.Now())
		})
		switch {
		case stepwell.KindOf(err) == stepwell.KindNotFound:
			return held, &oauth.Refused{Reason: "it was deleted"}
		case err != nil:
			return held, err
		case mine:
			return rs.exchange(ctx, b, held)
		case !busy:
			return held, nil
		case time.Now().After(until):
			return held, &oauth.Unavailable{Reason: "another worker takes too long to renew it"}
		}
		select {
		case <-ctx.Done():
			return held, ctx.Err()
		case <-time.After(renewalPoll):
		}
	}
}

// as is a bound system with other values.
func as(b *stepwell.BoundSystem, values map[string]string, at time.Time) *stepwell.BoundSystem {
	c := *b
	c.Values, c.TokenAt = values, at
	return &c
}

// exchange gets a new token and stores it. It is not cut off by a process that stops: the
// endpoint may have taken the old refresh token out of use.
func (rs *renewals) exchange(ctx context.Context, b *stepwell.BoundSystem, held stepwell.HeldCredentials) (stepwell.HeldCredentials, error) {
	ctx = context.WithoutCancel(ctx)
	settings, _ := oauth.Read(as(b, held.Values, held.TokenAt))
	token, err := &oauth.Token{}, error(&oauth.Refused{Reason: "it is not connected, there is no refresh_token"})
	if settings.Renewable() {
		token, err = oauth.Renew(ctx, rs.a.Sender, &settings)
	}
	if err != nil {
		rs.giveBack(ctx, b.Place)
		return held, err
	}
	ctx, cancel := context.WithTimeout(ctx, renewalSave)
	defer cancel()
	var saved bool
	err = stubborn(ctx, func() (err error) {
		held, saved, err = rs.a.Store.SaveRenewal(ctx, b.Place, rs.a.Worker, func(values map[string]string) bool {
			if values[oauth.AccessToken] != settings.AccessToken || values[oauth.RefreshToken] != settings.RefreshToken {
				return false // somebody gave others meanwhile: theirs count
			}
			token.Into(values)
			return true
		})
		return err
	})
	if err != nil {
		return held, err
	}
	if !saved {
		rs.giveBack(ctx, b.Place)
		return held, &oauth.Unavailable{Reason: "its credentials were changed meanwhile"}
	}
	return held, nil
}

func (rs *renewals) giveBack(ctx context.Context, p stepwell.CredentialPlace) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := rs.a.Store.EndRenewal(ctx, p, rs.a.Worker); err != nil {
		rs.a.Log.Debug("a claim of a renewal was not given back; it ends by itself", zap.String("system", p.System), zap.Error(err))
	}
}

// stubborn repeats an action while the store is away, until ctx ends.
func stubborn(ctx context.Context, action func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		err := action()
		if err == nil || stepwell.KindOf(err) != stepwell.KindUnavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}
