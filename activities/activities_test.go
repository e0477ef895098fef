package activities

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/engine"
	"stepwell/internal/outbound"
	"stepwell/results"
)

// memory is a Store of one run that can be made to fail like Postgres does.
type memory struct {
	Systems       // no tool here names one
	Deliveries    // not used here
	results.Store // not asked
	tool          *stepwell.Tool

	mu         sync.Mutex
	fails      map[string]error // by method: what the next call gives, after doing its work
	unreadable error            // of OpenRun, always
	status     stepwell.RunStatus
	error      string
	pages      map[stepwell.PageKey]stepwell.Page
	claims     map[stepwell.PageKey]stepwell.Claim
	selection  *stepwell.Selection
	wait       time.Time
}

func newMemory(tool *stepwell.Tool) *memory {
	return &memory{tool: tool, status: stepwell.RunRunning, fails: map[string]error{},
		pages: map[stepwell.PageKey]stepwell.Page{}, claims: map[stepwell.PageKey]stepwell.Claim{}}
}

// away is the error of a store that is away.
var away = &stepwell.Error{Kind: stepwell.KindUnavailable, Message: "away"}

// did gives the failure that a method is to have; the caller holds m.mu.
func (m *memory) did(method string) error {
	err := m.fails[method]
	delete(m.fails, method)
	return err
}

func (m *memory) OpenRun(_ context.Context, org, id string) (*stepwell.OpenRun, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &stepwell.OpenRun{Run: stepwell.Run{OrgID: org, ID: id, Status: m.status, Inputs: json.RawMessage("{}")},
		HasPages: len(m.pages) > 0, HasClaims: len(m.claims) > 0 || !m.wait.IsZero()}, m.unreadable
}

func (m *memory) RunStatus(context.Context, string, string) (stepwell.RunStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status, m.did("RunStatus")
}

func (m *memory) FinalAmong(_ context.Context, runs []stepwell.RunRef) ([]stepwell.RunRef, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status == stepwell.RunRunning {
		return nil, m.did("FinalAmong")
	}
	return runs, m.did("FinalAmong")
}

func (m *memory) HookBody(context.Context, string, string) ([]byte, error) {
	return nil, stepwell.NotFound("Hook")
}

func (m *memory) ToolByKey(context.Context, string, int64) (*stepwell.Tool, error) {
	return m.tool, nil
}

func (m *memory) Tool(context.Context, string, string) (*stepwell.Tool, error) {
	return m.tool, nil
}

func (m *memory) ChainedRun(context.Context, string, string) (*stepwell.Run, error) {
	return nil, nil
}

func (m *memory) FinishRun(_ context.Context, f stepwell.Finish) (stepwell.Ended, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, there := m.pages[f.LastKey]
	if m.status != stepwell.RunRunning || f.Last != nil && there {
		return stepwell.Ended{}, nil
	}
	if f.Last != nil {
		m.pages[f.LastKey] = *f.Last
	}
	m.status, m.error = f.Status, f.Error
	return stepwell.Ended{Finished: true, Warnings: f.Warnings}, m.did("FinishRun")
}

func (m *memory) SavePage(_ context.Context, k stepwell.PageKey, p *stepwell.Page, claimed bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if claimed {
		delete(m.claims, k)
	}
	if _, there := m.pages[k]; there || m.status != stepwell.RunRunning {
		return false, m.did("SavePage")
	}
	m.pages[k] = *p
	return true, m.did("SavePage")
}

func (m *memory) PageHead(_ context.Context, k stepwell.PageKey) (*stepwell.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, there := m.pages[k]; there {
		return &p, nil
	}
	return nil, nil
}

func (m *memory) PageHeads(_ context.Context, org, run string, step, item, after int, visit func(*stepwell.Page) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for page := after + 1; ; page++ {
		p, there := m.pages[stepwell.PageKey{Org: org, Run: run, Step: step, Item: item, Page: page}]
		if !there {
			return nil
		}
		if err := visit(&p); err != nil {
			return err
		}
	}
}

func (m *memory) PageBodies(_ context.Context, org, run string, step int, visit func(*stepwell.Page) error) error {
	m.mu.Lock()
	p, there := m.pages[stepwell.PageKey{Org: org, Run: run, Step: step, Page: 1}]
	m.mu.Unlock()
	if !there {
		return nil
	}
	return visit(&p)
}

