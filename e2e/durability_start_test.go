package e2e

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/client"
)

// acceptLimit is how long the answer 202 may take, whatever Temporal does. Measured: 1.5 s
// for the first that finds it silent, milliseconds for the others.
const acceptLimit = 3 * time.Second

// TestStartIsNeverLost: what is accepted while Temporal is away runs when it is back.
func TestStartIsNeverLost(t *testing.T) {
	t.Parallel()
	t.Run("temporald is killed again and again", func(t *testing.T) {
		t.Parallel()
		in := startDev(t, 0)
		killing, stop := context.WithCancel(t.Context())
		var killer sync.WaitGroup
		killer.Go(func() {
			for killing.Err() == nil {
				in.killSupervised(partTemporald)
			}
		})
		runs := in.startMany(50)
		stop()
		killer.Wait()
		in.checkMany(runs)
	})
	t.Run("temporald is stopped", func(t *testing.T) {
		t.Parallel()
		in := startDev(t, 0)
		pid := in.supervised(partTemporald)
		pause(t, pid)
		runs := in.startMany(50)
		resume(t, pid)
		in.checkMany(runs)
	})
	t.Run("temporald comes later", func(t *testing.T) {
		t.Parallel()
		address := freeAddress(t)
		in := startDev(t, 0, "STEPWELL_TEMPORAL_ADDRESS="+address)
		runs := in.startMany(50)
		in.startTemporald(address)
		in.checkMany(runs)
	})
}

// startTemporald starts a temporald at an address, on the Postgres of dev.
func (in *installation) startTemporald(address string) {
	in.t.Helper()
	text, err := os.ReadFile(filepath.Join(in.dataDir(), "database-url"))
	if err != nil {
		in.t.Fatal(err)
	}
	admin, err := url.Parse(string(text))
	if err != nil {
		in.t.Fatal("the address of dev's database is malformed")
	}
	admin.Path = "/postgres"
	in.process("temporald", "temporald", []string{"--listen", address}, []string{"TEMPORALD_POSTGRES=" + admin.String()}).start(in.t)
}

// startMany starts runs of one page, asynchronously, one after the other.
func (in *installation) startMany(n int) []pull {
	in.t.Helper()
	began := time.Now()
	var slowest time.Duration
	var runs []pull
	for range n {
		at := time.Now()
		runs = append(runs, in.start(1, 0))
		slowest = max(slowest, time.Since(at))
	}
	in.t.Logf("%d runs accepted in %s, the slowest in %s", n, time.Since(began).Round(time.Millisecond), slowest.Round(time.Millisecond))
	if slowest > acceptLimit {
		in.t.Errorf("a run was accepted after %s, later than %s", slowest, acceptLimit)
	}
	return runs
}

func (in *installation) checkMany(runs []pull) {
	in.t.Helper()
	began := time.Now()
	for _, p := range runs {
		in.check(p, time.Minute, 0)
	}
	in.t.Logf("all ended %s after Temporal was back", time.Since(began).Round(time.Millisecond))
}

// TestOneRunOfAnID: a run id that is sent many times at once makes one run.
func TestOneRunOfAnID(t *testing.T) {
	t.Parallel()
	in := startDev(t, 0)
	p := pull{id: "only-" + strconv.Itoa(int(lastPull.Add(1))), pages: 1}
	var accepted, refused, other atomic.Int64
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			switch _, err := in.client.Run(ctx, "pull", p.request()); {
			case err == nil:
				accepted.Add(1)
			case client.Status(err) == 409:
				refused.Add(1)
			default:
				other.Add(1)
				t.Error("another answer: ", err)
			}
		})
	}
	callers.Wait()
	if accepted.Load() != 1 || refused.Load() != 49 {
		t.Errorf("%d accepted, %d refused with 409, %d other answers; want 1, 49, 0", accepted.Load(), refused.Load(), other.Load())
	}
	in.check(p, time.Minute, 0)
}
