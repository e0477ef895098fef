package activities

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/oauth"
)

// Systems keeps the systems that runs use, and who renews their access tokens.
type Systems interface {
	RunSystems(ctx context.Context, org string, ids []string, mode, endUser string) (map[string]*stepwell.BoundSystem, error)
	TakeRenewal(ctx context.Context, p stepwell.CredentialPlace, worker string, due func(values map[string]string, tokenAt time.Time) bool) (c stepwell.HeldCredentials, mine, busy bool, err error)
	SaveRenewal(ctx context.Context, p stepwell.CredentialPlace, worker string, change func(values map[string]string) bool) (c stepwell.HeldCredentials, saved bool, err error)
	EndRenewal(ctx context.Context, p stepwell.CredentialPlace, worker string) error
	SpoilToken(ctx context.Context, p stepwell.CredentialPlace, change func(values map[string]string) bool) error
}

// systemsFresh is for how long a session relies on the systems that it has read: a changed
// or deleted one is noticed by a long run after that time.
const systemsFresh = 10 * time.Second

// stepSystem is the id of the system that a step names, empty for none and for what
// follows the steps.
func (s *session) stepSystem(step int) string {
	if step >= len(s.tool.def.Steps) {
		return ""
	}
	return s.tool.def.Steps[step].Config.SystemID
}

// systems gives the systems of the run's tool as a step finds them. An access token that
// ends soon is renewed first. The step's own system must be there and, with strict, have a
// good token: the error is a *engine.StepError, or a *lateRenewal when its token endpoint
// may answer better later. Of the others nothing is demanded.
func (s *session) systems(ctx context.Context, step int, strict bool) ([]engine.SystemCredentials, error) {
	if len(s.tool.systems) == 0 {
		return nil, nil
	}
	bound, err := s.boundSystems(ctx)
	if err != nil {
		return nil, err
	}
	own := s.stepSystem(step)
	if own != "" {
		switch b := bound[own]; {
		case b == nil:
			return nil, s.stepErrorf(step, "the system '%s' does not exist: make it, or name another one in the step's 'systemId'", own)
		case b.Forbidden:
			return nil, s.stepErrorf(step, "the end user may not use the system '%s'", own)
		case b.Values == nil:
			return nil, s.stepErrorf(step, "the end user has not connected the system '%s'", own)
		}
	}
	var list []engine.SystemCredentials
	for _, id := range s.tool.systems {
		b := bound[id]
		if b == nil || b.Forbidden {
			continue
		}
		demanded := strict && id == own
		fresh, err := s.fresh(ctx, b, demanded)
		if err != nil && demanded {
			return nil, s.renewalError(step, id, err)
		}
		list = append(list, engine.SystemCredentials{ID: id, URL: fresh.URL, Values: fresh.Values})
	}
	return list, nil
}

// renewalError says that the access token of a system was not renewed.
func (s *session) renewalError(step int, system string, err error) error {
	var refused *oauth.Refused
	if errors.As(err, &refused) {
		return s.stepErrorf(step, "the access token of the system '%s' was not renewed: %s", system, refused.Reason)
	}
	var away *oauth.Unavailable
	if errors.As(err, &away) {
		bad := s.stepErrorf(step, "the access token of the system '%s' was not renewed: %s", system, away.Reason)
		return &lateRenewal{step: bad, after: away.RetryAfter}
	}
	return err
}

// lateRenewal says that a token endpoint gave no token yet; when it is given up, step is
// why.
type lateRenewal struct {
	step  *engine.StepError
	after time.Duration // for which the endpoint asks to wait; 0 when it did not
}

func (e *lateRenewal) Error() string { return e.step.Message }

// Unwrap makes it the step's failure to whoever does not wait.
func (e *lateRenewal) Unwrap() error { return e.step }

func (s *session) stepErrorf(step int, format string, args ...any) *engine.StepError {
	return s.tool.compiled.Steps[step].Errorf(format, args...)
}

