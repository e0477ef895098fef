package activities

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/outbound"
)

func TestOneFlightForAKey(t *testing.T) {
	t.Parallel()
	fs := newFlights(t.Context(), zap.NewNop())
	var began atomic.Int32
	land := make(chan struct{})
	work := func(context.Context) (any, error) {
		began.Add(1)
		<-land
		return "landed", nil
	}
	key := stepwell.PageKey{Org: "o", Run: "r", Page: 1}
	var joined sync.WaitGroup
	results := make(chan any, 20)
	for range cap(results) {
		joined.Add(1)
		go func() {
			f := fs.join(key, work)
			joined.Done()
			<-f.done
			results <- f.result
		}()
	}
	joined.Wait()
	other := fs.join(stepwell.PageKey{Org: "o", Run: "r", Page: 2}, func(context.Context) (any, error) { return "other", nil })
	<-other.done // another key does not wait
	close(land)
	for range cap(results) {
		if got := <-results; got != "landed" {
			t.Errorf("somebody got %v", got)
		}
	}
	if began.Load() != 1 {
		t.Errorf("the work was begun %d times", began.Load())
	}
	again := fs.join(key, func(context.Context) (any, error) { return "again", nil })
	if <-again.done; again.result != "again" {
		t.Errorf("after the end a new flight gives %v", again.result)
	}
}

func TestAPanicEndsOneFlight(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	fs := newFlights(t.Context(), zap.New(core))
	f := fs.join(stepwell.PageKey{Run: "r"}, func(context.Context) (any, error) { panic("oh") })
	if <-f.done; f.err == nil || !strings.Contains(f.err.Error(), "oh") {
		t.Errorf("the flight ended with %v", f.err)
	}
	if logs.Len() != 1 {
		t.Errorf("%d lines were logged", logs.Len())
	}
}

func TestWaitForFlights(t *testing.T) {
	t.Parallel()
	fs := newFlights(t.Context(), zap.NewNop())
	land := make(chan struct{})
	fs.join(stepwell.PageKey{}, func(context.Context) (any, error) { <-land; return nil, nil })
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	fs.wait(soon)
	if soon.Err() == nil {
		t.Error("the wait ended with a flight on its way")
	}
	close(land)
	fs.wait(t.Context())
	if t.Context().Err() != nil {
		t.Error("the wait did not end with the flights")
	}
}

func TestLease(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		name  string
		lease *lease
		lost  bool
	}{
		{"local, in time", &lease{until: now.Add(time.Hour)}, false},
		{"local, too late", &lease{until: now.Add(-time.Millisecond)}, true},
		{"regular, just renewed", &lease{last: now}, false},
		{"regular, silent for too long", &lease{last: now.Add(-staleAfter - time.Millisecond)}, true},
		{"given up", &lease{last: now, gone: true}, true},
	} {
		if got := test.lease.lost(); got != test.lost {
			t.Errorf("%s: lost is %v", test.name, got)
		}
		test.lease.renew()
		if got := test.lease.lost(); got != test.lost {
			t.Errorf("%s: after a renewal, lost is %v: a lost lease stays lost", test.name, got)
		}
		test.lease.end()
		if !test.lease.lost() {
			t.Errorf("%s: ended, and not lost", test.name)
		}
	}
	// Whatever sends by a lease must be over before Temporal gives the work away.
	if staleAfter >= 5*time.Second || heartbeatEvery+time.Second > staleAfter {
		t.Errorf("a process counts as stalled after %v, heartbeats come every %v", staleAfter, heartbeatEvery)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err error
		bug bool
	}{
		{stepwell.Errorf(stepwell.KindUnavailable, "x", "away"), false},
		{context.Canceled, false},
		{context.DeadlineExceeded, false},
		{errors.New("page 3 is missing"), true},
	} {
		var app *temporal.ApplicationError
		err := classify(test.err)
		if !errors.As(err, &app) || (app.Type() == InternalError) != test.bug {
			t.Errorf("%v became %v", test.err, err)
		}
		if strings.Contains(err.Error(), test.err.Error()) {
			t.Errorf("%v: its text goes to Temporal: %v", test.err, err)
		}
	}
}

