package service

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/api"
	"stepwell/internal/blob"
	"stepwell/internal/devstack/stacktest"
	"stepwell/internal/secret"
	"stepwell/store"
	"stepwell/workflows"
)

func TestMain(m *testing.M) { os.Exit(stacktest.Main(m)) }

// testService is a service on a database of its own, without a worker: what it starts
// stays as it is. Its parts do not run in the background unless the test starts them.
type testService struct {
	*Service
	t   *testing.T
	org string
	url string
}

// newService makes a service. away is an address where no Temporal answers, in place of
// the shared one.
func newService(t *testing.T, change ...func(*Config)) *testService {
	t.Helper()
	stack := stacktest.Shared(t)
	ts := &testService{t: t, url: stacktest.Database(t, stack)}
	s := ts.open()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if ts.org, err = s.CreateOrganization(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	c := Config{Store: s, ListenURL: ts.url, Workflows: temporalAt(t, stack.TemporalAddress()), Log: zap.NewNop()}
	for _, f := range change {
		f(&c)
	}
	ts.Service = New(c)
	return ts
}

// sibling is another process's service on the same database.
func (ts *testService) sibling() *testService {
	ts.t.Helper()
	c := ts.Config
	c.Store, c.Local, c.Worker = ts.open(), nil, ""
	return &testService{t: ts.t, url: ts.url, org: ts.org, Service: New(c)}
}

func (ts *testService) open() *store.Store {
	ts.t.Helper()
	ring, err := secret.ParseRing("test:" + secret.NewKey())
	if err != nil {
		ts.t.Fatal(err)
	}
	blobs, err := blob.Open(ts.t.Context(), "file://"+ts.t.TempDir())
	if err != nil {
		ts.t.Fatal(err)
	}
	s, err := store.Open(ts.t.Context(), store.Config{URL: ts.url, Blobs: blobs, Sealer: ring, Log: zap.NewNop()})
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() {
		s.Close()
		if err := blobs.Close(); err != nil {
			ts.t.Error(err)
		}
	})
	return s
}

func temporalAt(t *testing.T, address string) *workflows.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: address, Namespace: workflows.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return workflows.NewClient(c, workflows.DefaultSettings())
}

// background starts what a service does by itself, until the test ends.
func (ts *testService) background() {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { ts.Run(ctx) })
	ts.t.Cleanup(func() {
		stop()
		wg.Wait()
	})
}

func (ts *testService) noError(err error) {
	ts.t.Helper()
	if err != nil {
		ts.t.Fatal(err)
	}
}

// tool saves a tool.
func (ts *testService) tool(steps ...stepwell.Step) *stepwell.Tool {
	ts.t.Helper()
	if steps == nil {
		steps = []stepwell.Step{{ID: "fetch", Config: stepwell.StepConfig{URL: "http://upstream/"}}}
	}
	t, err := ts.Store.CreateTool(ts.t.Context(), ts.org, &stepwell.Tool{Steps: steps})
	ts.noError(err)
	return t
}

// record records a run of a tool, begun some time ago, without starting it.
func (ts *testService) record(id string, t *stepwell.Tool, ago time.Duration) store.RunRef {
	ts.t.Helper()
	ts.noError(ts.Store.InsertRun(ts.t.Context(), &stepwell.Run{OrgID: ts.org, ID: id, ToolID: t.ID, ToolVersion: t.VersionKey, Inputs: json.RawMessage(`{}`),
		RequestSource: "api", Mode: "prod", TraceID: "trace", UserID: "user"}, nil))
	if ago > 0 {
		ts.exec(`UPDATE runs SET started_at = started_at - $2::interval WHERE id = $1`, id, ago)
	}
	return store.RunRef{Org: ts.org, Run: id}
}

// exec changes the database behind the service's back.
func (ts *testService) exec(sql string, args ...any) {
	ts.t.Helper()
	execIn(ts.t, ts.url, sql, args...)
}

func (ts *testService) run(id string) *stepwell.Run {
	ts.t.Helper()
	r, err := ts.Store.Run(ts.t.Context(), ts.org, id)
	ts.noError(err)
	return r
}

