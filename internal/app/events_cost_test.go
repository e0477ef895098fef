package app_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// listeners is how many streams of events are open at once.
const listeners = 500

// costliest is how many queries a second so many listeners may cost, on one run or each on a
// run of its own. It is about ten; each asked for alone they would be 500 and more.
const costliest = 250

// TestEventsCost has many listeners on one run and on as many runs, which wait because no
// worker takes them up. Every listener is told so; the database is asked as if there were
// one; and all hear of the end.
func TestEventsCost(t *testing.T) {
	t.Parallel()
	cfg := configFor(t, stacktest.Start(t, devstack.Options{}))
	n := startParts(t, cfg, app.Parts{Server: true})
	tool := n.tool(t, `{"id":"t","steps":[{"id":"first","config":{"url":"http://127.0.0.1:9/"}}]}`)
	start := func(id string) {
		if _, err := n.api.Run(t.Context(), tool, v1.RunRequest{RunID: id, Options: &v1.RunOptions{Async: true}}); err != nil {
			t.Error(err)
		}
	}
	var starting sync.WaitGroup
	for i := range 10 {
		starting.Go(func() {
			for j := range listeners / 10 {
				start(fmt.Sprintf("run-%d", i*listeners/10+j))
			}
		})
	}
	starting.Wait()
	start("one")
	measured := 1500 * time.Millisecond
	if *long {
		measured = 10 * time.Second
	}
	for _, c := range []struct {
		name string
		run  func(i int) string
	}{{"one run", func(int) string { return "one" }}, {"a run each", func(i int) string { return fmt.Sprintf("run-%d", i) }}} {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var wg, queued sync.WaitGroup
		queued.Add(listeners)
		for i := range listeners {
			wg.Go(func() {
				told := sync.OnceFunc(queued.Done)
				defer told()
				err := n.api.Watch(ctx, c.run(i), func(e v1.Event) error {
					if e.Progress != nil && e.Progress.WaitingFor != nil && e.Progress.WaitingFor.Reason == "queue" && e.Progress.Step == "first" {
						told()
					}
					if e.Run != nil && e.Run.Status == "aborted" {
						return errSeen
					}
					return nil
				})
				if !errors.Is(err, errSeen) && ctx.Err() == nil {
					t.Errorf("%s: a listener ended with %v", c.name, err)
				}
			})
		}
		queued.Wait()
		queries, cpu := n.costs(t, measured)
		t.Logf("%d listeners on %s: %.0f queries a second, %.1f %% of one processor for them and the server", listeners, c.name, queries, cpu*100)
		if queries > costliest {
			t.Errorf("%d listeners on %s cost %.0f queries a second", listeners, c.name, queries)
		}
		if c.run(0) == c.run(1) { // all hear of its end; of the others they have heard enough
			if _, err := n.api.Cancel(t.Context(), c.run(0)); err != nil {
				t.Error(err)
			}
		} else {
			leave()
		}
		wg.Wait()
	}
}

var errSeen = errors.New("the end was seen")

// costs gives how many transactions a second Postgres works at, and the processor time a
// second of this process, at the median of several windows: Postgres counts late what a
// connection did.
func (n *node) costs(t *testing.T, over time.Duration) (queries, cpu float64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), n.cfg.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	committed := func() (count int64) {
		err := conn.QueryRow(t.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&count)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	var all, used []float64
	for range 3 {
		before, processor, began := committed(), processorTime(t), time.Now()
		pass(over)
		took := time.Since(began).Seconds()
		all = append(all, float64(committed()-before)/took)
		used = append(used, (processorTime(t)-processor).Seconds()/took)
	}
	slices.Sort(all)
	slices.Sort(used)
	return all[1], used[1]
}

// pass lets time pass over which something is measured.
func pass(d time.Duration) { <-time.After(d) }

func processorTime(t *testing.T) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