func TestNetworkErrors(t *testing.T) {
	t.Parallel()
	for reason, want := range map[outbound.Reason]engine.NetworkError{
		outbound.ConnectionRefused: engine.NetworkRefused,
		outbound.Timeout:           engine.NetworkTimeout,
		outbound.Network:           engine.NetworkOther,
		outbound.Unresolved:        engine.NetworkOther,
		outbound.BadAnswer:         engine.NetworkOther,
		outbound.Refused:           "",
		outbound.TooLarge:          "",
	} {
		if kind, worth := networkError(reason); kind != want || worth != (want != "") {
			t.Errorf("%v is %q, worth another try %v", reason, kind, worth)
		}
	}
}

// statusStore is a store of which only the status of a run is asked.
type statusStore struct {
	Store
	status atomic.Value // stepwell.RunStatus
	asked  atomic.Int32
	err    error
}

func (s *statusStore) RunStatus(context.Context, string, string) (stepwell.RunStatus, error) {
	s.asked.Add(1)
	return s.status.Load().(stepwell.RunStatus), s.err
}

func newSession(t *testing.T) (*Activities, *session, *statusStore) {
	t.Helper()
	st := &statusStore{}
	st.status.Store(stepwell.RunRunning)
	a := &Activities{Config: Config{Store: st, Log: zap.NewNop()}, base: t.Context()}
	a.sessions = newSessions(a)
	return a, a.sessions.get(runKey{"o", "r"}), st
}

// TestStatusIsFresh relies on a status for 200 ms at most: what cancel waits for.
func TestStatusIsFresh(t *testing.T) {
	t.Parallel()
	_, s, st := newSession(t)
	for range 3 {
		if running, err := s.check(t.Context()); err != nil || !running {
			t.Fatal(running, err)
		}
	}
	if n := st.asked.Load(); n != 1 {
		t.Errorf("three checks in a row asked %d times", n)
	}
	if running, err := s.checkNow(t.Context()); err != nil || !running || st.asked.Load() != 2 {
		t.Errorf("a check at once asked %d times in all (%v)", st.asked.Load(), err)
	}
	s.mu.Lock()
	s.statusAt = time.Now().Add(-statusFresh)
	s.mu.Unlock()
	st.status.Store(stepwell.RunAborted)
	if running, err := s.check(t.Context()); err != nil || running {
		t.Errorf("an aborted run counts as running (%v)", err)
	}
	if s.ctx.Err() == nil || !s.isEnded() {
		t.Error("the session of an aborted run goes on")
	}
	if _, err := s.check(t.Context()); err != nil || st.asked.Load() != 3 {
		t.Error("an ended run was asked for again")
	}

	_, s, st = newSession(t)
	st.err = stepwell.Errorf(stepwell.KindUnavailable, "x", "away")
	if running, err := s.check(t.Context()); err == nil || running {
		t.Error("a run counts as running without an answer")
	}
	if s.isEnded() {
		t.Error("an outage ended the session")
	}
}

// TestCancelledWaitsForRequests returns when nothing is in flight, and lets nothing begin.
func TestCancelledWaitsForRequests(t *testing.T) {
	t.Parallel()
	a, s, _ := newSession(t)
	done, ok := s.beginSend()
	if !ok {
		t.Fatal("a request of a running run did not begin")
	}
	returned := make(chan struct{})
	go func() {
		a.Cancelled("o", "r")
		close(returned)
	}()
	<-s.ctx.Done() // the request in flight is cut off
	if _, ok := s.beginSend(); ok {
		t.Error("a request began after the cancel")
	}
	select {
	case <-returned:
		t.Error("the cancel returned with a request in flight")
	case <-time.After(20 * time.Millisecond):
	}
	done()
	<-returned
	a.Cancelled("o", "unknown") // nothing is known here: nothing to wait for
}

func TestPersist(t *testing.T) {
	t.Parallel()
	a, s, _ := newSession(t)
	away := stepwell.Errorf(stepwell.KindUnavailable, "x", "away")
	tries := 0
	err := a.persist(t.Context(), s, func() error {
		if tries++; tries < 4 {
			return away
		}
		return nil
	})
	if err != nil || tries != 4 {
		t.Errorf("%d tries, %v", tries, err)
	}
	bug := errors.New("a bug")
	tries = 0
	if err := a.persist(t.Context(), s, func() error { tries++; return bug }); !errors.Is(err, bug) || tries != 1 {
		t.Errorf("a bug was tried %d times (%v)", tries, err)
	}
	tries = 0
	err = a.persist(t.Context(), s, func() error {
		if tries++; tries == 2 {
			s.finish() // cancelled meanwhile
		}
		return away
	})
	if !errors.Is(err, away) || tries > 3 {
		t.Errorf("an ended run was tried %d times (%v)", tries, err)
	}
}
