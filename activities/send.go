package activities

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/fault"
	"stepwell/internal/outbound"
)

// outcomeUnknown is the error of a step whose request was sent by a process that died
// before it stored an answer.
const outcomeUnknown = "outcome unknown: the request was sent, and the service stopped before its answer was stored. " +
	"It was not sent again; check the upstream, or set the step's 'idempotent' if it honours the Idempotency-Key header"

// request builds, sends and interprets one request.
func (u *unit) request(ctx context.Context) (PageResult, error) {
	if u.def.Paginated() {
		if most := u.step.MaxPages(u.s.run.Options.MaxPages); u.key.Page > most {
			return u.failed(ctx, u.step.TruncatedError(most))
		}
	}
	st := u.pageState()
	scope, err := u.s.scope(ctx, u.key.Step, 0, u.current, true)
	if err != nil {
		return u.unbound(ctx, err)
	}
	req, err := u.step.Build(u.s.ctx, u.a.Evaluator, scope, st)
	if err != nil {
		return u.failed(ctx, err)
	}
	if sendsKey(u.def) && req.Header.Get("Idempotency-Key") == "" {
		req.Header.Set("Idempotency-Key", engine.IdempotencyKey(u.key.Run, u.def.ID, u.key.Item, u.key.Page))
	}
	answer, stop, err := u.send(ctx, req)
	if stop != nil || err != nil {
		return orNone(stop), err
	}
	defer answer.Close()
	gaveUp := ""
	if answer.Status == http.StatusUnauthorized {
		u.refusedToken(ctx)
	}
	if answer.Status < 200 || answer.Status > 299 {
		var res PageResult
		var again bool
		if res, again, gaveUp, err = u.retry(ctx, engine.Attempt{Status: answer.Status, Sent: true}, answer.Header); again || err != nil {
			return res, err
		}
	}
	out, err := u.step.Interpret(u.s.ctx, u.a.Evaluator, scope, st, u.seen, &engine.Answer{
		Status: answer.Status, Header: answer.Header, Body: answer.Body, URL: answer.URL, Mask: u.s.masked})
	if err != nil {
		return u.failed(ctx, explained(err, gaveUp))
	}
	p, err := u.pageOf(out)
	if err != nil {
		return PageResult{}, err
	}
	return u.save(ctx, p)
}

// explained adds to a step's error why it was not tried again.
func explained(err error, gaveUp string) error {
	var bad *engine.StepError
	if gaveUp == "" || !errors.As(err, &bad) {
		return err
	}
	return &engine.StepError{Message: withReason(bad.Message, gaveUp)}
}

func orNone(r *PageResult) PageResult {
	if r == nil {
		return PageResult{}
	}
	return *r
}

func (u *unit) seen(cursor string) bool { return u.pull.seen[cursor] }

// sendsKey reports whether a step's requests carry an Idempotency-Key.
func sendsKey(s *stepwell.Step) bool {
	return s.Method() == http.MethodPost || s.Method() == http.MethodPatch || !s.Repeatable()
}

// send sends the request once, within its lease and while the run is running. stop is
// an outcome in place of an answer.
func (u *unit) send(ctx context.Context, req *engine.Request) (answer *outbound.Response, stop *PageResult, err error) {
	stop, err = u.clear(ctx)
	if stop != nil || err != nil {
		return nil, stop, err
	}
	done, ok := u.s.beginSend()
	if !ok {
		return nil, &PageResult{Outcome: Gone}, nil
	}
	u.pull.sent = u.key.Page
	timeout := stepwell.DefaultTimeout
	if ms := u.s.run.Options.TimeoutMS; ms > 0 {
		timeout = time.Duration(ms) * time.Millisecond
	}
	sending, cut := context.WithCancel(u.s.ctx)
	defer cut()
	settle := u.accompany(ctx, cut)
	fault.Point(fault.RequestUnsent)
	answer, err = u.exchange(ctx, sending, outbound.Request{Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body,
		Repeatable: u.def.Repeatable(), Timeout: timeout, CredentialHeaders: req.CredentialHeaders})
	fault.Point(fault.RequestDone)
	done()
	stored := settle()
	if err == nil {
		return answer, nil, nil
	}
	if stored != nil {
		u.a.Metrics.AskedTwice()
		res := resultOf(stored)
		return nil, &res, u.pull.advance(stored)
	}
	if u.s.isEnded() {
		return nil, &PageResult{Outcome: Gone}, nil
	}
	var failure *outbound.Error
	if !errors.As(err, &failure) || u.s.ctx.Err() != nil {
		return nil, nil, err
	}
	res, err := u.unanswered(ctx, failure)
	return nil, &res, err
}

// unanswered decides what follows a request that got no answer.
func (u *unit) unanswered(ctx context.Context, failure *outbound.Error) (PageResult, error) {
	message := failure.Message
	if kind, worth := networkError(failure.Reason); worth {
		res, again, gaveUp, err := u.retry(ctx, engine.Attempt{Network: kind, Sent: failure.Sent}, nil)
		if again || err != nil {
			return res, err
		}
		message = withReason(message, gaveUp)
	}
	if failure.Sent && !u.def.Repeatable() {
		message = withReason(message, "the outcome is unknown: the upstream may have carried the request out")
	}
	return u.failed(ctx, u.step.Errorf("%s", message))
}

