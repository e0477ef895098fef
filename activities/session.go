package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stepwell"
	"stepwell/engine"
	"stepwell/results"
)

const (
	sessionIdle   = 60 * time.Second       // after which a session is forgotten
	statusFresh   = 200 * time.Millisecond // for which a status check is good (design, step 8)
	pullFresh     = 2 * time.Second        // after which what is known of a pull is read again
	maxCached     = 8 << 20                // bytes of one value that a session keeps
	maxToolsKept  = 2000                   // compiled tool versions in memory
	maxCachedData = 64 << 20               // bytes of values that all sessions keep together
	minPulls      = 1000                   // pulls that a session keeps in any case
)

type runKey struct{ org, run string }

// sessions are the runs that this process has touched lately. They only cache: any
// process can go on with any run at any time.
type sessions struct {
	a     *Activities
	mu    sync.Mutex
	byRun map[runKey]*session
	tools map[int64]*tool
	bytes atomic.Int64 // of cached values, of all sessions
}

// tool is a tool version with its compiled form, or with why it does not compile: an
// expression that was saved may be over a limit.
type tool struct {
	def      *stepwell.Tool
	systems  []string // ids of those that its steps name
	compiled *engine.Tool
	broken   *engine.StepError
	writers  []int // steps that can change the state
	writes   bool  // they, or the outputTransform, can
}

// session is what this process knows of a run.
type session struct {
	all *sessions
	key runKey
	ctx context.Context // ends when the run does
	end context.CancelFunc

	mu        sync.Mutex // of everything below; held only for moments
	loading   sync.Mutex // held while the run is read
	choosing  sync.Mutex // held while selected items are read
	run       *stepwell.Run
	tool      *tool
	secrets   map[string]json.RawMessage // run-time credentials
	hook      engine.Scope               // nil when no hook started the run
	hidden    []string                   // every secret of the run that this process has seen
	mask      func(string) string        // hides them
	bound     map[string]*stepwell.BoundSystem
	boundAt   time.Time   // when bound was read
	openedAt  time.Time   // when the run was read
	hasFiles  atomic.Bool // the run has files, or may have some of which this process knows nothing
	empty     bool        // the run had no pages then
	unclaimed bool        // and no claims
	statusAt  time.Time   // when the run was last known to be running
	touched   time.Time
	ended     bool
	users     int            // activities that work with it
	sending   sync.WaitGroup // requests in flight
	pulls     map[pullKey]*pull
	pruneAt   int // pulls at which those of items that are done are forgotten
	state     runState
	values    map[int]*results.Value
	chosen    map[int]*chosen
	bytes     int64
	noBlobsAt time.Time // when it was last given up to wait for the blob store
}

func newSessions(a *Activities) *sessions {
	return &sessions{a: a, byRun: map[runKey]*session{}, tools: map[int64]*tool{}}
}

// open gives the session of a run, read from the store when it is new here. The run
// may have ended: see session.ended. Without an error, release must be called.
func (ss *sessions) open(ctx context.Context, org, run string) (*session, error) {
	s := ss.get(runKey{org, run})
	if err := s.read(ctx); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

// read reads the run from the store if that was not done yet.
func (s *session) read(ctx context.Context) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if s.run != nil || s.isEnded() {
		return nil
	}
	began := time.Now()
	opened, err := s.all.a.Store.OpenRun(ctx, s.key.org, s.key.run)
	if err != nil && stepwell.KindOf(err) == stepwell.KindNotFound {
		s.finish() // deleted by retention: nothing to do for it
		return nil
	}
	if err != nil {
		return err
	}
	if opened.Run.Status.Final() {
		s.finish()
		return nil
	}
	return s.load(ctx, opened, began)
}

// release says that an activity is done with the session.
func (s *session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.touched = time.Now()
}

// get gives the session of a run, maybe an empty one; release must be called.
func (ss *sessions) get(key runKey) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byRun[key]
	if s == nil {
		s = &session{all: ss, key: key, pulls: map[pullKey]*pull{}, values: map[int]*results.Value{}, chosen: map[int]*chosen{}}
		s.ctx, s.end = context.WithCancel(ss.a.base)
		ss.byRun[key] = s
	}
	s.mu.Lock()
	s.users++
	s.mu.Unlock()
	return s
}

