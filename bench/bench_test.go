package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"stepwell/engine/js"
	"stepwell/internal/devstack/stacktest"
)

func TestMain(m *testing.M) {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	if len(os.Args) == 2 && os.Args[1] == upstreamArgument {
		exit(serveUpstream(os.Stdin, os.Stdout))
	}
	os.Exit(stacktest.Main(m))
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{5, 1, 100}, 5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		figure     figure
		ok, double bool
	}{
		{"below an upper bound", newFigure("", "", []float64{1.4}).against(1.5, false), true, true},
		{"a little above", newFigure("", "", []float64{1.6}).against(1.5, false), false, true},
		{"far above", newFigure("", "", []float64{3.1}).against(1.5, false), false, false},
		{"above a lower bound", newFigure("", "", []float64{0.8}).against(0.7, true), true, true},
		{"a little below", newFigure("", "", []float64{0.6}).against(0.7, true), false, true},
		{"far below", newFigure("", "", []float64{0.3}).against(0.7, true), false, false},
		{"not measured", newFigure("", "", nil).against(1, false), false, false},
	} {
		if *c.figure.OK != c.ok || c.figure.within(2) != c.double {
			t.Errorf("%s: ok %t, within twice the target %t", c.name, *c.figure.OK, c.figure.within(2))
		}
	}
}

// A time alone must not fail the quick look: machines differ.
func TestCheckLeavesTimesOut(t *testing.T) {
	t.Parallel()
	slow := newFigure("a page", "ms", []float64{9}).against(1.5, false)
	slow.Time = true
	r := report{Targets: []figure{slow}}
	if err := r.check(2); err != nil {
		t.Error("a time failed the check:", err)
	}
	r.Targets = append(r.Targets, newFigure("a ratio", "×", []float64{9}).against(1.5, false))
	if err := r.check(2); err == nil || !strings.Contains(err.Error(), "a ratio") {
		t.Errorf("a ratio of 9 passed a target of 1.5: %v", err)
	}
	if err := r.check(0); err != nil {
		t.Error("factor 0 failed:", err)
	}
}

func TestReportShowsWhatWasMissed(t *testing.T) {
	t.Parallel()
	p := planFor(options{short: true})
	r := newReport(p, &results{values: map[string][]float64{
		oneStepMS: {6, 8}, rawLocalMS: {5, 4}, oneStepRate: {100, 100}, rawLocalRate: {200, 200}, pageMS: {1, 1},
	}, memory: []memoryGrowth{{Begin: 40, End: 50, Peak: 60, Evaluators: []float64{42}}}}, time.Second)
	var out bytes.Buffer
	r.write(&out)
	for _, want := range []string{"one step / raw local  ", "1.60", "MISSED", "ok", "evaluators, each: 42.0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
	path := t.TempDir() + "/figures.json"
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte(`"target": 0.7`)) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestGrowth(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	g := growth([]memorySample{{at(0), 10}, {at(1), 20}, {at(2), 90}, {at(3), 30}, {at(4), 95}}, at(1), at(3))
	if g.Begin != 20 || g.End != 30 || g.Peak != 90 {
		t.Errorf("growth is %+v", g)
	}
}

func TestPulled(t *testing.T) {
	t.Parallel()
	p := &pulled{began: time.Now()}
	at := p.began
	for i := range 10 {
		took := 10 * time.Millisecond
		if i >= 5 {
			took *= 2
		}
		at = at.Add(took)
		p.stored = append(p.stored, at)
	}
	p.ended = at
	if got := p.perPage(); got != 15 {
		t.Errorf("a page takes %v ms", got)
	}
	if got := p.slowdown(4); got != 2 {
		t.Errorf("the last four took %v times the first four", got)
	}
}

func TestParseProcess(t *testing.T) {
	t.Parallel()
	stat := "7 (a) b) S 3 " + strings.Repeat("0 ", 9) + "11 22 33 44 0 0 0"
	p, ok := parseProcess("7", stat)
	if want := (process{id: 7, parent: 3, own: 330, ended: 770}); !ok || p != want {
		t.Errorf("read %+v, %t", p, ok)
	}
	if _, ok := parseProcess("7", "7 (a"); ok {
		t.Error("half a line was read")
	}
}

func TestSplitterCutsAnyPieces(t *testing.T) {
	t.Parallel()
	stream := []byte{2, 'a', 'b', 0, 5, 'v', 'w', 'x', 'y', 'z', 1, 'q'}
	for size := 1; size <= len(stream); size++ {
		var got []string
		s := splitter{header: 1, size: func(h []byte) int { return int(h[0]) }, keep: 3,
			whole: func(h, p []byte) { got = append(got, fmt.Sprint(h[0], string(p))) }}
		for rest := stream; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			s.write(rest[:min(size, len(rest))])
		}
		if want := "2ab,0,5vwx,1q"; strings.Join(got, ",") != want {
			t.Errorf("in pieces of %d: %q", size, got)
		}
	}
}

