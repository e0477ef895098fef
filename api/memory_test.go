package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"stepwell"
	"stepwell/internal/secret"
)

// memory is an in-memory implementation of the ports: what these tests need of
// tools, runs and keys, without what a store or a workflow means by them.
type memory struct {
	mu      sync.Mutex
	tools   map[string][]*stepwell.Tool // by organization and id, newest version first
	runs    map[string]*stepwell.Run
	results map[string]*Results
	hooks   map[string]string // run ids by organization, tool and key
	callers map[[32]byte]*stepwell.Caller
	keys    []*stepwell.APIKey
	last    NewRun
	audit   []*stepwell.AuditEntry

	// hooks
	fail   error                       // what every call gives, when set
	finish func(NewRun, *stepwell.Run) // how a run ends; nil means that it goes on
	hold   chan struct{}               // StartAndWait waits for it
	large  JSONWriter                  // the data of runs that end without it
}

var memoryTime = time.Date(2030, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("", 3600))

func newMemory() *memory {
	m := &memory{tools: map[string][]*stepwell.Tool{}, runs: map[string]*stepwell.Run{}, results: map[string]*Results{}, hooks: map[string]string{}, callers: map[[32]byte]*stepwell.Caller{}}
	m.addCaller("admin-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k1", UserID: "ann", Role: stepwell.RoleAdmin})
	m.addCaller("member-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k2", UserID: "mia", Role: stepwell.RoleMember})
	m.addCaller("runner-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k3", UserID: "rob", Role: stepwell.RoleRunner, Tools: []string{"orders"}})
	m.addCaller("no-tools-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k4", UserID: "nil", Role: stepwell.RoleRunner, Tools: []string{}})
	m.addCaller("limited-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k6", UserID: "lim", Role: stepwell.RoleMember, Tools: []string{"orders"}})
	m.addCaller("user-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k8", UserID: testEndUser, Role: stepwell.RoleEndUser, EndUserID: testEndUser})
	m.addCaller("stranger-key", stepwell.Caller{OrgID: "acme", OrgName: "Acme", KeyID: "k7", UserID: "str", Role: "unknown"})
	m.addCaller("other-key", stepwell.Caller{OrgID: "other", OrgName: "Other", KeyID: "k5", UserID: "eve", Role: stepwell.RoleAdmin})
	yes := true
	step := stepwell.Step{ID: "fetch", Modify: &yes, Concurrency: 2, Config: stepwell.StepConfig{
		URL: "https://example.com/<<(s) => s.id>>", Method: "GET", Headers: map[string]json.RawMessage{"X-A": json.RawMessage(`"b"`)},
		Pagination: &stepwell.Pagination{Type: stepwell.PaginationOffset, PageSize: json.RawMessage(`"50"`)}}}
	for _, id := range []string{"orders", "refunds", "archived"} {
		t := &stepwell.Tool{ID: id, Name: "Tool " + id, Steps: []stepwell.Step{step}, Version: "1.0.0", Archived: id == "archived",
			InputSchema: json.RawMessage(`{"type":"object"}`), ResponseFilters: []stepwell.ResponseFilter{{Target: "KEYS", Pattern: "ssn", Action: "MASK"}},
			CreatedAt: memoryTime, UpdatedAt: memoryTime}
		m.tools["acme/"+id] = []*stepwell.Tool{t}
	}
	m.runs["acme/run-1"] = m.ended("run-1", "orders", stepwell.RunSuccess, `{"n":9007199254740993}`)
	m.runs["acme/run-1"].Files = []stepwell.File{{Key: "fetch.0.1.0", Name: "Übersicht \"1\".png", ContentType: "image/png", Size: 4}}
	m.runs["acme/run-2"] = m.ended("run-2", "refunds", stepwell.RunFailed, "")
	m.runs["acme/theirs"] = m.ended("theirs", "orders", stepwell.RunSuccess, "1")
	m.runs["acme/theirs"].Options.EndUserID = testEndUser
	running := m.running("run-3", "orders")
	running.Progress = &stepwell.Progress{Step: "fetch", Page: 3, Items: 150, Bytes: 4096, WaitingFor: &stepwell.Waiting{Reason: "Retry-After", Until: memoryTime}}
	m.runs["acme/run-3"] = running
	m.results["acme/run-1"] = &Results{StoredAt: memoryTime, Data: writes(`{"n":9007199254740993}`), Steps: []StepResults{
		{StepResult: stepwell.StepResult{StepID: "fetch", Success: true, Pages: 1, EndedBy: "shortPage"}, Write: writes(`[1,null]`)},
		{StepResult: stepwell.StepResult{StepID: "send", Error: "HTTP 500"}},
	}}
	m.keys = []*stepwell.APIKey{{ID: "k1", Name: "first", Role: stepwell.RoleAdmin, UserID: "ann", CreatedAt: memoryTime}, {ID: "k3", Role: stepwell.RoleRunner, UserID: "rob", Tools: []string{}, CreatedAt: memoryTime, ExpiresAt: memoryTime}}
	return m
}

