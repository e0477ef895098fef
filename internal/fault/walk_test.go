package fault_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	temporal "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/demo"
	"stepwell/internal/fault"
	"stepwell/workflows"
)

var (
	walk  = flag.Bool("walk", false, "die at every passage of every point: minutes")
	lanes = flag.Int("lanes", 4, "stacks at a time")
	only  = flag.String("points", "", "with -walk: only points that match this expression")
)

// pages of the tool's pull, items of its loop.
const (
	pages = 3
	items = 2
)

// shape is what happens to the run of a case.
type shape int

const (
	plain     shape = iota // it is started and waited for
	cancelled              // it is cancelled in the middle of a slow request
	called                 // its end is reported to a receiver
	chained                // other runs follow it
)

// journey is one case: the faults of one process after the other, the last of which has
// none and ends the work.
type journey struct {
	plans []string
	shape shape
	// unknown says that the POST may have been cut off, so that the run may end as failed
	// with `outcome unknown`.
	unknown bool
}

func (j journey) String() string { return strings.Join(j.plans, " then ") }

func at(name fault.Name, action string, n int) string {
	return fmt.Sprintf("%s:%s:%d", name, action, n)
}

// chosen are the journeys of the short form: one for each kind of boundary.
func chosen() []journey {
	return []journey{
		{plans: []string{at(fault.RunRecorded, "kill", 1)}}, // the longest first
		{plans: []string{at(fault.RunStarted, "kill", 1)}},
		{plans: []string{at(fault.PageSaved, "kill", 2)}},
		{plans: []string{at(fault.PageSaved, "lose", 2) + "," + at(fault.FinishSaved, "lose", 1)}},
		{plans: []string{at(fault.RequestDone, "kill", 9)}, unknown: true}, // the POST's second
		{plans: []string{at(fault.ClaimFreed, "kill", 1)}},
		{plans: []string{at(fault.FinishSaved, "kill", 1)}},
		{plans: []string{at(fault.CancelSaved, "kill", 1), at(fault.SweptCancelled, "kill", 1)}, shape: cancelled},
		{plans: []string{at(fault.AttemptAnswered, "kill", 1)}, shape: called},
		{plans: repeated(at(fault.FinishSaved, "kill", 1), 2), shape: chained},
	}
}

// everyPoint are the points of a run that is not cancelled, and whether a death there may
// leave the POST's outcome unknown.
var everyPoint = []struct {
	name    fault.Name
	unknown bool
}{
	{fault.RunUnrecorded, false}, {fault.RunRecorded, false}, {fault.RunStarted, false}, {fault.RunMarked, true},
	{fault.SelectUnsaved, false}, {fault.SelectSaved, false},
	{fault.ClaimUntaken, false}, {fault.ClaimTaken, true}, {fault.RequestUnsent, true}, {fault.RequestDone, true},
	{fault.ClaimUnfreed, true}, {fault.ClaimFreed, false}, {fault.WaitRecorded, false},
	{fault.PageUnsaved, true}, {fault.PageSaved, false}, {fault.ActivityEnded, false},
	{fault.FinishUnsaved, false}, {fault.FinishSaved, false}, {fault.FinishTold, false},
}