func withReason(message, reason string) string {
	if reason == "" {
		return message
	}
	return message + " (" + reason + ")"
}

// clear makes sure that the request may go out: the claim is written for one that must
// not be repeated, the run is running, and the lease holds.
func (u *unit) clear(ctx context.Context) (*PageResult, error) {
	if u.lease.lost() {
		return &PageResult{Outcome: Pending}, nil
	}
	if !u.def.Repeatable() {
		if stop, err := u.claim(ctx); stop != nil || err != nil {
			return stop, err
		}
	}
	running, err := u.s.check(ctx)
	if err != nil {
		return nil, err
	}
	if !running {
		return &PageResult{Outcome: Gone}, nil
	}
	if u.lease.lost() {
		return &PageResult{Outcome: Pending}, u.release(ctx)
	}
	return nil, nil
}

// claim writes the claim of a request with effects before it is sent. One that stands
// already, of a process that died, means that the outcome is unknown.
func (u *unit) claim(ctx context.Context) (*PageResult, error) {
	began := time.Now()
	fault.Point(fault.ClaimUntaken)
	mine, other, running, err := u.a.Store.TakeClaim(ctx, u.key, u.a.Worker, true, u.def.Idempotent)
	if err == nil {
		err = fault.Error(fault.ClaimTaken)
	}
	fault.Point(fault.ClaimTaken)
	switch {
	case err != nil:
		return nil, err
	case !running:
		u.s.finish()
		return &PageResult{Outcome: Gone}, nil
	case mine, u.unsent(other):
		u.claimed = true
		u.s.running(began)
		return nil, nil
	case other != nil && other.Alive && other.Worker != u.a.Worker:
		u.pull.met = false
		return &PageResult{Outcome: Pending}, nil // others() waits for it
	}
	u.claimed = true // goes with the failure
	res, err := u.failed(ctx, u.step.Errorf("%s", outcomeUnknown))
	return &res, err
}

// unsent reports whether a claim is one of this process under which nothing was sent: the
// store went away when it was written, or after. Of claims that were there before this
// process opened the run it cannot be known.
func (u *unit) unsent(c *stepwell.Claim) bool {
	return c != nil && c.Worker == u.a.Worker && u.s.unclaimed && u.pull.sent != u.key.Page
}

// release forgets the claim of a request of which nothing was done.
func (u *unit) release(ctx context.Context) error {
	if !u.claimed {
		return nil
	}
	fault.Point(fault.ClaimUnfreed)
	err := u.a.persist(ctx, u.s, func() error {
		return errors.Join(u.a.Store.ReleaseClaim(ctx, u.key, u.a.Worker), fault.Error(fault.ClaimFreed))
	})
	fault.Point(fault.ClaimFreed)
	if err == nil {
		u.claimed, u.pull.sent = false, 0
	}
	return err
}

// networkError says which kind of failure an error of the sender is; worth reports
// whether trying again could help at all.
func networkError(r outbound.Reason) (kind engine.NetworkError, worth bool) {
	switch r {
	case outbound.ConnectionRefused:
		return engine.NetworkRefused, true
	case outbound.Timeout:
		return engine.NetworkTimeout, true
	case outbound.Network, outbound.Unresolved, outbound.BadAnswer:
		return engine.NetworkOther, true
	}
	return "", false
}

// retry decides what follows a failed attempt. again is false when nothing does, then
// gaveUp may say why.
func (u *unit) retry(ctx context.Context, at engine.Attempt, header http.Header) (res PageResult, again bool, gaveUp string, err error) {
	at.Number, at.Timeouts, at.Waits = u.req.Attempt, u.req.Timeouts, u.req.Waits
	at.Repeatable = u.def.Repeatable()
	at.Waited = time.Duration(u.req.WaitedMS) * time.Millisecond
	at.Rand = rand.Float64()
	if wait, ok := outbound.ParseRetryAfter(header.Get("Retry-After"), time.Now()); ok {
		at.RetryAfter = &wait
	}
	after, counts, again, reason := engine.Retry(at)
	if !again {
		return res, false, reason, nil
	}
	if err := u.release(ctx); err != nil {
		return res, true, "", err
	}
	if after >= time.Second {
		wait := stepwell.Waiting{Reason: reason, Until: time.Now().Add(after)}
		// Not given up while the store is away: the request would go out again before its time.
		if err := u.a.persist(ctx, u.s, func() error {
			return errors.Join(u.a.Store.SetWait(ctx, u.key, wait), fault.Error(fault.WaitRecorded))
		}); err != nil {
			return res, true, "", err
		}
		u.pull.until = wait.Until
		fault.Point(fault.WaitRecorded)
	}
	return PageResult{Outcome: Retry, AfterMS: (after + time.Millisecond - 1).Milliseconds(), Asked: !counts,
		Timeout: at.Network == engine.NetworkTimeout}, true, "", nil
}
