package store

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"stepwell"
)

var long = flag.Bool("long", false, "run the long forms of tests")

// rerunOf records a rerun of a run that takes over step 0 as its step `to`.
func (ts *testStore) rerunOf(of, id string, to int) {
	ts.t.Helper()
	r := must[*stepwell.Run](ts.t)(ts.Run(ts.t.Context(), ts.org, of))
	r.ID, r.RerunOf, r.Status = id, of, stepwell.RunRunning
	ts.noError(ts.InsertRerun(ts.t.Context(), r, nil, Reuse{Steps: []ReusedStep{{From: 0, To: to, Part: true}}}))
}

// bodies gives the bodies of a step's pages.
func (ts *testStore) bodies(run string, step int) (out []string) {
	ts.t.Helper()
	ts.noError(ts.PageBodies(ts.t.Context(), ts.org, run, step, func(p *stepwell.Page) error {
		out = append(out, fmt.Sprintf("%d.%d:%s", p.Item, p.Page, p.Body))
		return nil
	}))
	return out
}

// TestRerunShares: a rerun's pages are whole though it has no copies of their bodies, also
// that of a rerun, under another place of the step, and beside pages of its own.
func TestRerunShares(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("first:run", "")
	var want []string
	for item := range 2 {
		for page := 1; page <= 70; page++ {
			size := map[int]int{0: 10, 1: 3000, 2: 700_000}[page%3] // a copy, a row, a blob
			body := json.RawMessage(fmt.Sprintf(`"%s%d.%d"`, digits(size), item, page))
			ts.save(ts.key("first:run", 0, item, page), stepwell.Page{Body: body, Done: page == 70})
			want = append(want, fmt.Sprintf("%d.%d:%s", item, page, body))
		}
	}
	ts.save(ts.key("first:run", 0, 2, 1), stepwell.Page{Error: "broken", Done: true})
	ts.finish(stepwell.Finish{Run: "first:run", Status: stepwell.RunFailed, Error: "broken"})
	ts.rerunOf("first:run", "second", 0)
	ts.finish(stepwell.Finish{Run: "second", Status: stepwell.RunFailed, Error: "broken"})
	ts.rerunOf("second", "third", 4)
	ts.save(ts.key("third", 4, 2, 1), stepwell.Page{Body: json.RawMessage(`"own"`), Done: true})
	if got := ts.bodies("second", 0); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the rerun has %d pages, or others, of %d", len(got), len(want))
	}
	if got := ts.bodies("third", 4); strings.Join(got, "\n") != strings.Join(append(want, `2.1:"own"`), "\n") {
		t.Errorf("the rerun of the rerun has %d pages, or others, of %d", len(got), len(want))
	}
	if n := ts.count(`SELECT coalesce(sum(octet_length(body)), 0) FROM pages WHERE run_id IN ('second', 'third')`); n > 10_000 {
		t.Errorf("%d bytes of bodies were copied", n)
	}
	ts.exec(`DELETE FROM pages WHERE run_id = 'first:run' AND item = 1`)
	wantKind(t, "a page whose origin is gone", ts.PageBodies(t.Context(), ts.org, "third", 4, func(*stepwell.Page) error { return nil }), stepwell.KindLost)
}

// digits is a text that does not compress to nothing.
func digits(size int) string {
	random := rand.NewPCG(1, uint64(size))
	var out strings.Builder
	for out.Len() < size {
		fmt.Fprintf(&out, "%016x", random.Uint64())
	}
	return out.String()[:size]
}

// TestRerunOfManyPages: to take over very many pages takes seconds at most.
func TestRerunOfManyPages(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	pages, body := 20_000, 1000
	if *long {
		pages, body = 100_000, 20_000 // 2 GB of bodies
	}
	ts.run("many", "")
	ts.exec(`INSERT INTO pages (org_id, run_id, step, item, page, records, bytes, body, next, cursor, done)
		SELECT $1, 'many', 0, 0, n, 100, $3::int, convert_to(repeat('x', $3::int), 'UTF8'), '{"page":1,"cursor":"abc","fetched":1234}', 'cursor-' || n, false FROM generate_series(1, $2) AS n`,
		ts.org, pages, body)
	ts.finish(stepwell.Finish{Run: "many", Status: stepwell.RunFailed, Error: "e"})
	began := time.Now()
	ts.rerunOf("many", "again", 0)
	took := time.Since(began)
	t.Logf("%d pages of %d bytes were taken over in %s", pages, body, took)
	if took > 15*time.Second {
		t.Errorf("%d pages were taken over in %s", pages, took)
	}
	if n := ts.count(`SELECT count(*) FROM pages WHERE run_id = 'again' AND body IS NULL`); n != pages {
		t.Errorf("%d pages were taken over", n)
	}
}