// otherJourneys need more than one death, or a cancel.
func otherJourneys() []journey {
	return append(followed(), []journey{
		{plans: []string{at(fault.RunRecorded, "kill", 1), at(fault.SweptRecorded, "kill", 1)}},
		{plans: []string{at(fault.RunRecorded, "kill", 1), at(fault.SweptStarted, "kill", 1)}},
		{plans: []string{at(fault.CancelUnsaved, "kill", 1)}, shape: cancelled},
		{plans: []string{at(fault.CancelSaved, "kill", 1), at(fault.SweptCancelled, "kill", 1)}, shape: cancelled},
		{plans: []string{at(fault.CancelStopped, "kill", 1)}, shape: cancelled},
		{plans: []string{at(fault.CancelSent, "kill", 1)}, shape: cancelled},
		{plans: []string{at(fault.RunRecorded, "lose", 1)}},
		{plans: []string{at(fault.CancelSaved, "lose", 1)}, shape: cancelled},
		{plans: []string{at(fault.ClaimTaken, "lose", 1) + "," + at(fault.ClaimFreed, "lose", 1) + "," + at(fault.WaitRecorded, "lose", 1)}},
		{plans: []string{at(fault.ClaimTaken, "lose", 2) + "," + at(fault.WaitRecorded, "lose", 2)}},
		{plans: []string{at(fault.SelectSaved, "lose", 1)}},
		{plans: []string{at(fault.PageSaved, "lose", 1)}},
		{plans: []string{at(fault.FinishSaved, "lose", 1)}},
		{plans: []string{at(fault.PageUnsaved, "6s", 2)}}, // a stall longer than a workflow task
		{plans: []string{at(fault.PageSaved, "kill", 1), at(fault.PageSaved, "kill", 1), at(fault.FinishSaved, "kill", 1)}},
	}...)
}

// TestWalk dies at chosen points; with -walk at every passage of every point.
func TestWalk(t *testing.T) {
	upstream, err := demo.NewServer(demo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := upstream.Close(); err != nil {
			t.Error(err)
		}
	})
	if !*walk && *only == "" {
		travel(t, upstream, chosen())
		return
	}
	wanted := regexp.MustCompile(*only)
	var rest []journey
	for _, j := range otherJourneys() {
		if wanted.MatchString(j.String()) {
			rest = append(rest, j)
		}
	}
	t.Run("several", func(t *testing.T) { travel(t, upstream, rest) })
	// How often a point is passed shows when a process survives: then the next point's turn.
	points := everyPoint
	inLanes(t, func(t *testing.T, l *lane, next func() int) {
		for i := next(); i < len(points); i = next() {
			p := points[i]
			for n, reached := 1, wanted.MatchString(string(p.name)); reached; n++ {
				j := journey{plans: []string{at(p.name, "kill", n)}, unknown: p.unknown}
				t.Run(j.String(), func(t *testing.T) { reached = newTrip(t, l, upstream, j).run() })
			}
		}
	})
}

// travel makes journeys in some lanes.
func travel(t *testing.T, upstream *demo.Server, journeys []journey) {
	inLanes(t, func(t *testing.T, l *lane, next func() int) {
		for i := next(); i < len(journeys); i = next() {
			j := journeys[i]
			t.Run(j.String(), func(t *testing.T) {
				if died := newTrip(t, l, upstream, j).run(); !died && !lost(j.plans[0]) && !strings.Contains(j.plans[0], "s:") {
					t.Error("the process did not die: the point was not reached")
				}
			})
		}
	})
}

// inLanes runs work in several lanes at once; next gives the numbers from 0.
func inLanes(t *testing.T, work func(t *testing.T, l *lane, next func() int)) {
	numbers := make(chan int, 1000)
	for i := range cap(numbers) {
		numbers <- i
	}
	next := func() int { return <-numbers }
	for i := range *lanes {
		t.Run(fmt.Sprintf("lane %d", i+1), func(t *testing.T) {
			t.Parallel()
			work(t, newLane(t), next)
		})
	}
}

