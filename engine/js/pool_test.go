package js

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"stepwell/engine"
)

// pids gives the children that wait for work in a class.
func (c *class) pids() (pids []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.free {
		if s.process != nil {
			pids = append(pids, s.process.cmd.Process.Pid)
		}
	}
	return pids
}

func request(timeout time.Duration, sources ...string) engine.EvalRequest {
	req := engine.EvalRequest{
		Args:   map[string]engine.Scope{inputName: engine.MapScope{"a": json.RawMessage("1"), "deep": json.RawMessage(`{"list":[1]}`)}},
		Limits: engine.Limits{Timeout: timeout},
	}
	for _, s := range sources {
		req.Expressions = append(req.Expressions, engine.Expression{Source: s, Params: []string{inputName}})
	}
	return req
}

func TestExpressionsSeeNoChangesOfEachOther(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	results, err := p.Evaluate(context.Background(), request(0,
		"(s) => { s.deep.list.push(2); leaked = 1; Array.prototype.map = null; return s.deep.list.length }",
		"(s) => [s.deep.list.length, typeof leaked, typeof [].map]",
		"(s) => s.deep.list.length",
	))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2", `[1,"undefined","function"]`, "1"} {
		if string(results[i].Value) != want {
			t.Errorf("expression %d gave %s, %v; want %s", i, results[i].Value, results[i].Err, want)
		}
	}
}

// TestParallel gives every caller its own answer.
func TestParallel(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 3})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				want := strconv.Itoa(i*1000 + j)
				if r := one(t, p, "(s) => s.n", map[string]string{"n": want}); string(r.Value) != want {
					t.Errorf("gave %s, %v; want %s", r.Value, r.Err, want)
				}
			}
		})
	}
	all.Wait()
}

func TestLimitEndsOnlyItsExpression(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	results, err := p.Evaluate(context.Background(), request(300*time.Millisecond, "a", "a b", "(s) => { for (;;) {} }", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if string(results[0].Value) != "1" {
		t.Errorf("the first gave %s, %v", results[0].Value, results[0].Err)
	}
	if e := results[1].Err; e == nil || e.Limit || !strings.HasPrefix(e.Message, "SyntaxError") {
		t.Errorf("the second gave %v", e)
	}
	if e := results[2].Err; e == nil || !e.Limit || e.Message != "took longer than 300ms: the limit of an expression" {
		t.Errorf("the third gave %v", e)
	}
	if e := results[3].Err; e == nil || !strings.Contains(e.Message, "was not run") {
		t.Errorf("the fourth gave %v", e)
	}
}

// TestTimeCountsTheEvaluation lets many short evaluations wait for one child.
func TestTimeCountsTheEvaluation(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			source := "(s) => { const end = Date.now() + 400; while (Date.now() < end); return " + strconv.Itoa(i) + " }"
			results, err := p.Evaluate(context.Background(), request(time.Second, source))
			if err != nil || string(results[0].Value) != strconv.Itoa(i) {
				t.Errorf("gave %s, %v, %v", results[0].Value, results[0].Err, err)
			}
		})
	}
	all.Wait()
}

// TestEveryResultHasItsOwnTime runs more than one limit's time in one call.
func TestEveryResultHasItsOwnTime(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	wait := "(s) => { const end = Date.now() + 300; while (Date.now() < end); return 1 }"
	results, err := p.Evaluate(context.Background(), request(time.Second, wait, wait, wait, wait, wait))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if r.Err != nil {
			t.Errorf("expression %d: %v", i, r.Err)
		}
	}
}