func (m *memory) Summaries(context.Context, string, string) ([]stepwell.StepSummary, error) {
	return nil, errors.New("not here")
}

func (m *memory) Selection(context.Context, string, string, int) (*stepwell.Selection, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.selection == nil {
		return nil, nil
	}
	return &stepwell.Selection{Loop: m.selection.Loop, Total: m.selection.Total}, nil
}

func (m *memory) SelectionItems(context.Context, string, string, int, int) (int, []json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return 0, m.selection.Items, nil
}

func (m *memory) SaveSelection(_ context.Context, org, run string, step int, sel *stepwell.Selection) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.selection != nil || m.status != stepwell.RunRunning {
		return false, m.did("SaveSelection")
	}
	m.selection = sel
	if sel.Error != "" {
		m.pages[stepwell.PageKey{Org: org, Run: run, Step: step, Page: 1}] = stepwell.Page{Step: step, Page: 1, Error: sel.Error, Done: true}
	}
	return true, m.did("SaveSelection")
}

func (m *memory) SetWait(_ context.Context, _ stepwell.PageKey, w stepwell.Waiting) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait = w.Until
	return m.did("SetWait")
}

func (m *memory) WaitLeft(context.Context, stepwell.PageKey) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, time.Until(m.wait)), nil
}

func (m *memory) RenewWorker(context.Context, string) error { return nil }
func (m *memory) EndWorker(context.Context, string) error   { return nil }

func (m *memory) TakeClaim(_ context.Context, k stepwell.PageKey, worker string, effect, takeOver bool) (mine bool, other *stepwell.Claim, running bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, there := m.claims[k]
	if m.status != stepwell.RunRunning {
		return false, nil, false, nil
	}
	if there && (!takeOver || c.Alive && c.Worker != worker) {
		return false, &c, true, m.did("TakeClaim")
	}
	m.claims[k] = stepwell.Claim{Worker: worker, Effect: effect, Alive: true}
	return true, nil, true, m.did("TakeClaim")
}

func (m *memory) ReadClaim(_ context.Context, k stepwell.PageKey) (*stepwell.Claim, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, there := m.claims[k]; there {
		return &c, m.status == stepwell.RunRunning, nil
	}
	return nil, m.status == stepwell.RunRunning, nil
}

func (m *memory) ReleaseClaim(_ context.Context, k stepwell.PageKey, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims, k)
	return m.did("ReleaseClaim")
}

// upstream answers every request, and counts them.
type upstream struct {
	mu     sync.Mutex
	sent   int
	answer func(n int, r outbound.Request) (*outbound.Response, error)
}

func (u *upstream) Do(_ context.Context, r outbound.Request) (*outbound.Response, error) {
	u.mu.Lock()
	u.sent++
	n := u.sent
	u.mu.Unlock()
	if u.answer != nil {
		return u.answer(n, r)
	}
	return answer(200, `{"ok":true}`), nil
}

func answer(status int, body string) *outbound.Response {
	return &outbound.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
}

// thrower is an evaluator of which every expression throws.
type thrower struct{}

func (thrower) Evaluate(_ context.Context, r engine.EvalRequest) ([]engine.EvalResult, error) {
	out := make([]engine.EvalResult, len(r.Expressions))
	for i := range out {
		out[i].Err = &engine.ExpressionError{Message: "Error: thrown"}
	}
	return out, nil
}

func (thrower) Check(_ context.Context, exprs []engine.Expression) ([]*engine.ExpressionError, error) {
	return make([]*engine.ExpressionError, len(exprs)), nil
}

func (thrower) Reads(_ context.Context, exprs []engine.Expression, _ string) ([]bool, error) {
	return make([]bool, len(exprs)), nil
}

// worker is one worker process of a test.
type worker struct {
	*Activities
	env   *testsuite.TestActivityEnvironment
	ended []*stepwell.Run
}

func startWorker(t *testing.T, name string, m *memory, u *upstream) *worker {
	t.Helper()
	w := &worker{}
	w.Activities = New(Config{Worker: name, Store: m, Evaluator: thrower{}, Sender: u, Log: zap.NewNop(),
		Masker: func([]string) func(string) string { return func(s string) string { return s } },
		Ended:  func(r *stepwell.Run) { w.ended = append(w.ended, r) }})
	t.Cleanup(func() { w.Close(context.Background()) })
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	w.env = suite.NewTestActivityEnvironment()
	w.env.RegisterActivity(w.Page)
	w.env.RegisterActivity(w.Select)
	w.env.RegisterActivity(w.Finish)
	return w
}