// TestPointsAreUsed finds every point in the code, once as a crash point, and in a
// journey.
func TestPointsAreUsed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("points.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, pattern := range []string{"../../activities/*.go", "../../service/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(source)
		}
	}
	var plans strings.Builder
	for _, p := range everyPoint {
		fmt.Fprintln(&plans, p.name+":")
	}
	for _, j := range otherJourneys() {
		fmt.Fprintln(&plans, j)
	}
	points := regexp.MustCompile(`(?m)^\s(\w+)\s+Name = "([a-z-]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(points) < 20 {
		t.Fatalf("only %d points were found", len(points))
	}
	for _, p := range points {
		if n := strings.Count(code.String(), "fault.Point(fault."+p[1]+")"); n == 0 {
			t.Errorf("%s is nowhere in the code", p[1])
		}
		if !strings.Contains(plans.String(), p[2]+":") {
			t.Errorf("no journey dies at %s", p[2])
		}
	}
}

// tool is the tool of a journey: a pull, a loop, a request that is refused once, a POST
// that is refused once, a transform. A run counts at the upstream under its key.
func tool(upstream, id string, shape shape) v1.ToolCreate {
	request := func(id, method, path string) v1.Step {
		return v1.Step{ID: id, Config: v1.StepConfig{Type: "request", Method: method, URL: upstream + path,
			Headers: map[string]json.RawMessage{"Authorization": json.RawMessage(`"Bearer <<(s) => s.credentials.token>>"`)}}}
	}
	if shape == cancelled {
		return v1.ToolCreate{ID: id, Steps: []v1.Step{
			request("quick", "GET", "/orders?limit=1&pages=1&run=<<key>>-quick"),
			request("slow", "GET", "/reports?delay=20s&run=<<key>>-slow"),
			request("never", "GET", "/orders?limit=1&run=<<key>>-never"),
		}}
	}
	list := request("list", "GET", fmt.Sprintf("/orders?limit=2&pages=%d&run=<<key>>-list", pages))
	list.Config.QueryParams = map[string]json.RawMessage{"cursor": json.RawMessage(`"<<cursor>>"`)}
	list.Config.Pagination = &v1.Pagination{Type: "cursorBased"}
	each := request("each", "GET", "/orders/<<(s) => s.currentItem.id>>?run=<<key>>-<<(s) => s.currentItem.id>>")
	each.DataSelector = fmt.Sprintf("(s) => s.list.data.data.slice(0, %d)", items)
	create := request("create", "POST", "/orders?fail=1&failStatus=429&retryAfter=1&run=<<key>>-create")
	create.Config.Body = `{"customerId": <<(s) => JSON.stringify(s.list.data.data[0].customerId)>>, "product": "walk", "quantity": 1, "totalCents": 1}`
	return v1.ToolCreate{ID: id, Steps: []v1.Step{
		list, each,
		request("flaky", "GET", "/customers?limit=1&fail=1&failStatus=503&retryAfter=1&run=<<key>>-flaky"),
		create,
		{ID: "shape", Config: v1.StepConfig{Type: "transform",
			TransformCode: `(s) => ({ids: s.list.data.data.map((o) => o.id), each: s.each.map((e) => e.data.id), made: s.create.data.product})`}},
	}}
}

// trip is a journey on its way.
type trip struct {
	t        *testing.T
	lane     *lane
	upstream *demo.Server
	journey  journey
	key      string // of the run, and at the upstream
	api      *client.Client
	died     bool
	receiver *receiver // of callbacks, nil without one
}

func newTrip(t *testing.T, l *lane, upstream *demo.Server, j journey) *trip {
	return &trip{t: t, lane: l, upstream: upstream, journey: j, key: strings.ToLower(fmt.Sprintf("run-%d", time.Now().UnixNano()))}
}

// run makes the journey and reports whether the first process died at its fault.
func (x *trip) run() bool {
	if x.journey.shape == called {
		x.receive()
	}
	for i, plan := range x.journey.plans {
		p := x.lane.start(x.t, plan)
		if p == nil {
			x.died = true // before it served: the sweeper's points
			continue
		}
		x.api = client.New(p.base, apiKey, client.WithRetries(0, 0))
		if i == 0 {
			x.save()
		}
		x.push(p)
		died := p.ended()
		p.kill()
		if i == 0 {
			x.died = died
		}
		if !died {
			break
		}
	}
	p := x.lane.start(x.t, "")
	x.api = client.New(p.base, apiKey)
	x.push(p)
	x.check()
	if x.t.Failed() {
		x.t.Logf("the last process logged:\n%s", p.log)
	}
	p.kill()
	return x.died
}

// save saves the tool. Its id is the run's.
func (x *trip) save() {
	x.t.Helper()
	if x.journey.follows() {
		x.saveChain()
		return
	}
	def := tool(x.upstream.URL(), x.key, x.journey.shape)
	if _, err := x.api.CreateTool(x.t.Context(), def); err != nil {
		x.t.Fatal(err)
	}
}

// push does what a caller does who does not give up: he starts the run unless it is
// there, cancels it when he wants that, and waits for its end or the process's.
func (x *trip) push(p *process) {
	x.t.Helper()
	ctx := x.t.Context()
	asked := false
	err := eventually(ctx, 90*time.Second, func(ctx context.Context) (bool, error) {
		if p.ended() {
			return true, nil
		}
		run, err := x.api.GetRun(ctx, x.key)
		switch {
		case client.Status(err) == http.StatusNotFound:
			_, err = x.api.Run(ctx, x.key, v1.RunRequest{RunID: x.key, Options: &v1.RunOptions{Async: true, WebhookURL: x.webhook()},
				Inputs: json.RawMessage(`{"key":"` + x.key + `"}`), Credentials: json.RawMessage(`{"token":"t-` + x.key + `"}`)})
			return false, err
		case err != nil:
			return false, err
		case run.Status != "running":
			return x.settled(p), nil
		case x.journey.shape == cancelled && !asked && x.upstream.Hits(demo.PageKey{Run: x.key + "-slow", Route: "/reports", Page: 1}) > 0:
			asked = true
			_, err = x.api.Cancel(ctx, x.key)
			return false, err
		}
		return false, nil
	})
	if err != nil {
		run, getErr := x.api.GetRun(ctx, x.key)
		x.t.Fatalf("the run did not end: %v; it is %+v (%v)\n%s", err, run, getErr, p.log)
	}
}

// settled gives a process whose run has ended a moment to die at a point behind the end.
func (x *trip) settled(p *process) bool {
	limit := 1500 * time.Millisecond
	if x.journey.shape == cancelled {
		limit = 5 * time.Second // a turn of the sweeper
	}
	if x.journey.follows() {
		x.follow(p)
	}
	last := len(x.journey.plans) > 0 && p.cmd.Env != nil && planOf(p) == ""
	if !last {
		p.waitDeath(limit)
	}
	return true
}

func planOf(p *process) string {
	for _, entry := range p.cmd.Env {
		if plan, ok := strings.CutPrefix(entry, fault.Variable+"="); ok {
			return plan
		}
	}
	return ""
}

// check looks at everything that must hold when the run has ended.
func (x *trip) check() {
	x.t.Helper()
	run, err := x.api.GetRun(x.t.Context(), x.key)
	if err != nil {
		x.t.Fatal(err)
	}
	x.closed()
	again, err := x.api.GetRun(x.t.Context(), x.key)
	if err != nil || again.Status != run.Status || again.Error != run.Error || again.Metadata.CompletedAt != run.Metadata.CompletedAt {
		x.t.Errorf("the run was %s (%s), and then %s (%s), %v", run.Status, run.Error, again.Status, again.Error, err)
	}
	x.rows(run.Status)
	switch x.journey.shape {
	case called:
		x.checkCalled()
		return
	case chained:
		x.checkChain()
		return
	}
	if x.journey.shape == cancelled {
		if run.Status != "aborted" || run.Error != "Run cancelled by user" {
			x.t.Errorf("the cancelled run is %s: %s", run.Status, run.Error)
		}
		x.asked("quick", "/orders", 1, 2)
		x.asked("never", "/orders", 1, 0)
		most := 1
		if strings.HasPrefix(x.journey.plans[0], string(fault.CancelUnsaved)) {
			most = 2
		}
		x.asked("slow", "/reports", 1, most)
		return
	}
	for page := 1; page <= pages; page++ {
		x.asked("list", "/orders", page, 2)
	}
	// Each of the two is refused the first time and, asked again after a death, the third.
	x.asked("flaky", "/customers", 1, 4)
	made := 0
	for _, start := range x.upstream.Starts(x.key + "-create") {
		if start.Status != http.StatusTooManyRequests {
			made++
		}
	}
	switch {
	case run.Status == "success" && made == 1:
		x.data(run)
	case run.Status == "failed" && made <= 1 && x.journey.unknown && strings.Contains(run.Error, "outcome unknown"):
	default:
		x.t.Errorf("the run is %s (%s), and the order was made %d times", run.Status, run.Error, made)
	}
}

// asked checks how often a page was asked for.
func (x *trip) asked(step, route string, page, most int) {
	x.t.Helper()
	if n := x.upstream.Hits(demo.PageKey{Run: x.key + "-" + step, Route: route, Page: page}); n > most {
		x.t.Errorf("page %d of %s was asked for %d times, at most %d are right", page, step, n, most)
	}
}

// data checks the result of a success: every record once, in order.
func (x *trip) data(run *v1.Run) {
	x.t.Helper()
	var got struct {
		IDs, Each []string
		Made      string
	}
	if err := json.Unmarshal(run.Data, &got); err != nil {
		x.t.Fatal(err)
	}
	var want []string
	for i := range 2 * pages {
		want = append(want, x.upstream.Order(i).ID)
	}
	if fmt.Sprint(got.IDs) != fmt.Sprint(want) || fmt.Sprint(got.Each) != fmt.Sprint(want[:items]) || got.Made != "walk" {
		x.t.Errorf("the run's data is %s, want %v", run.Data, want)
	}
}

// closed waits until the run's workflow has ended too: nothing may go on behind a run.
func (x *trip) closed() {
	x.t.Helper()
	c, err := temporal.Dial(temporal.Options{HostPort: x.lane.stack.TemporalAddress(), Namespace: workflows.Namespace, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		x.t.Fatal(err)
	}
	defer c.Close()
	flows := workflows.NewClient(c, workflows.DefaultSettings())
	err = eventually(x.t.Context(), 2*time.Minute, func(ctx context.Context) (bool, error) {
		state, err := flows.RunState(ctx, x.org(), x.key)
		return err == nil && !state.Open, err
	})
	if err != nil {
		x.t.Error("the run's workflow is still open: ", err)
	}
}

// connect opens the lane's database.
func (x *trip) connect() *pgx.Conn {
	x.t.Helper()
	conn, err := pgx.Connect(x.t.Context(), x.lane.stack.DatabaseURL())
	if err != nil {
		x.t.Fatal(err)
	}
	return conn
}

func (x *trip) org() string {
	x.t.Helper()
	conn := x.connect()
	defer conn.Close(x.t.Context())
	var org string
	if err := conn.QueryRow(x.t.Context(), `SELECT org_id FROM runs WHERE id = $1`, x.key).Scan(&org); err != nil {
		x.t.Fatal(err)
	}
	return org
}

// rows looks for rows that should not be there.
func (x *trip) rows(status string) {
	x.t.Helper()
	conn := x.connect()
	defer conn.Close(x.t.Context())
	for what, sql := range map[string]string{
		"credentials":    `SELECT count(*) FROM run_credentials WHERE run_id = $1`,
		"waits":          `SELECT count(*) FROM waits WHERE run_id = $1`,
		"claims":         `SELECT count(*) FROM claims WHERE run_id = $1`,
		"other statuses": `SELECT count(*) FROM runs WHERE id = $1 AND (status <> '` + status + `' OR completed_at IS NULL)`,
		"late pages":     `SELECT count(*) FROM pages p JOIN runs r ON r.id = p.run_id WHERE r.id = $1 AND p.created_at > r.completed_at`,
	} {
		var n int
		if err := conn.QueryRow(x.t.Context(), sql, x.key).Scan(&n); err != nil || n != 0 {
			x.t.Errorf("the ended run has %d %s (%v)", n, what, err)
		}
	}
}