func writes(s string) JSONWriter {
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func (m *memory) addCaller(key string, c stepwell.Caller) { m.callers[sha256.Sum256([]byte(key))] = &c }

func (m *memory) running(id, toolID string) *stepwell.Run {
	return &stepwell.Run{OrgID: "acme", ID: id, ToolID: toolID, Status: stepwell.RunRunning, Inputs: json.RawMessage(`{"a":null}`), DataSize: -1,
		RequestSource: "api", TraceID: "t", UserID: "ann", Mode: "prod", StartedAt: memoryTime, Tool: m.tools["acme/"+toolID][0],
		Options: stepwell.RunOptions{WebhookURL: "https://example.com/cb?token=s3cret&x=1", TimeoutMS: 1000}}
}

func (m *memory) ended(id, toolID string, status stepwell.RunStatus, data string) *stepwell.Run {
	r := m.running(id, toolID)
	r.Status, r.CompletedAt = status, memoryTime.Add(1500*time.Millisecond)
	if data == "" {
		r.Error = "Step 1 (fetch): HTTP 500"
		return r
	}
	r.Data, r.DataSize = json.RawMessage(data), int64(len(data))
	return r
}

type memoryKeys struct{ *memory }

func (m memoryKeys) Authenticate(_ context.Context, hash [32]byte) (*stepwell.Caller, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.callers[hash]; c != nil {
		return c, nil
	}
	return nil, stepwell.Errorf(stepwell.KindUnauthorized, "unauthorized", "API key unknown, expired or revoked")
}

func (m memoryKeys) List(context.Context, string, int, int) (Listed[*stepwell.APIKey], error) {
	return Listed[*stepwell.APIKey]{Items: m.keys, Total: len(m.keys)}, m.fail
}

func (m memoryKeys) Create(_ context.Context, org string, k *stepwell.APIKey) (*stepwell.APIKey, string, error) {
	created := *k
	created.ID, created.OrgID, created.CreatedAt = "k9", org, memoryTime
	if created.UserID == "" {
		created.UserID = created.ID
	}
	return &created, "sw_secret", m.fail
}

func (m memoryKeys) Update(_ context.Context, org, id string, change func(*stepwell.APIKey) error) (*stepwell.APIKey, error) {
	for _, k := range m.keys {
		if k.ID == id && org == "acme" {
			copied := *k
			if err := change(&copied); err != nil {
				return nil, err
			}
			if id == "k1" && copied.Role != stepwell.RoleAdmin {
				return nil, stepwell.Invalid("last_admin", "This is the last admin key: make another first")
			}
			return &copied, m.fail
		}
	}
	return nil, stepwell.NotFound("API key")
}

func (m memoryKeys) Delete(ctx context.Context, org, id string) error {
	_, err := m.Update(ctx, org, id, func(k *stepwell.APIKey) error { k.Role = stepwell.RoleRunner; return nil })
	return err
}

type memoryTools struct{ *memory }

func (m memoryTools) Create(_ context.Context, org string, t *stepwell.Tool) (*stepwell.Tool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.ID == "" {
		t.ID = "0b0b0b0b-0000-4000-8000-000000000000"
	}
	if t.ID == "full" {
		return nil, stepwell.Errorf(stepwell.KindConflict, "conflict", "No tool id is free: choose another")
	}
	t.Version, t.CreatedAt, t.UpdatedAt = "1.0.0", memoryTime, memoryTime
	m.tools[org+"/"+t.ID] = []*stepwell.Tool{t}
	return t, m.fail
}

func (m memoryTools) Get(_ context.Context, org, id string) (*stepwell.Tool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	if v := m.tools[org+"/"+id]; v != nil {
		return v[0], nil
	}
	return nil, fmt.Errorf("get: %w", stepwell.NotFound("Tool"))
}

func (m memoryTools) List(_ context.Context, org string, q ToolQuery) (Listed[*stepwell.Tool], error) {
	var l Listed[*stepwell.Tool]
	for _, id := range []string{"refunds", "orders", "archived"} {
		if t := m.tools[org+"/"+id]; t != nil && (q.Only == nil || slices.Contains(q.Only, id)) && (q.IncludeArchived || !t[0].Archived) {
			l.Items = append(l.Items, t[0])
		}
	}
	l.Total, l.More = len(l.Items)+1, true
	return l, m.fail
}

func (m memoryTools) Update(ctx context.Context, org, id string, change func(*stepwell.Tool) error) (*stepwell.Tool, error) {
	t, err := m.Get(ctx, org, id)
	if err != nil {
		return nil, err
	}
	copied := *t
	if err := change(&copied); err != nil {
		return nil, err
	}
	copied.Version = "1.1.0"
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tools[org+"/"+id] = append([]*stepwell.Tool{&copied}, m.tools[org+"/"+id]...)
	return &copied, nil
}

func (m memoryTools) Delete(_ context.Context, org, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tools, org+"/"+id)
	return m.fail
}