// load fills a new session.
func (s *session) load(ctx context.Context, opened *stepwell.OpenRun, began time.Time) error {
	r := &opened.Run
	t, err := s.all.tool(ctx, r.OrgID, r.ToolVersion)
	if err != nil {
		return err
	}
	secrets := map[string]json.RawMessage{}
	if opened.Credentials != nil {
		if err := json.Unmarshal(opened.Credentials, &secrets); err != nil {
			return fmt.Errorf("credentials of run %s: not an object", r.ID)
		}
	}
	s.tool = t
	if err := s.startState(ctx); err != nil || s.isEnded() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets, s.statusAt = secrets, began
	s.hide(texts(secrets))
	s.hook = s.hookScope(opened)
	s.run = r
	s.empty, s.unclaimed = !opened.HasPages, !opened.HasClaims
	s.hasFiles.Store(opened.HasPages)
	s.openedAt = began
	return nil
}

// texts are the texts in values, nested ones too: the secrets to be masked.
func texts(values map[string]json.RawMessage) []string {
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	for _, raw := range values {
		var v any
		if json.Unmarshal(raw, &v) == nil {
			walk(v)
		}
	}
	return out
}

// tool gives a tool version, compiled.
func (ss *sessions) tool(ctx context.Context, org string, key int64) (*tool, error) {
	ss.mu.Lock()
	t := ss.tools[key]
	ss.mu.Unlock()
	if t != nil {
		return t, nil
	}
	def, err := ss.a.Store.ToolByKey(ctx, org, key)
	if err != nil {
		return nil, err
	}
	t = &tool{def: def, systems: def.Systems()}
	t.compiled, err = engine.Compiler{Evaluator: ss.a.Evaluator, Tenant: org}.Tool(ctx, def)
	if err != nil && !errors.As(err, &t.broken) {
		return nil, fmt.Errorf("tool version %d: %w", key, err)
	}
	if t.broken != nil {
		return t, nil // not kept: what took too long on a busy machine may compile later
	}
	t.findWriters()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.tools) >= maxToolsKept {
		clear(ss.tools)
	}
	ss.tools[key] = t
	return t, nil
}

func (s *session) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// finish notes that the run has ended: what is in flight for it is cut off, and nothing
// begins any more.
func (s *session) finish() {
	s.mu.Lock()
	s.ended = true
	s.secrets, s.bound = nil, nil
	s.drop()
	s.mu.Unlock()
	s.end()
}

// beginSend registers a request; ok is false when the run has ended. done must be called.
func (s *session) beginSend() (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, false
	}
	s.sending.Add(1)
	return s.sending.Done, true
}

// Cancelled tells this process that a run has ended elsewhere: its requests are cut
// off, and when it returns none is in flight.
func (a *Activities) Cancelled(org, run string) {
	a.sessions.mu.Lock()
	s := a.sessions.byRun[runKey{org, run}]
	a.sessions.mu.Unlock()
	if s == nil {
		return // a session that comes later reads the status from the store
	}
	s.finish()
	s.sending.Wait()
}

// running notes that the run was running at a time.
func (s *session) running(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.statusAt) {
		s.statusAt = at
	}
}

// checkNow is check without relying on an earlier one.
func (s *session) checkNow(ctx context.Context) (running bool, err error) {
	s.mu.Lock()
	s.statusAt = time.Time{}
	s.mu.Unlock()
	return s.check(ctx)
}

// check makes sure that the run is running, by a status not older than statusFresh.
func (s *session) check(ctx context.Context) (running bool, err error) {
	s.mu.Lock()
	ended, fresh := s.ended, time.Since(s.statusAt) < statusFresh
	s.mu.Unlock()
	if ended || fresh {
		return !ended, nil
	}
	began := time.Now()
	status, err := s.all.a.Store.RunStatus(ctx, s.key.org, s.key.run)
	if err != nil {
		return false, err
	}
	if status != stepwell.RunRunning {
		s.finish()
		return false, nil
	}
	s.running(began)
	return true, nil
}

