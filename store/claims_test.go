package store

import (
	"slices"
	"sync/atomic"
	"testing"

	"stepwell"
)

// taken is what TakeClaim answers.
type taken struct {
	mine, running bool
	other         *stepwell.Claim
}

func (ts *testStore) take(k stepwell.PageKey, worker string, effect, takeOver bool) taken {
	ts.t.Helper()
	mine, other, running, err := ts.TakeClaim(ts.t.Context(), k, worker, effect, takeOver)
	ts.noError(err)
	return taken{mine, running, other}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	k := ts.key("r", 0, 0, 1)
	ts.noError(ts.RenewWorker(t.Context(), "live"))
	ts.noError(ts.RenewWorker(t.Context(), "me"))
	if c := ts.take(k, "live", true, false); !c.mine || !c.running {
		t.Fatalf("a free page was not claimed: %+v", c)
	}
	// Nobody takes a live worker's claim, nor does it claim twice without asking for it.
	for _, takeOver := range []bool{false, true} {
		c := ts.take(k, "me", true, takeOver)
		if c.mine || c.other == nil || *c.other != (stepwell.Claim{Worker: "live", Effect: true, Alive: true}) {
			t.Errorf("take over %v: a live claim answers %+v", takeOver, c)
		}
	}
	if c := ts.take(k, "live", true, false); c.mine || c.other == nil || c.other.Worker != "live" {
		t.Errorf("its own older claim answers %+v", c)
	}
	if c := ts.take(k, "live", true, true); !c.mine {
		t.Errorf("its own older claim, taken over, answers %+v", c)
	}
	// A dead worker's is taken over only when that is asked for.
	ts.noError(ts.EndWorker(t.Context(), "live"))
	if c := ts.take(k, "me", true, false); c.mine || c.other == nil || c.other.Alive {
		t.Errorf("a dead claim answers %+v", c)
	}
	if c := ts.take(k, "me", true, true); !c.mine {
		t.Errorf("a dead claim, taken over, answers %+v", c)
	}
	c, running, err := ts.ReadClaim(t.Context(), k)
	ts.noError(err)
	if c == nil || c.Worker != "me" || !c.Alive || !running {
		t.Errorf("the claim reads as %+v", c)
	}
	ts.noError(ts.ReleaseClaim(t.Context(), k, "live"))
	if c, _, _ := ts.ReadClaim(t.Context(), k); c == nil {
		t.Error("another worker released the claim")
	}
	ts.noError(ts.ReleaseClaim(t.Context(), k, "me"))
	if c, _, _ := ts.ReadClaim(t.Context(), k); c != nil {
		t.Errorf("released, and still there: %+v", c)
	}
}

// TestClaimOfAWorkerWithoutALease is the claim of a process that died before its lease
// was ever written.
func TestClaimOfAWorkerWithoutALease(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	k := ts.key("r", 0, 0, 1)
	ts.take(k, "unknown", true, false)
	if c := ts.take(k, "me", true, true); !c.mine {
		t.Errorf("it answers %+v", c)
	}
}

func TestLongGoneWorkersAreForgotten(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, id := range []string{"gone", "asleep", "stopped"} {
		ts.noError(ts.RenewWorker(t.Context(), id))
	}
	_, err := ts.pool.Exec(t.Context(), `UPDATE workers SET lease_until = lease_until - interval '2 days' WHERE id <> 'stopped'`)
	ts.noError(err)
	ts.noError(ts.RenewWorker(t.Context(), "asleep"))
	var ids []string
	ts.noError(ts.pool.QueryRow(t.Context(), `SELECT array_agg(id ORDER BY id) FROM workers`).Scan(&ids))
	if !slices.Equal(ids, []string{"asleep", "stopped"}) {
		t.Errorf("workers are %v", ids)
	}
}

func TestClaimsGoWithTheirPageAndRun(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	k := ts.key("r", 0, 0, 1)
	ts.take(k, "me", true, false)
	p := stepwell.Page{Body: []byte(`1`), Done: true}
	if !must[bool](t)(ts.SavePage(t.Context(), k, &p, true)) {
		t.Fatal("not saved")
	}
	if c, _, _ := ts.ReadClaim(t.Context(), k); c != nil {
		t.Errorf("a stored page has the claim %+v", c)
	}
	ts.finish(stepwell.Finish{Run: "r", Status: stepwell.RunFailed, Error: "x"})
	if c := ts.take(ts.key("r", 0, 0, 2), "me", true, true); c.mine || c.running || c.other != nil {
		t.Errorf("a page of an ended run was claimed: %+v", c)
	}
	if c := ts.take(ts.key("none", 0, 0, 1), "me", true, true); c.mine || c.running {
		t.Errorf("a page of no run was claimed: %+v", c)
	}
}

// TestClaimRace lets many workers want one page of a dead one: one gets it.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	const workers = 20
	var names []string
	for i := range workers {
		names = append(names, "w"+string(rune('a'+i)))
		ts.noError(ts.RenewWorker(t.Context(), names[i]))
	}
	live := must[[]string](t)(ts.LiveWorkers(t.Context()))
	slices.Sort(live)
	if !slices.Equal(live, names) {
		t.Errorf("live workers: %v", live)
	}
	for _, takeOver := range []bool{false, true} {
		k := ts.key("r", 0, 0, 1)
		if takeOver {
			k.Page = 2
			ts.take(k, "dead", true, false)
		}
		var won atomic.Int32
		parallel(workers, func(i int) {
			mine, _, _, err := ts.TakeClaim(t.Context(), k, names[i], true, takeOver)
			if err != nil {
				t.Error(err)
			}
			if mine {
				won.Add(1)
			}
		})
		if won.Load() != 1 {
			t.Errorf("take over %v: %d of %d workers have the claim", takeOver, won.Load(), workers)
		}
	}
	ts.noError(ts.EndWorker(t.Context(), names[0]))
	if live := must[[]string](t)(ts.LiveWorkers(t.Context())); len(live) != workers-1 || slices.Contains(live, names[0]) {
		t.Errorf("live workers after one ended: %v", live)
	}
}