func (m memoryTools) Versions(_ context.Context, org, id string) ([]*stepwell.Tool, error) {
	return m.tools[org+"/"+id], m.fail
}

func (m memoryTools) Version(_ context.Context, org, id, version string) (*stepwell.Tool, error) {
	for _, t := range m.tools[org+"/"+id] {
		if t.Version == version {
			return t, nil
		}
	}
	return nil, stepwell.NotFound("Version")
}

func (m memoryTools) Restore(ctx context.Context, org, id, version string) (*stepwell.Tool, error) {
	return m.Version(ctx, org, id, version)
}

type memoryValidator struct{}

func (memoryValidator) ValidateTool(_ context.Context, t *stepwell.Tool) error {
	if len(t.Steps) == 0 && t.OutputTransform == "" {
		return stepwell.Invalid("invalid_tool", "A tool needs at least one step or an 'outputTransform'")
	}
	for i, s := range t.Steps {
		if s.ID == "" {
			return stepwell.Invalid("invalid_tool", "Step %d: missing 'id'", i+1)
		}
		if s.Config.URL == "" && !s.IsTransform() {
			return stepwell.Invalid("invalid_tool", "Step %d (%s): missing 'url'", i+1, s.ID)
		}
	}
	return nil
}

func (memoryValidator) ValidateInputs(_ context.Context, _ *stepwell.Tool, inputs json.RawMessage) (json.RawMessage, error) {
	if string(inputs) == `{"bad":1}` {
		return nil, stepwell.Invalid("invalid_inputs", "'inputs.bad' is not in the inputSchema")
	}
	return inputs, nil
}

type memoryRuns struct{ *memory }

func (m memoryRuns) Get(_ context.Context, org, id string) (*stepwell.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return nil, m.fail
	}
	if r := m.runs[org+"/"+id]; r != nil {
		copied := *r
		return &copied, nil
	}
	return nil, stepwell.NotFound("Run")
}

func (m memoryRuns) OpenFile(_ context.Context, org, run, key string) (*stepwell.File, io.ReadCloser, error) {
	if m.fail != nil {
		return nil, nil, m.fail
	}
	if r := m.runs[org+"/"+run]; r != nil {
		for _, f := range r.Files {
			if f.Key == key {
				return &f, io.NopCloser(strings.NewReader("\x89PNG")), nil
			}
		}
	}
	return nil, nil, stepwell.NotFound("File")
}