// scope is sourceData for one item of a step. Its errors are those of systems; with strict
// the access token of the step's own system must be good.
func (s *session) scope(ctx context.Context, step, item int, currentItem json.RawMessage, strict bool) (engine.Scope, error) {
	systems, err := s.systems(ctx, step, strict)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	secrets := s.secrets
	s.mu.Unlock()
	stored, credentials := engine.BindCredentials(systems, s.stepSystem(step), secrets)
	return engine.SourceData(engine.Sources{
		Inputs: s.run.Inputs, Results: &stepScope{s: s, before: step}, Stored: stored, Credentials: credentials, CurrentItem: currentItem, Hook: s.hook,
		State: func(ctx context.Context) (json.RawMessage, error) { return s.stateBefore(ctx, step, item) },
	}), nil
}

// stepScope gives the values of the steps before one, read when they are asked for.
type stepScope struct {
	s      *session
	before int
}

// Keys lists the ids of the steps before.
func (x *stepScope) Keys() []string {
	var keys []string
	for i := range x.s.tool.def.Steps[:x.before] {
		keys = append(keys, x.s.tool.def.Steps[i].ID)
	}
	return keys
}

// Get gives a step's envelope, or a loop's array of them.
func (x *stepScope) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	for i := range x.s.tool.def.Steps[:x.before] {
		if x.s.tool.def.Steps[i].ID == key {
			v, err := x.s.value(ctx, i)
			if err != nil || v == nil {
				return nil, false, err
			}
			return v.Envelope, true, nil
		}
	}
	return nil, false, nil
}

// value gives the value of a finished step.
func (s *session) value(ctx context.Context, step int) (*results.Value, error) {
	s.mu.Lock()
	v := s.values[step]
	s.mu.Unlock()
	if v != nil {
		return v, nil
	}
	err := s.all.a.persist(ctx, s, func() (err error) {
		if bytes, _, known := s.size(step); known && bytes > results.MaxValue {
			return results.ErrTooLarge // not read first
		}
		v, err = s.all.a.results.Step(ctx, s.key.org, s.key.run, step, s.tool.def.Steps[step].DataSelector != "")
		return err
	})
	if errors.Is(err, results.ErrTooLarge) {
		return nil, &engine.StepError{Message: fmt.Sprintf("The results of step '%s' are larger than %d MiB, the most that an expression, an outputSchema or a responseFilter can take in; "+
			"without them a result of any size is kept and streamed", s.tool.def.Steps[step].ID, results.MaxValue>>20)}
	}
	if err == nil && v != nil {
		s.keep(step, v)
	}
	return v, err
}

// keep caches a value if it is small enough; kept reports whether it is there now.
func (s *session) keep(step int, v *results.Value) (kept bool) {
	size := int64(len(v.Envelope) + len(v.Data))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || size > maxCached || s.values[step] != nil {
		return s.values[step] == v
	}
	if s.all.bytes.Add(size) > maxCachedData {
		s.all.bytes.Add(-size)
		return false
	}
	s.values[step] = v
	s.bytes += size
	return true
}

// unkeep forgets a value that was kept.
func (s *session) unkeep(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.values[step]; v != nil {
		delete(s.values, step)
		size := int64(len(v.Envelope) + len(v.Data))
		s.bytes -= size
		s.all.bytes.Add(-size)
	}
}

// public makes a text fit to be stored and shown: without secrets, and without what
// Postgres takes in no text.
func (s *session) public(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s.masked(text), "\uFFFD"), "\x00", "\uFFFD")
}

// drop gives back what the session cached; the caller holds s.mu.
func (s *session) drop() {
	s.values = map[int]*results.Value{}
	s.all.bytes.Add(-s.bytes)
	s.bytes = 0
}

// tidy forgets sessions that nobody touches any more, ended ones sooner.
func (ss *sessions) tidy(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ss.mu.Lock()
		for key, s := range ss.byRun {
			if s.forgettable() {
				delete(ss.byRun, key)
			}
		}
		ss.mu.Unlock()
	}
}

// forgettable reports whether nobody needs the session; it ends then, and gives its cache
// back. One that an activity works with stays: a cancel must find it.
func (s *session) forgettable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := sessionIdle
	if s.ended {
		limit = 5 * time.Second
	}
	if s.users > 0 || time.Since(s.touched) < limit {
		return false
	}
	s.drop()
	s.end()
	return true
}