// boundSystems gives the systems of the tool, as they were read at most systemsFresh ago.
// They must not be changed.
func (s *session) boundSystems(ctx context.Context) (map[string]*stepwell.BoundSystem, error) {
	s.mu.Lock()
	bound, at, run := s.bound, s.boundAt, s.run
	s.mu.Unlock()
	if bound != nil && time.Since(at) < systemsFresh {
		return bound, nil
	}
	began := time.Now()
	var err error
	err = s.all.a.persist(ctx, s, func() error {
		bound, err = s.all.a.Store.RunSystems(ctx, run.OrgID, s.tool.systems, run.Mode, run.Options.EndUserID)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound, s.boundAt = bound, began
	for _, b := range bound {
		s.hide(oauth.Secrets(b.Values))
		s.hide(oauth.Secrets(b.Client))
	}
	return bound, nil
}

// hide adds secrets to those that are masked in texts of the run, for as long as this
// process knows the run: an upstream may show an old one. The caller holds s.mu.
func (s *session) hide(secrets []string) {
	known := len(s.hidden)
	for _, secret := range secrets {
		if !slices.Contains(s.hidden, secret) {
			s.hidden = append(s.hidden, secret)
		}
	}
	if s.mask == nil || len(s.hidden) > known {
		s.mask = s.all.a.Masker(slices.Clone(s.hidden))
	}
}

// masked gives a text without the secrets of the run.
func (s *session) masked(text string) string {
	s.mu.Lock()
	mask := s.mask
	s.mu.Unlock()
	return mask(text)
}

// unbound decides what follows when a step's credentials are not at hand: a wait for a
// token endpoint, as long as for any upstream, or the step's failure. Nothing was sent.
func (u *unit) unbound(ctx context.Context, err error) (PageResult, error) {
	var late *lateRenewal
	if !errors.As(err, &late) {
		return u.failed(ctx, err)
	}
	at := engine.Attempt{Network: engine.NetworkOther, What: "a token endpoint without an answer"}
	if late.after > 0 {
		at = engine.Attempt{Status: http.StatusServiceUnavailable, RetryAfter: &late.after}
	}
	res, again, gaveUp, err := u.retry(ctx, at, nil)
	if again || err != nil {
		return res, err
	}
	return u.failed(ctx, explained(late.step, gaveUp))
}

// fresh gives a system with an access token that may be used; itself when it uses no OAuth,
// when its token is not due, and when the run brought one. A token that is due and still
// good is used when there is no better one. strict is for the system that a
// step needs now; for others a failed renewal is not tried again at once.
func (s *session) fresh(ctx context.Context, b *stepwell.BoundSystem, strict bool) (*stepwell.BoundSystem, error) {
	settings, ok := oauth.Read(b)
	now := time.Now()
	if !ok || !settings.Due(now) || s.brought(b.Place.System+"_"+oauth.AccessToken) {
		return b, nil
	}
	held, err := s.all.a.renewals.get(ctx, b, strict)
	if err != nil {
		if settings.Usable(now) && ctx.Err() == nil {
			return b, nil
		}
		return b, err
	}
	renewed := *b
	renewed.Values, renewed.TokenAt = held.Values, held.TokenAt
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bound != nil {
		s.bound = maps.Clone(s.bound)
		s.bound[b.Place.System] = &renewed
	}
	s.hide(oauth.Secrets(held.Values))
	return &renewed, nil
}

// brought reports whether the run has a run-time credential of a name.
func (s *session) brought(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secrets[name] != nil
}

// spoiledAfter is the age from which an access token that an upstream refuses counts as
// used up: a younger one is hardly the reason.
const spoiledAfter = time.Minute

// refusedToken notes that the upstream answered 401: the next request that needs the token
// gets a new one. The request itself is not repeated, as after any other 4xx.
func (u *unit) refusedToken(ctx context.Context) {
	id := u.s.stepSystem(u.key.Step)
	u.s.mu.Lock()
	b := u.s.bound[id]
	u.s.mu.Unlock()
	if b == nil || u.s.brought(id+"_"+oauth.AccessToken) {
		return
	}
	settings, ok := oauth.Read(b)
	if !ok || !settings.Renewable() || settings.AccessToken == "" || settings.Age(time.Now()) < spoiledAfter {
		return
	}
	err := u.a.Store.SpoilToken(ctx, b.Place, func(values map[string]string) bool {
		if values[oauth.AccessToken] != settings.AccessToken {
			return false // renewed meanwhile
		}
		values[oauth.ExpiresAt] = time.Now().UTC().Format(time.RFC3339)
		return true
	})
	if err == nil {
		u.s.mu.Lock()
		u.s.bound = nil
		u.s.mu.Unlock()
	}
}