func TestCovered(t *testing.T) {
	t.Parallel()
	start := time.Now()
	e := func(from, to int) event {
		return event{start: start.Add(time.Duration(from)), end: start.Add(time.Duration(to))}
	}
	if got := covered([]event{e(0, 10), e(5, 8), e(6, 20), e(30, 50)}, start.Add(40)); got != 30 {
		t.Errorf("covered %d of 40", got)
	}
}

// awaitEvent waits until an exchange of a kind was noted.
func awaitEvent(t *testing.T, o *observers, match func(event) bool) event {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, e := range o.take() {
			if match(e) {
				return e
			}
		}
	}
	t.Fatal("no such exchange was noted")
	return event{}
}

func TestObserverOfPostgres(t *testing.T) {
	t.Parallel()
	o := &observers{}
	t.Cleanup(o.close)
	url, err := o.postgres("stepwell", stacktest.Database(t, stacktest.Shared(t)))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal("connect through the observer:", err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE boxes (n int)`); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sql    string
		commit bool
	}{
		{`INSERT INTO boxes SELECT generate_series(1, $1::int)`, true},
		{`UPDATE boxes SET n = n WHERE n < $1`, false}, // of no row
		{`SELECT n FROM boxes WHERE n > $1`, false},
	} {
		o.take()
		if _, err := conn.Exec(t.Context(), c.sql, -1); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(c.sql, "INSERT") { // -1 made none
			if _, err := conn.Exec(t.Context(), c.sql, 5000); err != nil {
				t.Fatal(err)
			}
		}
		e := awaitEvent(t, o, func(e event) bool { return e.label == c.sql && e.commit == c.commit })
		if e.kind != "postgres" || e.from != "stepwell" || !e.end.After(e.start) {
			t.Errorf("noted %+v", e)
		}
	}
}

func TestObserverOfCalls(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })

	o := &observers{}
	t.Cleanup(o.close)
	address, err := o.grpc("stepwell", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 { // later headers are shortened by the table that the first fills
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal("call through the observer:", err)
		}
		e := awaitEvent(t, o, func(e event) bool { return e.label == "Check" })
		if e.kind != "temporal" || !e.end.After(e.start) {
			t.Errorf("noted %+v", e)
		}
	}
}

func TestObserverOfHTTP(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(server.Close)
	o := &observers{}
	t.Cleanup(o.close)
	url, err := o.http("stepwell", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get(url + "/things?key=secret")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" {
		t.Errorf("the answer came through as %q: %v", body, err)
	}
	awaitEvent(t, o, func(e event) bool { return e.label == "GET /things" }) // without its query
}

// The whole thing, as short as it can be: everything starts, every figure is there,
// nothing is left behind.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the whole stack")
	}
	dir := t.TempDir()
	s, err := startStack(t.Context(), options{dir: dir, temporald: stacktest.Binary(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := plan{Rounds: 1, Latency: 50 * time.Millisecond, Throughput: time.Second, Pages: 20, LongPages: 1100, LongPulls: 1}
	r, err := measure(t.Context(), s, p, io.Discard)
	s.close()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{rawRegularMS, rawLocalMS, rawLocalEarlyMS, oneStepMS, fiveStepsMS, rawRegularRate, rawLocalRate,
		oneStepRate, pageMS, wholePageMS, longPageMS, slowdown} {
		if len(r.values[name]) != 1 || r.values[name][0] <= 0 {
			t.Errorf("%s: %v", name, r.values[name])
		}
	}
	if early, done := r.values[rawLocalEarlyMS][0], r.values[rawLocalMS][0]; early >= done {
		t.Errorf("a raw workflow was told early after %.2f ms, durably after %.2f", early, done)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