// page asks for a page of the first step, with a regular activity.
func (w *worker) page(page int, contended bool) (PageResult, error) {
	v, err := w.env.ExecuteActivity(w.Page, PageRequest{Org: "o", Run: "r", Page: page, Attempt: 1, Contended: contended})
	var res PageResult
	if err == nil {
		err = v.Get(&res)
	}
	return res, err
}

func oneStep(method string) *stepwell.Tool {
	return &stepwell.Tool{ID: "t", Steps: []stepwell.Step{{ID: "s", Config: stepwell.StepConfig{URL: "http://upstream/", Method: method}}}}
}

// first is the key of the first page.
var first = stepwell.PageKey{Org: "o", Run: "r", Page: 1}

// TestUnsentClaimIsNoUnknownOutcome: a claim that was written while the store went away,
// and under which nothing was sent, is this process's own.
func TestUnsentClaimIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	m, u := newMemory(oneStep("POST")), &upstream{}
	w := startWorker(t, "a", m, u)
	m.fails["TakeClaim"] = away
	if _, err := w.page(1, false); err == nil {
		t.Fatal("the store was away, and the activity has an outcome")
	}
	if res, err := w.page(1, true); err != nil || res.Outcome != Done || u.sent != 1 {
		t.Errorf("outcome %q, error %v, after %d requests; stored %+v", res.Outcome, err, u.sent, m.pages[first])
	}
}

// TestSentClaimIsAnUnknownOutcome: once something was sent under a claim, it is not sent
// again, whoever's the claim is.
func TestSentClaimIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	m, u := newMemory(oneStep("POST")), &upstream{}
	w := startWorker(t, "a", m, u)
	u.answer = func(int, outbound.Request) (*outbound.Response, error) {
		return nil, errors.New("the process lost its way")
	}
	if _, err := w.page(1, false); err == nil {
		t.Fatal("the activity has an outcome")
	}
	m.fails["TakeClaim"] = away
	if _, err := w.page(1, true); err == nil {
		t.Fatal("the store was away, and the activity has an outcome")
	}
	if res, err := w.page(1, true); err != nil || res.Outcome != Failed || u.sent != 1 {
		t.Errorf("outcome %q, error %v, after %d requests", res.Outcome, err, u.sent)
	}

	// Nor by a process that met the claim when it opened the run.
	m = newMemory(oneStep("POST"))
	m.claims[first] = stepwell.Claim{Worker: "b", Effect: true}
	u = &upstream{}
	if res, err := startWorker(t, "b", m, u).page(1, true); err != nil || res.Outcome != Failed || u.sent != 0 {
		t.Errorf("outcome %q, error %v, after %d requests", res.Outcome, err, u.sent)
	}
}

// TestFinishWithoutReading: a run that cannot be read can be given up.
func TestFinishWithoutReading(t *testing.T) {
	t.Parallel()
	m := newMemory(oneStep("GET"))
	m.unreadable = errors.New("its credentials do not open")
	w := startWorker(t, "a", m, &upstream{})
	if _, err := w.page(1, false); err == nil {
		t.Fatal("an unreadable run has a page")
	}
	if _, err := w.env.ExecuteActivity(w.Finish, FinishRequest{Org: "o", Run: "r", Status: "failed", Step: -1, Reason: "given up"}); err != nil {
		t.Fatal(err)
	}
	if m.status != stepwell.RunFailed || m.error != "given up" || len(w.ended) != 1 {
		t.Errorf("status %s (%s), %d told", m.status, m.error, len(w.ended))
	}
}

// TestFailedSelectorSendsNothing: whatever is lost between storing a selector's failure
// and saying so, the step stays failed, here and in another worker.
func TestFailedSelectorSendsNothing(t *testing.T) {
	t.Parallel()
	tool := oneStep("POST")
	tool.Steps[0].DataSelector = "(s) => { throw new Error('thrown') }"
	m, u := newMemory(tool), &upstream{}
	for _, name := range []string{"a", "a again", "b"} {
		w := startWorker(t, name, m, u)
		for range 2 {
			m.fails["SaveSelection"] = away
			v, err := w.env.ExecuteActivity(w.Select, SelectRequest{Org: "o", Run: "r"})
			var sel SelectResult
			if err == nil {
				err = v.Get(&sel)
			}
			if err != nil {
				t.Fatal(err)
			}
			if sel.Outcome == Failed {
				continue
			}
			if res, err := w.page(1, false); err != nil || res.Outcome != Failed {
				t.Errorf("%s: the selector is %q, its page %q, error %v", name, sel.Outcome, res.Outcome, err)
			}
		}
	}
	if u.sent != 0 || m.pages[first].Error == "" {
		t.Errorf("%d requests, stored %+v", u.sent, m.pages[first])
	}
}