func (ts *testService) state(id string) workflows.State {
	ts.t.Helper()
	state, err := ts.Workflows.RunState(ts.t.Context(), ts.org, id)
	ts.noError(err)
	return state
}

// until waits for a condition.
func until(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// local is a worker that notes what it was told.
type local struct {
	mu   sync.Mutex
	told []string
}

func (l *local) Cancelled(_, run string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, run)
}

func (l *local) times(run string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, told := range l.told {
		if told == run {
			n++
		}
	}
	return n
}

func withLocal(l *local) func(*Config) {
	return func(c *Config) { c.Local, c.Worker = l, "here" }
}

func wantKind(t *testing.T, what string, err error, want stepwell.Kind) {
	t.Helper()
	if err == nil || stepwell.KindOf(err) != want {
		t.Errorf("%s: got %v", what, err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	l := &local{}
	ts := newService(t, withLocal(l))
	tool := ts.tool()
	ts.record("r", tool, 0)
	ts.noError(ts.Workflows.StartRun(t.Context(), &stepwell.Run{OrgID: ts.org, ID: "r"}, tool))
	w := ts.hub.wait(ts.org, "r")
	defer w.stop()
	for range 2 { // the second says the same
		r, err := ts.Cancel(t.Context(), ts.org, "r")
		if err != nil || r.Status != stepwell.RunAborted || r.Error != "Run cancelled by user" || r.Tool == nil {
			t.Errorf("cancelled: %+v, %v", r, err)
		}
	}
	select {
	case <-w.done:
	default:
		t.Error("who waits for the run was not told")
	}
	if l.times("r") == 0 {
		t.Error("the worker here was not told")
	}
	_, err := ts.Cancel(t.Context(), ts.org, "none")
	wantKind(t, "a missing run", err, stepwell.KindNotFound)
	ts.record("ended", tool, 0)
	_, err = ts.Store.FinishRun(t.Context(), stepwell.Finish{Org: ts.org, Run: "ended", Status: stepwell.RunFailed, Error: "x"})
	ts.noError(err)
	_, err = ts.Cancel(t.Context(), ts.org, "ended")
	wantKind(t, "an ended run", err, stepwell.KindInvalid)
	if l.times("ended") != 0 {
		t.Error("the worker was told of a run that had failed")
	}
}

// TestCancelAgain is a cancel whose first call was lost after its commit: the process
// died before it told the workers. The second must tell them.
func TestCancelAgain(t *testing.T) {
	t.Parallel()
	l := &local{}
	ts := newService(t, withLocal(l))
	ts.record("r", ts.tool(), 0)
	if ended, err := ts.Store.AbortRun(t.Context(), ts.org, "r", "Run cancelled by user"); err != nil || !ended.Finished {
		t.Fatal("not aborted: ", err)
	}
	if r, err := ts.Cancel(t.Context(), ts.org, "r"); err != nil || r.Status != stepwell.RunAborted {
		t.Errorf("%+v, %v", r, err)
	}
	if l.times("r") == 0 {
		t.Error("the second cancel answered, and no worker was told")
	}
}

// TestCancelWithoutTemporal must not hold its caller until Temporal is back.
func TestCancelWithoutTemporal(t *testing.T) {
	t.Parallel()
	ts := newService(t, func(c *Config) { c.Workflows = temporalAt(t, "127.0.0.1:1") })
	ts.record("r", ts.tool(), 0)
	began := time.Now()
	if r, err := ts.Cancel(t.Context(), ts.org, "r"); err != nil || r.Status != stepwell.RunAborted {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(began); took > stacktest.Promised(cancelTold+2*time.Second) {
		t.Errorf("the answer took %v", took)
	}
}

// holding is a worker whose requests do not let go before it is released.
type holding chan struct{}

func (h holding) Cancelled(string, string) { <-h }

// TestCancelIsNotHeld: a request that does not let go does not hold who cancels its run.
func TestCancelIsNotHeld(t *testing.T) {
	t.Parallel()
	worker := make(holding)
	defer close(worker)
	ts := newService(t, func(c *Config) { c.Local, c.Worker = worker, "here" })
	ts.record("r", ts.tool(), 0)
	done := make(chan error, 1)
	go func() {
		_, err := ts.Cancel(t.Context(), ts.org, "r")
		done <- err
	}()
	select {
	case err := <-done:
		ts.noError(err)
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
	}
}

// TestCancelWaitsForOtherWorkers waits for each live worker to say that nothing is in
// flight, and not for ever.
func TestCancelWaitsForOtherWorkers(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	there := &local{}
	other := ts.sibling()
	other.Local, other.Worker = there, "there"
	tool := ts.tool()
	ts.background()
	other.background()
	// Both listen once each hears the other.
	for i, id := range []string{"a", "b"} {
		ts.record(id, tool, 0)
		listener, sender := []*testService{ts, other}[i], []*testService{ts, other}[1-i]
		w := listener.hub.wait(ts.org, id)
		until(t, "notices", 10*time.Second, func() bool {
			sender.Ended(&stepwell.Run{OrgID: ts.org, ID: id})
			return len(w.done) > 0
		})
		w.stop()
	}

	ts.record("heard", tool, 0)
	ts.noError(ts.Store.RenewWorker(t.Context(), "there"))
	if _, err := ts.Cancel(t.Context(), ts.org, "heard"); err != nil {
		t.Error(err)
	}
	if there.times("heard") != 1 {
		t.Errorf("the other process's worker was told %d times before the answer", there.times("heard"))
	}
	ts.record("silent", tool, 0)
	ts.noError(ts.Store.RenewWorker(t.Context(), "silent"))
	began := time.Now()
	if _, err := ts.Cancel(t.Context(), ts.org, "silent"); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < cancelWait {
		t.Errorf("the answer took %v, in which a worker that says nothing may still send", took)
	}
}

func TestSweeperStartsWhatWasLost(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	// A run that Temporal refuses, older than the others, must not keep them waiting.
	var many []stepwell.Step
	for i := range 20_000 {
		many = append(many, stepwell.Step{ID: string(slices.Repeat([]byte{byte('a' + i%26)}, 99)), Config: stepwell.StepConfig{URL: "http://upstream/"}})
	}
	ts.record("refused", ts.tool(many...), 3*time.Minute)
	// Neither must one whose tool does not compile any more.
	ts.record("odd", ts.tool(stepwell.Step{ID: "odd", Config: stepwell.StepConfig{Type: "transform", TransformCode: "(((("}}), 2*time.Minute)
	ts.record("lost", ts.tool(), time.Minute)
	ts.record("new", ts.tool(), 0)
	ts.record("old", ts.tool(), startDeadline+time.Minute)
	ts.noError(ts.sweepStarts(t.Context()))
	for id, want := range map[string]bool{"lost": true, "odd": true, "new": false, "old": false, "refused": false} {
		if got := ts.state(id).Known; got != want {
			t.Errorf("%s: started %v, want %v", id, got, want)
		}
	}
	for _, id := range []string{"old", "refused"} {
		if r := ts.run(id); r.Status != stepwell.RunFailed || r.Error == "" {
			t.Errorf("%s, which cannot be started any more, is %s (%s)", id, r.Status, r.Error)
		}
	}
	ts.flush(t.Context())
	refs, err := ts.Store.Undispatched(t.Context(), undispatchedAge, 10)
	if err != nil || len(refs) != 0 {
		t.Errorf("still to be started: %v (%v)", refs, err)
	}
}

func TestSweeperGivesUpWhatNobodyFinishes(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	tool := ts.tool()
	var refs []store.RunRef
	for _, id := range []string{"gone", "terminated", "open", "busy", "waiting"} {
		ref := ts.record(id, tool, 2*silentFor)
		refs = append(refs, ref)
		if id != "gone" {
			ts.noError(ts.Workflows.StartRun(t.Context(), &stepwell.Run{OrgID: ts.org, ID: id}, tool))
		}
		if id == "terminated" || id == "busy" || id == "waiting" {
			ts.noError(ts.Workflows.TerminateRun(t.Context(), ts.org, id, "test"))
		}
	}
	ts.noError(ts.Store.MarkDispatched(t.Context(), refs))
	key := stepwell.PageKey{Org: ts.org, Run: "busy", Page: 1}
	if _, err := ts.Store.SavePage(t.Context(), key, &stepwell.Page{Body: json.RawMessage(`1`)}, false); err != nil {
		t.Fatal(err)
	}
	key.Run = "waiting"
	ts.noError(ts.Store.SetWait(t.Context(), key, stepwell.Waiting{Reason: "429", Until: time.Now().Add(time.Hour)}))
	ts.noError(ts.sweepSilent(t.Context()))
	for id, want := range map[string]stepwell.RunStatus{"gone": stepwell.RunFailed, "terminated": stepwell.RunFailed,
		"open": stepwell.RunRunning, "busy": stepwell.RunRunning, "waiting": stepwell.RunRunning} {
		if r := ts.run(id); r.Status != want {
			t.Errorf("%s is %s (%s), want %s", id, r.Status, r.Error, want)
		}
	}
}

func TestSweeperCancelsAgain(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	tool := ts.tool()
	for _, id := range []string{"unknown", "closed", "open"} { // the first has no workflow at all
		ts.record(id, tool, 0)
		if id != "unknown" {
			ts.noError(ts.Workflows.StartRun(t.Context(), &stepwell.Run{OrgID: ts.org, ID: id}, tool))
		}
		if id == "closed" {
			ts.noError(ts.Workflows.TerminateRun(t.Context(), ts.org, id, "test"))
		}
		if _, err := ts.Store.AbortRun(t.Context(), ts.org, id, "Run cancelled by user"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		ts.noError(ts.sweepAborted(t.Context()))
	}
	if state := ts.state("open"); !state.Open { // no worker: only the request is recorded
		t.Errorf("the workflow is %+v", state)
	}
	left := func(what string, want ...string) {
		t.Helper()
		refs, err := ts.Store.TakeUnsettled(t.Context(), 10)
		ts.noError(err)
		var got []string
		for _, ref := range refs {
			got = append(got, ref.Run)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the sweeper still looks after %v, want %v", what, got, want)
		}
	}
	left("after sweeps", "open")
	ts.noError(ts.Workflows.TerminateRun(t.Context(), ts.org, "open", "test"))
	ts.noError(ts.sweepAborted(t.Context()))
	left("when it has closed")
}

// TestSweeperWithoutTemporal: nothing is given up or settled while Temporal is away.
func TestSweeperWithoutTemporal(t *testing.T) {
	t.Parallel()
	ts := newService(t, func(c *Config) { c.Workflows = temporalAt(t, "127.0.0.1:1") })
	tool := ts.tool()
	for _, id := range []string{"undispatched", "silent", "aborted"} {
		ts.record(id, tool, 2*silentFor)
	}
	ts.noError(ts.Store.MarkDispatched(t.Context(), []store.RunRef{{Org: ts.org, Run: "silent"}}))
	if _, err := ts.Store.AbortRun(t.Context(), ts.org, "aborted", "Run cancelled by user"); err != nil {
		t.Fatal(err)
	}
	for name, sweep := range map[string]func(context.Context) error{"starts": ts.sweepStarts, "silent": ts.sweepSilent, "aborted": ts.sweepAborted} {
		if sweep(t.Context()) == nil {
			t.Errorf("the sweep of %s says nothing of a Temporal that is away", name)
		}
	}
	for id, want := range map[string]stepwell.RunStatus{"undispatched": stepwell.RunRunning, "silent": stepwell.RunRunning, "aborted": stepwell.RunAborted} {
		if r := ts.run(id); r.Status != want {
			t.Errorf("%s is %s (%s), want %s", id, r.Status, r.Error, want)
		}
	}
	if refs, err := ts.Store.TakeUnsettled(t.Context(), 10); err != nil || len(refs) != 1 {
		t.Errorf("the cancelled run is not looked after any more: %v, %v", refs, err)
	}
}

// TestOneSweeper lets one process sweep at a time.
func TestOneSweeper(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	other := ts.sibling()
	swept, err := ts.Store.Sweep(t.Context(), func(ctx context.Context) error {
		swept, err := other.Store.Sweep(ctx, func(context.Context) error { return nil })
		if swept {
			t.Error("two processes sweep at once")
		}
		return err
	})
	if err != nil || !swept {
		t.Errorf("swept %v, %v", swept, err)
	}
}

// TestHub tells who waits here of runs that ended elsewhere, with and without a notice.
func TestHub(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	other := ts.sibling()
	tool := ts.tool()
	ts.background()
	other.background()
	for _, lost := range []bool{false, true} {
		id := map[bool]string{false: "noticed", true: "lost"}[lost]
		ts.record(id, tool, 0)
		first, second := ts.hub.wait(ts.org, id), ts.hub.wait(ts.org, id)
		ended, err := other.Store.FinishRun(t.Context(), stepwell.Finish{Org: ts.org, Run: id, Status: stepwell.RunFailed, Error: "x"})
		if err != nil || !ended.Finished {
			t.Fatal("not finished: ", err)
		}
		if !lost {
			other.Ended(&stepwell.Run{OrgID: ts.org, ID: id})
		}
		for _, w := range []*waiter{first, second} {
			select {
			case <-w.done:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: nobody was told", id)
			}
			w.stop()
		}
	}
	if n := len(ts.hub.waiting()); n != 0 {
		t.Errorf("%d runs are still waited for", n)
	}
}

func TestStartLimits(t *testing.T) {
	t.Parallel()
	ts := newService(t, func(c *Config) { c.MaxOpen = 3 })
	tool := ts.tool()
	start := func(id string) error {
		_, err := ts.Start(t.Context(), api.NewRun{Caller: &stepwell.Caller{OrgID: ts.org, UserID: "u"}, Tool: tool, ID: id,
			Inputs: json.RawMessage(`{}`), Options: stepwell.RunOptions{Mode: "prod", RequestSource: "api", TraceID: "t"}})
		return err
	}
	for _, id := range []string{"a", "b", "c"} {
		ts.noError(start(id))
		if !ts.state(id).Open {
			t.Errorf("the workflow of %s was not started", id)
		}
	}
	wantKind(t, "the fourth run", start("d"), stepwell.KindRateLimited)
	if _, err := ts.Store.Run(t.Context(), ts.org, "d"); stepwell.KindOf(err) != stepwell.KindNotFound {
		t.Error("a refused run was recorded")
	}
	_, err := ts.Store.AbortRun(t.Context(), ts.org, "a", "x")
	ts.noError(err)
	ts.noError(start("d"))
	ts2 := ts.sibling()
	ts2.MaxOpen = 100
	wantKind(t, "a taken id", func() error {
		_, err := ts2.Start(t.Context(), api.NewRun{Caller: &stepwell.Caller{OrgID: ts.org}, Tool: tool, ID: "d", Inputs: json.RawMessage(`{}`),
			Options: stepwell.RunOptions{Mode: "prod", RequestSource: "api", TraceID: "t"}})
		return err
	}(), stepwell.KindConflict)
}

// TestStartWithoutTemporal accepts runs at once, and the next ones without even trying.
func TestStartWithoutTemporal(t *testing.T) {
	t.Parallel()
	ts := newService(t, func(c *Config) { c.Workflows = temporalAt(t, "127.0.0.1:1") })
	tool := ts.tool()
	began := time.Now()
	for i := range 20 {
		_, err := ts.Start(t.Context(), api.NewRun{Caller: &stepwell.Caller{OrgID: ts.org}, Tool: tool, ID: string(rune('a' + i)), Inputs: json.RawMessage(`{}`),
			Options: stepwell.RunOptions{Mode: "prod", RequestSource: "api", TraceID: "t"}})
		ts.noError(err)
	}
	if took := time.Since(began); took > 2*dispatchTimeout {
		t.Errorf("20 runs took %v", took)
	}
	n, err := ts.Store.Running(t.Context(), ts.org, 100)
	if err != nil || n != 20 {
		t.Errorf("%d of 20 runs are recorded (%v)", n, err)
	}
}

func TestEnsureAdmin(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	ts.exec(`DELETE FROM organizations`)
	key, err := ts.EnsureAdmin(t.Context(), "")
	ts.noError(err)
	if !secret.CheckAPIKey(key) {
		t.Errorf("the first key is %q", key)
	}
	again, err := ts.EnsureAdmin(t.Context(), "")
	ts.noError(err)
	if again != "" {
		t.Error("a later start made another key")
	}
	for range 2 {
		made, err := ts.EnsureAdmin(t.Context(), "a-preset-admin-key")
		if err != nil || made != "" {
			t.Errorf("a preset key gave %q, %v", made, err)
		}
	}
	for _, text := range []string{key, "a-preset-admin-key"} {
		c, err := ts.Keys().Authenticate(t.Context(), [32]byte(secret.HashAPIKey(text)))
		if err != nil || c.Role != stepwell.RoleAdmin {
			t.Errorf("%+v, %v", c, err)
		}
	}
}

// TestOtherProcessesHearOfChanges changes a key and a tool in one process; another, which
// has both in its cache, sees it.
func TestOtherProcessesHearOfChanges(t *testing.T) {
	t.Parallel()
	ts := newService(t)
	other := ts.sibling()
	ts.background()
	other.background()
	tool := ts.tool()
	admin, _, err := ts.Keys().Create(t.Context(), ts.org, &stepwell.APIKey{Name: "admin", Role: stepwell.RoleAdmin})
	ts.noError(err)
	key, text, err := ts.Keys().Create(t.Context(), ts.org, &stepwell.APIKey{Name: "k", Role: stepwell.RoleMember})
	ts.noError(err)
	hash := [32]byte(secret.HashAPIKey(text))
	if _, err := other.Keys().Authenticate(t.Context(), hash); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Tools().Get(t.Context(), ts.org, tool.ID); err != nil {
		t.Fatal(err)
	}
	ts.noError(ts.Keys().Delete(t.Context(), ts.org, key.ID))
	_, err = ts.Tools().Update(t.Context(), ts.org, tool.ID, func(t *stepwell.Tool) error { t.Name = "changed"; return nil })
	ts.noError(err)
	if _, err := ts.Keys().Authenticate(t.Context(), hash); stepwell.KindOf(err) != stepwell.KindUnauthorized {
		t.Errorf("a revoked key is %v in the process that revoked it", err)
	}
	// A notice is heard only by who listens already; the cache's own end is the fallback.
	until(t, "a revoked key", cacheFor+5*time.Second, func() bool {
		_, err := other.Keys().Authenticate(t.Context(), hash)
		return stepwell.KindOf(err) == stepwell.KindUnauthorized
	})
	until(t, "a changed tool", cacheFor+5*time.Second, func() bool {
		got, err := other.Tools().Get(t.Context(), ts.org, tool.ID)
		return err == nil && got.Name == "changed"
	})
	if _, err := ts.Keys().Update(t.Context(), ts.org, admin.ID, func(k *stepwell.APIKey) error { k.Role = stepwell.RoleRunner; return nil }); stepwell.KindOf(err) != stepwell.KindInvalid {
		t.Errorf("the last admin key was demoted: %v", err)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	c := newCache[int, string](2, time.Hour)
	c.put(1, "one")
	c.put(2, "two")
	if v, ok := c.get(1); !ok || v != "one" {
		t.Errorf("got %q, %v", v, ok)
	}
	c.put(3, "three") // there is no room: all others go
	if _, ok := c.get(1); ok {
		t.Error("the cache grows")
	}
	c.drop(3)
	if _, ok := c.get(3); ok {
		t.Error("dropped, and still there")
	}
	short := newCache[int, string](2, time.Nanosecond)
	short.put(1, "one")
	until(t, "the end of a value", time.Second, func() bool { _, ok := short.get(1); return !ok })
}
