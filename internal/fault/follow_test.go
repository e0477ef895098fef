package fault_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/fault"
)

// links of a chain: in the long form as many as the interface's own measure, else few.
func links() int {
	if *walk {
		return 20
	}
	return 4
}

// repeated is a plan for each of n processes.
func repeated(plan string, n int) []string { return slices.Repeat([]string{plan}, n) }

// followed are the journeys of what follows a run. A chain loses a process at every link.
func followed() []journey {
	called := func(plans ...string) journey { return journey{plans: plans, shape: called} }
	chained := func(plan string) journey { return journey{plans: repeated(plan, links()-1), shape: chained} }
	return []journey{
		called(at(fault.FinishSaved, "kill", 1)),
		called(at(fault.FinishSaved, "lose", 1)),
		called(at(fault.FinishTold, "kill", 1)),
		called(at(fault.DeliverUnstarted, "kill", 1)),
		called(at(fault.DeliverStarted, "kill", 1)),
		called(at(fault.AttemptUnsent, "kill", 1)),
		called(at(fault.AttemptAnswered, "kill", 1), at(fault.AttemptAnswered, "kill", 1)),
		called(at(fault.AttemptRecorded, "kill", 1)),
		chained(at(fault.FinishSaved, "kill", 1)), // after the terminal commit
		chained(at(fault.FinishSaved, "lose", 1)),
		chained(at(fault.PageUnsaved, "kill", 2)),   // after the child's start
		chained(at(fault.ActivityEnded, "kill", 2)), // before the parent's end is known
	}
}

// receiver takes the callbacks of a trip.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	ids   []string // webhook-id of each call
	early string   // the first call that came before the commit
}

// receive starts a receiver, which looks at the run when it is called.
func (x *trip) receive() {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var got v1.Callback
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		status := ""
		if err == nil {
			status, err = x.status(req.Context(), got.RunID)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ids = append(r.ids, req.Header.Get("webhook-id"))
		if r.early == "" && (err != nil || status != got.Status || status == "running") {
			r.early = fmt.Sprintf("%s, when the run was %s (%v)", body, status, err)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	x.t.Cleanup(r.Close)
	x.receiver = r
}

// status reads the committed status of a run.
func (x *trip) status(ctx context.Context, run string) (status string, err error) {
	conn, err := pgx.Connect(ctx, x.lane.stack.DatabaseURL())
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT status FROM runs WHERE id = $1`, run).Scan(&status)
	return status, err
}

// webhook is the webhookUrl of the trip's run, empty without one.
func (x *trip) webhook() string {
	if x.receiver == nil {
		return ""
	}
	return x.receiver.URL
}

// saveChain saves the tools of a chain; the first has the key of the run as its id.
func (x *trip) saveChain() {
	x.t.Helper()
	name := func(i int) string {
		if i == 0 {
			return x.key
		}
		return fmt.Sprintf("%s-%d", x.key, i)
	}
	for i := range links() {
		def := v1.ToolCreate{ID: name(i), Steps: []v1.Step{{ID: "add", Config: v1.StepConfig{Type: "transform", TransformCode: "(s) => ({key: s.key, n: (s.n || 0) + 1, token: s.credentials.token})"}}}}
		if i < links()-1 {
			def.WebhookURL = "tool:" + name(i+1)
		}
		if _, err := x.api.CreateTool(x.t.Context(), def); err != nil {
			x.t.Fatal(err)
		}
	}
}

// chain gives the runs of the trip's chain as far as it has come; whole says that it has
// ended. Each run has one child at most.
func (x *trip) chain(ctx context.Context) (runs []*v1.Run, whole bool, err error) {
	for id := x.key; ; {
		run, err := x.api.GetRun(ctx, id)
		if err != nil {
			return runs, false, err
		}
		if runs = append(runs, run); run.Status != "success" {
			return runs, run.Status != "running", nil
		}
		next, err := x.api.ListRuns(ctx, client.Page{}, client.RunFilter{ParentRunID: id})
		if err != nil {
			return runs, false, err
		}
		if len(next.Data) > 1 {
			return runs, true, fmt.Errorf("%s has %d children", id, len(next.Data))
		}
		if len(next.Data) == 0 {
			return runs, true, nil
		}
		id = next.Data[0].RunID
	}
}

// follow waits until what follows the run has happened, or the process has died.
func (x *trip) follow(p *process) {
	x.t.Helper()
	err := eventually(x.t.Context(), 90*time.Second, func(ctx context.Context) (bool, error) {
		if p.ended() {
			return true, nil
		}
		if x.journey.shape == chained {
			_, whole, err := x.chain(ctx)
			return whole, err
		}
		all, err := x.api.Deliveries(ctx, x.key)
		return len(all) == 1 && all[0].Status == "delivered", err
	})
	if err != nil {
		x.t.Fatalf("what follows the run did not happen: %v\n%s", err, p.log)
	}
}

// checkCalled looks at the callback: made, with one id, and never too early.
func (x *trip) checkCalled() {
	x.t.Helper()
	x.receiver.mu.Lock()
	defer x.receiver.mu.Unlock()
	ids := slices.Compact(slices.Sorted(slices.Values(x.receiver.ids)))
	if len(ids) != 1 || ids[0] == "" || x.receiver.early != "" {
		x.t.Errorf("%d calls with the ids %q; early: %s", len(x.receiver.ids), ids, x.receiver.early)
	}
	x.t.Logf("called %d times", len(x.receiver.ids))
}

// checkChain looks at the chain: each link is one run, which did its work with the
// credentials of the first.
func (x *trip) checkChain() {
	x.t.Helper()
	runs, _, err := x.chain(x.t.Context())
	if err != nil || len(runs) != links() {
		x.t.Fatalf("the chain has %d runs (%v)", len(runs), err)
	}
	for i, run := range runs {
		if want := fmt.Sprintf(`{"key":%q,"n":%d,"token":"t-%s"}`, x.key, i+1, x.key); run.Status != "success" || string(run.Data) != want {
			x.t.Errorf("run %d is %s (%s) with %s", i+1, run.Status, run.Error, run.Data)
		}
	}
	conn := x.connect()
	defer conn.Close(x.t.Context())
	var made, secrets int
	err = conn.QueryRow(x.t.Context(), `SELECT (SELECT count(*) FROM runs WHERE starts_with(tool_id, $1)), (SELECT count(*) FROM run_credentials)`, x.key).Scan(&made, &secrets)
	if err != nil || made != links() || secrets != 0 {
		x.t.Errorf("%d runs were made, %d have credentials left (%v)", made, secrets, err)
	}
}

// follows reports whether the journey is about what follows a run.
func (j journey) follows() bool { return j.shape == called || j.shape == chained }

// lost reports whether a plan loses an answer instead of the process.
func lost(plan string) bool { return strings.Contains(plan, "lose") }