func (m memoryRuns) Watch(ctx context.Context, org, id string, visit func(*stepwell.Run) error) error {
	r, err := m.Get(ctx, org, id)
	if err != nil {
		return err
	}
	if err := visit(r); err != nil || r.Status.Final() {
		return err
	}
	ended := *r
	ended.Status, ended.Error, ended.CompletedAt = stepwell.RunAborted, "Run cancelled by user", memoryTime
	return visit(&ended)
}

func (m memoryRuns) List(_ context.Context, _ string, q RunQuery) (Listed[*stepwell.Run], error) {
	var l Listed[*stepwell.Run]
	for _, id := range []string{"run-3", "run-2", "run-1", "theirs"} {
		r := *m.runs["acme/"+id]
		r.Tool, r.Data, r.Progress = nil, nil, nil
		if (q.EndUserID == "" || q.EndUserID == r.Options.EndUserID) && (q.OnlyTools == nil || slices.Contains(q.OnlyTools, r.ToolID)) && (q.ToolID == "" || q.ToolID == r.ToolID) {
			l.Items = append(l.Items, &r)
		}
	}
	l.Total = len(l.Items)
	return l, m.fail
}

func (m memoryRuns) WriteData(ctx context.Context, w io.Writer, _ *stepwell.Run) error {
	return m.large(ctx, w)
}

func (m memoryRuns) Results(_ context.Context, org, id string) (*Results, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[org+"/"+id], m.fail
}

type memoryRunner struct{ *memory }

func (m memoryRunner) Start(_ context.Context, n NewRun) (*stepwell.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = n
	if m.fail != nil {
		return nil, m.fail
	}
	key := n.Caller.OrgID + "/" + n.ID
	if m.runs[key] != nil {
		return nil, stepwell.Errorf(stepwell.KindConflict, "run_exists", "A run with this runId exists already: choose another")
	}
	if n.Hook != nil && n.Hook.Key != nil {
		m.hooks[n.Caller.OrgID+"/"+n.Tool.ID+"/"+string(n.Hook.Key)] = n.ID
	}
	r := m.running(n.ID, n.Tool.ID)
	r.Inputs, r.Options, r.Mode, r.TraceID, r.RequestSource, r.Tool = n.Inputs, n.Options, n.Options.Mode, n.Options.TraceID, n.Options.RequestSource, nil
	m.runs[key] = r
	copied := *r
	return &copied, nil
}

func (m memoryRunner) HookRun(_ context.Context, org, tool string, key []byte) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hooks[org+"/"+tool+"/"+string(key)], m.fail
}

func (m memoryRunner) StartAndWait(ctx context.Context, n NewRun, limit time.Duration) (*stepwell.Run, error) {
	r, err := m.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(limit):
			return r, nil
		}
	}
	if m.finish != nil {
		r.Status, r.CompletedAt = stepwell.RunSuccess, memoryTime.Add(time.Second)
		m.finish(n, r)
	}
	return r, nil
}

func (m memoryRunner) Cancel(_ context.Context, org, id string) (*stepwell.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[org+"/"+id]
	if r.Status == stepwell.RunSuccess || r.Status == stepwell.RunFailed {
		return nil, stepwell.Invalid("run_finished", "The run has ended already: only a running run can be cancelled")
	}
	r.Status, r.Error, r.CompletedAt = stepwell.RunAborted, "Run cancelled by user", memoryTime
	return r, nil
}

// newTestAPI is an API over m, with options changed by change.
// testRing seals the links of these tests.
var testRing, _ = secret.ParseRing("test:" + secret.NewKey())

func newTestAPI(m *memory, change func(*Config)) *API {
	c := Config{Links: testRing, Keys: memoryKeys{m}, Tools: memoryTools{m}, Validator: memoryValidator{}, Runs: memoryRuns{m}, Runner: memoryRunner{m}, Deliveries: memoryDeliveries{m}, Systems: memorySystems{m}, EndUsers: memoryEndUsers{m}, Audit: memoryAudit{m}}
	c.Bulk = memoryBulk{m}
	c.States = &memoryStates{values: json.RawMessage(`{"n":1}`), seq: 7}
	if change != nil {
		change(&c)
	}
	return New(c)
}
