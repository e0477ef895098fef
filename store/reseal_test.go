package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/secret"
)

// withRing is a store on the test's database that seals under other keys.
func (ts *testStore) withRing(keys string) *Store {
	ts.t.Helper()
	ring, err := secret.ParseRing(keys)
	ts.noError(err)
	s, err := Open(ts.t.Context(), Config{URL: ts.url, MaxConns: 8, Sealer: ring, Log: zap.NewNop()})
	ts.noError(err)
	ts.t.Cleanup(s.Close)
	return s
}

// TestRotationUnderLoad seals 10,000 rows again while 50 requests a second read and change
// them and others are made, some by a process that still seals under the old key.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	first, second := "old:"+secret.NewKey(), "new:"+secret.NewKey()
	before, after := ts.withRing(first+","+second), ts.withRing(second+","+first)
	const rows = 10_000
	seed(t, ts, before, rows)

	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var requests atomic.Int64
	for i := range 5 {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for n := 0; working.Err() == nil; n++ {
				s := []*Store{before, after}[n%2]
				id := fmt.Sprintf("s%d", (i*1009+n*37)%(rows/2))
				if _, err := s.UpdateSystem(ctx, ts.org, id, "", func(y *stepwell.System) error { y.Credentials["n"] = id; return nil }); err != nil {
					t.Error(err)
				}
				if got, err := before.RunSystems(ctx, ts.org, []string{id}, stepwell.ModeProd, ""); err != nil || got[id].Values["token"] != "secret-"+id {
					t.Errorf("%v %v", got, err)
				}
				requests.Add(2)
				<-tick.C
			}
		})
	}
	began := time.Now()
	var passes int
	resealed, err := after.Reseal(ctx, func(r Resealed) {
		if passes++; r.Resealed > r.Seen {
			t.Errorf("%+v", r)
		}
	})
	took := time.Since(began)
	stop()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	// What the old process sealed at the end.
	last, err := after.Reseal(ctx, func(Resealed) {})
	if err != nil || last > int(requests.Load()) {
		t.Errorf("%d more, %v", last, err)
	}
	t.Logf("%d values sealed again in %s in %d batches beside %d requests, %d after them", resealed, took.Round(time.Millisecond), passes, requests.Load(), last)
	if took > time.Minute {
		t.Errorf("it took %s", took)
	}
	if n, err := after.Reseal(ctx, func(Resealed) {}); n != 0 || err != nil {
		t.Errorf("the next time it seals %d values, %v", n, err)
	}
	alone := ts.withRing(second) // the old key is gone
	if systems, total, err := alone.ListSystems(ctx, ts.org, 1, 100); err != nil || total != rows/2 || systems[0].Credentials["token"] != "secret-"+systems[0].ID {
		t.Errorf("%d systems, %v", total, err)
	}
	run, err := alone.OpenRun(ctx, ts.org, "r1")
	if err != nil || string(run.Credentials) != `{"a":"secret-1"}` {
		t.Errorf("%v %v", run, err)
	}
	var old int
	ts.noError(ts.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM systems WHERE position('old'::bytea IN substring(sealed for 8)) > 0)
		+ (SELECT count(*) FROM run_credentials WHERE position('old'::bytea IN substring(sealed for 8)) > 0)`).Scan(&old))
	if old != 0 {
		t.Errorf("%d values are under the old key", old)
	}
}

// seed makes sealed rows: half of them systems, half credentials of runs.
func seed(t *testing.T, ts *testStore, s *Store, rows int) {
	t.Helper()
	tool := ts.tool("t")
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < rows/2; i += 8 {
				y := &stepwell.System{OrgID: ts.org, ID: fmt.Sprintf("s%d", i), Environment: stepwell.ModeProd, MultiTenancyMode: stepwell.TenancyDisabled,
					Credentials: map[string]string{"token": fmt.Sprintf("secret-s%d", i)}}
				r := &stepwell.Run{OrgID: ts.org, ID: fmt.Sprintf("r%d", i), ToolID: tool.ID, ToolVersion: tool.VersionKey, Status: stepwell.RunRunning,
					Inputs: json.RawMessage(`{}`), RequestSource: "api", Mode: stepwell.ModeProd, TraceID: "trace", UserID: "user"}
				if err := s.CreateSystem(t.Context(), y); err != nil {
					t.Error(err)
					return
				}
				if err := s.InsertRun(t.Context(), r, json.RawMessage(fmt.Sprintf(`{"a":"secret-%d"}`, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestRotationReportsDamage seals what it can and names what it cannot open.
func TestRotationReportsDamage(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ctx := t.Context()
	first, second := "old:"+secret.NewKey(), "new:"+secret.NewKey()
	before, after := ts.withRing(first), ts.withRing(second+","+first)
	user := ts.endUser()
	for _, id := range []string{"a", "b", "c"} {
		ts.noError(before.CreateSystem(ctx, &stepwell.System{OrgID: ts.org, ID: id, Environment: stepwell.ModeProd, MultiTenancyMode: stepwell.TenancyEnabled, Credentials: map[string]string{"token": "secret-" + id}}))
	}
	ts.noError(before.PutEndUserCredentials(ctx, ts.org, strings.ToUpper(user), "a", map[string]string{"token": "theirs"}))
	_, err := ts.pool.Exec(ctx, `UPDATE systems SET sealed = set_bit(sealed, 400, 1 - get_bit(sealed, 400)) WHERE id = 'b'`)
	ts.noError(err)
	n, err := after.Reseal(ctx, func(Resealed) {})
	if n != 3 || err == nil || !strings.Contains(err.Error(), "systems "+ts.org+" b prod: ") || strings.Contains(err.Error(), "secret-") {
		t.Errorf("%d sealed again, %v", n, err)
	}
	got, err := ts.withRing(second).RunSystems(ctx, ts.org, []string{"a", "c"}, stepwell.ModeProd, user)
	if err != nil || got["a"].Values["token"] != "theirs" || got["a"].Client["token"] != "secret-a" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := before.System(ctx, ts.org, "a", ""); !errors.Is(err, secret.ErrUnknownKey) {
		t.Errorf("without the new key: %v", err)
	}
}