func TestKeysTakeTurns(t *testing.T) {
	t.Parallel()
	c := newClass(DefaultMemory, 1)
	first, err := c.take(context.Background(), "loop")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	var all sync.WaitGroup
	waitFor := func(key string, waiting int) {
		all.Go(func() {
			s, err := c.take(context.Background(), key)
			if err != nil {
				t.Error(err)
				return
			}
			got <- key
			c.give(s)
		})
		for deadline := time.Now().Add(5 * time.Second); ; {
			c.mu.Lock()
			n := 0
			for _, list := range c.waiting {
				n += len(list)
			}
			c.mu.Unlock()
			if n == waiting {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d wait, want %d", n, waiting)
			}
		}
	}
	for i := range 5 {
		waitFor("loop", i+1)
	}
	waitFor("other", 6)
	c.give(first)
	order := ""
	for range 6 {
		order += (<-got)[:1]
	}
	all.Wait()
	if order != "lollll" {
		t.Errorf("the order is %s: other code must wait for one turn only", order)
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	c := newClass(DefaultMemory, 1)
	s, err := c.take(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.take(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	c.give(s)
	if s, err = c.take(context.Background(), "a"); err != nil {
		t.Errorf("the slot is lost: %v", err)
	}
	c.close()
	if _, err := c.take(context.Background(), "a"); !errors.Is(err, errClosed) {
		t.Errorf("error is %v", err)
	}
	c.give(s)
}

func TestCancelledCall(t *testing.T) {
	t.Parallel()
	reasons := make(chan string, 1)
	p := newTestPool(t, Options{Size: 1, OnRestart: func(reason string) { reasons <- reason }})
	one(t, p, "a", map[string]string{"a": "1"})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := p.Evaluate(ctx, request(30*time.Second, "(s) => { for (;;) {} }")); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	if reason := <-reasons; reason != "cancelled" {
		t.Errorf("reason is %s", reason)
	}
	if r := one(t, p, "a", map[string]string{"a": "1"}); string(r.Value) != "1" {
		t.Errorf("afterwards: %v", r.Err)
	}
}

// TestKilledFromOutside kills the children while they work: nobody may notice.
func TestKilledFromOutside(t *testing.T) {
	t.Parallel()
	var restarts atomic.Int64
	p := newTestPool(t, Options{Size: 1, OnRestart: func(string) { restarts.Add(1) }})
	one(t, p, "a", map[string]string{"a": "1"})
	for _, pid := range p.small.pids() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if r := one(t, p, "a", map[string]string{"a": "1"}); string(r.Value) != "1" {
		t.Errorf("after an idle child was killed: %v", r.Err)
	}

	pid := p.small.pids()[0]
	done := make(chan engine.EvalResult)
	go func() {
		done <- one(t, p, "(s) => { const end = Date.now() + 300; while (Date.now() < end); return 7 }", nil)
	}()
	waitBusy(t, pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := <-done; string(r.Value) != "7" {
		t.Errorf("after a working child was killed: %v", r.Err)
	}
	if restarts.Load() == 0 {
		t.Error("nothing was restarted")
	}
}

// waitBusy waits until a process has used some processor time for an evaluation.
func waitBusy(t *testing.T, pid int) {
	t.Helper()
	used := func() int {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		fields := strings.Fields(string(stat))
		n, err := strconv.Atoi(fields[13])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	start := used()
	for deadline := time.Now().Add(5 * time.Second); used() < start+3; {
		if time.Now().After(deadline) {
			t.Fatal("the child does nothing")
		}
	}
}

func TestChildIsConfined(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	one(t, p, "a", map[string]string{"a": "1"})
	proc := "/proc/" + strconv.Itoa(p.small.pids()[0])
	env, err := os.ReadFile(proc + "/environ")
	if err != nil || len(env) != 0 {
		t.Errorf("the environment is %q (%v), want none", env, err)
	}
	title, err := os.ReadFile(proc + "/cmdline")
	if err != nil || !strings.HasPrefix(string(title), "evaluator\x00") {
		t.Errorf("the title is %q (%v)", title, err)
	}
	limits, err := os.ReadFile(proc + "/limits")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Max open files": "16", "Max core file size": "0"} {
		for line := range strings.Lines(string(limits)) {
			if rest, ok := strings.CutPrefix(line, name); ok && strings.Fields(rest)[0] != want {
				t.Errorf("%s is %s, want %s", name, strings.Fields(rest)[0], want)
			}
		}
	}
}

func TestWornChildIsReplaced(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector takes a multiple of the memory, within the same limit")
	}
	reasons := make(chan string, 10)
	p := newTestPool(t, Options{Size: 1, OnRestart: func(reason string) { reasons <- reason }})
	results, err := p.Evaluate(context.Background(), request(20*time.Second, "(s) => 'x'.repeat(140e6).length"))
	if err != nil || string(results[0].Value) != "140000000" {
		t.Fatalf("gave %s, %v, %v", results[0].Value, results[0].Err, err)
	}
	select {
	case reason := <-reasons:
		if reason != "worn" {
			t.Errorf("reason is %s", reason)
		}
	default:
		t.Error("the child is still there")
	}
}

func TestTransformsHaveTheirOwnChildren(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	ctx, cancel := context.WithCancel(context.Background())
	blocked := make(chan error)
	go func() {
		req := request(time.Minute, "(s) => { for (;;) {} }")
		req.Limits.Memory = DefaultTransformMemory
		_, err := p.Evaluate(ctx, req)
		blocked <- err
	}()
	if r := one(t, p, "a", map[string]string{"a": "1"}); string(r.Value) != "1" {
		t.Errorf("gave %v", r.Err)
	}
	cancel()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Errorf("the transform ended with %v", err)
	}
}

// lazyScope counts what is read of it.
type lazyScope struct {
	engine.MapScope
	mu   sync.Mutex
	read []string
}

func (l *lazyScope) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = append(l.read, key)
	if key == "broken" {
		return nil, false, errors.New("the store is away")
	}
	return l.MapScope.Get(ctx, key)
}

func TestOnlyReachedKeysAreRead(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1})
	scope := &lazyScope{MapScope: engine.MapScope{"a": json.RawMessage("1"), "b": json.RawMessage("2")}}
	req := request(0, "(s) => s.a", "(s) => s.a + 1")
	req.Args[inputName] = scope
	if _, err := p.Evaluate(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	if strings.Join(scope.read, " ") != "a" {
		t.Errorf("read %q, want a once", scope.read)
	}
	req.Expressions[1].Source = "(s) => s.broken"
	if _, err := p.Evaluate(context.Background(), req); err == nil || !strings.Contains(err.Error(), "sourceData.broken: the store is away") {
		t.Errorf("error is %v", err)
	}
}