// TestStoredPageWins: of two answers for the last page the stored one is the run's data,
// in the answer to the waiting caller too.
func TestStoredPageWins(t *testing.T) {
	t.Parallel()
	m, u := newMemory(oneStep("GET")), &upstream{}
	w := startWorker(t, "a", m, u)
	u.answer = func(int, outbound.Request) (*outbound.Response, error) { // another worker is quicker
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pages[first] = stepwell.Page{Page: 1, Body: json.RawMessage(`"stored"`), Bytes: 8, Done: true}
		return answer(200, `"own"`), nil
	}
	if _, err := w.env.ExecuteActivity(w.Page, PageRequest{Org: "o", Run: "r", Page: 1, Attempt: 1, Last: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.env.ExecuteActivity(w.Finish, FinishRequest{Org: "o", Run: "r", Status: "success"}); err != nil {
		t.Fatal(err)
	}
	if len(w.ended) != 1 || string(w.ended[0].Data) != `"stored"` {
		t.Errorf("told %s", w.ended[0].Data)
	}
}

// TestErrorsCanBeStored: an upstream's error may hold what Postgres takes in no text.
func TestErrorsCanBeStored(t *testing.T) {
	t.Parallel()
	m, u := newMemory(oneStep("GET")), &upstream{}
	w := startWorker(t, "a", m, u)
	u.answer = func(int, outbound.Request) (*outbound.Response, error) { return answer(404, "no\x00th\xffing"), nil }
	if res, err := w.page(1, false); err != nil || res.Outcome != Failed {
		t.Fatal(res, err)
	}
	for _, r := range m.pages[first].Error {
		if r == 0 {
			t.Errorf("stored %q", m.pages[first].Error)
		}
	}
}

// TestWaitsOutlastTheStore: a request does not go out before the time that the upstream
// asked for because the store was away when the wait was noted.
func TestWaitsOutlastTheStore(t *testing.T) {
	t.Parallel()
	m, u := newMemory(oneStep("GET")), &upstream{}
	w := startWorker(t, "a", m, u)
	u.answer = func(int, outbound.Request) (*outbound.Response, error) {
		a := answer(429, "")
		a.Header.Set("Retry-After", "7")
		return a, nil
	}
	m.fails["SetWait"] = away
	if res, err := w.page(1, false); err != nil || res.Outcome != Retry || res.AfterMS != 7000 || u.sent != 1 {
		t.Errorf("%+v, error %v, after %d requests", res, err, u.sent)
	}
	// The activity's outcome is lost: it is made again, here or by another worker.
	for _, again := range []*worker{w, startWorker(t, "b", m, u)} {
		res, err := again.page(1, false)
		if err != nil || res.Outcome != Retry || !res.Asked || res.AfterMS < 5000 || res.AfterMS > 7000 || u.sent != 1 {
			t.Errorf("again: %+v, error %v, after %d requests", res, err, u.sent)
		}
	}
}

// TestSessionsInUseAreKept: a cancel finds every session that an activity works with, and
// one that is forgotten has ended.
func TestSessionsInUseAreKept(t *testing.T) {
	t.Parallel()
	m, u := newMemory(oneStep("GET")), &upstream{}
	w := startWorker(t, "a", m, u)
	s, err := w.sessions.open(t.Context(), "o", "r")
	if err != nil {
		t.Fatal(err)
	}
	s.touched = time.Now().Add(-time.Hour)
	if s.forgettable() {
		t.Error("a session in use would be forgotten")
	}
	s.release()
	s.touched = time.Now().Add(-time.Hour)
	if !s.forgettable() || s.ctx.Err() == nil {
		t.Error("a session that nobody uses is kept, or goes on")
	}
}

func (m *memory) StartState(context.Context, string, string) (*stepwell.State, error) {
	return &stepwell.State{Values: json.RawMessage(`{}`)}, nil
}

func (m *memory) StateChanges(context.Context, string, string, []int, [2]int, [2]int, func(int, int, *stepwell.StateChange)) error {
	return nil
}