func TestLargeData(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1, Memory: 128 << 20})
	run := func(source, big string) engine.EvalResult {
		req := request(20*time.Second, source)
		req.Args[inputName] = engine.MapScope{"big": json.RawMessage(big)}
		results, err := p.Evaluate(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	const n = 2 << 20
	if r := run("(s) => s.big + s.big.length", `"`+strings.Repeat("x", n)+`"`); len(r.Value) != n+len(strconv.Itoa(n))+2 {
		t.Errorf("gave %d bytes, %v", len(r.Value), r.Err)
	}
	huge := `"` + strings.Repeat("x", 65<<20) + `"`
	if r := run("(s) => s.big.length", huge); r.Err == nil || r.Err.Message != "needed more memory than 128 MiB: the limit of an expression" {
		t.Errorf("gave %.20s, %v; want a limit", r.Value, r.Err)
	}
	if r := run("(s) => s.big.next.length", `{"next":"x","other":`+huge+`}`); string(r.Value) != "1" {
		t.Errorf("gave %.20s, %v: the large part is not reached", r.Value, r.Err)
	}
}

func TestSourceLimit(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1, MaxSource: 100})
	errs, err := p.Check(context.Background(), []engine.Expression{
		{Source: "1" + strings.Repeat(" ", 99), Params: []string{inputName}},
		{Source: "1" + strings.Repeat(" ", 100), Params: []string{inputName}},
	})
	if err != nil || errs[0] != nil || errs[1] == nil || !errs[1].Limit {
		t.Errorf("gave %v, %v", errs, err)
	}
}

func TestClosedPool(t *testing.T) {
	t.Parallel()
	p, err := NewPool(Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	one(t, p, "a", map[string]string{"a": "1"})
	pid := p.small.pids()[0]
	p.Close()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the child is still there: %v", err)
	}
	if _, err := p.Evaluate(context.Background(), request(0, "(s) => s.a + 2")); !errors.Is(err, errClosed) {
		t.Errorf("error is %v", err)
	}
}

func TestNoExecutable(t *testing.T) {
	t.Parallel()
	p := newTestPool(t, Options{Size: 1, Executable: "/nonexistent"})
	for range 3 {
		if _, err := p.Evaluate(context.Background(), request(0, "a")); err == nil {
			t.Error("no error")
		}
	}
}
