package store

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stepwell"
)

func TestPagesAreSavedOnceWhileTheRunRuns(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	k := ts.key("r", 0, 0, 1)
	if !ts.save(k, stepwell.Page{Body: json.RawMessage(`["first"]`), Records: 1, Cursor: "c", Next: json.RawMessage(`{"page":2}`)}) {
		t.Fatal("the first page was not saved")
	}
	if ts.save(k, stepwell.Page{Body: json.RawMessage(`["second"]`), Done: true}) {
		t.Error("a page was saved twice")
	}
	head := must[*stepwell.Page](t)(ts.PageHead(t.Context(), k))
	if head.Cursor != "c" || head.Done || string(head.Next) != `{"page":2}` || head.Bytes != int64(len(`["first"]`)) || head.Records != 1 {
		t.Errorf("the first page was changed: %+v", head)
	}
	if !ts.finish(stepwell.Finish{Run: "r", Status: stepwell.RunAborted, Error: "cancelled"}) {
		t.Fatal("the run was not aborted")
	}
	if ts.save(ts.key("r", 0, 0, 2), stepwell.Page{}) {
		t.Error("a page of an ended run was saved")
	}
	if ts.save(ts.key("none", 0, 0, 1), stepwell.Page{}) {
		t.Error("a page of no run was saved")
	}
	if head := must[*stepwell.Page](t)(ts.PageHead(t.Context(), ts.key("r", 0, 0, 2))); head != nil {
		t.Errorf("a page that was not saved reads as %+v", head)
	}
	other := must[string](t)(ts.CreateOrganization(t.Context(), "two"))
	if head := must[*stepwell.Page](t)(ts.PageHead(t.Context(), stepwell.PageKey{Org: other, Run: "r", Page: 1})); head != nil {
		t.Error("another organization reads the page")
	}
}

// TestPageRace saves one page from many sides: one wins, and all read the winner's.
func TestPageRace(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	k := ts.key("r", 0, 0, 1)
	const savers = 20
	won := make(chan string, savers)
	parallel(savers, func(i int) {
		body := fmt.Sprintf(`["%d"]`, i)
		saved, err := ts.SavePage(t.Context(), k, &stepwell.Page{Body: json.RawMessage(body), Done: true}, i%2 == 0)
		if err != nil {
			t.Error(err)
		}
		if saved {
			won <- body
		}
	})
	close(won)
	if len(won) != 1 {
		t.Fatalf("%d savers won", len(won))
	}
	winner := <-won
	ts.noError(ts.PageBodies(t.Context(), ts.org, "r", 0, func(p *stepwell.Page) error {
		if string(p.Body) != winner {
			t.Errorf("stored is %s, saved was %s", p.Body, winner)
		}
		return nil
	}))
}

func TestBodiesOfAllSizes(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	random := make([]byte, 600<<10) // does not compress: a blob
	rand.Read(random)
	bodies := [][]byte{
		[]byte(`null`),
		[]byte(`"` + strings.Repeat("a", 5<<10) + `"`),                            // compressed row
		[]byte(`"` + strings.Repeat("a", 3<<20) + `"`),                            // compresses to a row
		[]byte(`"` + base64.StdEncoding.EncodeToString(random) + `"`),             // a blob
		[]byte(`"` + base64.StdEncoding.EncodeToString(random[:700])[:900] + `"`), // a plain row
	}
	for i, body := range bodies {
		if !ts.save(ts.key("r", 0, 0, i+1), stepwell.Page{Body: body, Done: i == len(bodies)-1}) {
			t.Fatal("not saved")
		}
	}
	if n := ts.count(`SELECT count(*) FROM pages WHERE blob IS NOT NULL AND body IS NULL`); n != 1 {
		t.Errorf("%d pages are blobs, want 1", n)
	}
	if n := ts.count(`SELECT count(*) FROM pages WHERE length(body) > $1`, maxRowBody); n != 0 {
		t.Errorf("%d rows hold more than %d bytes", n, maxRowBody)
	}
	i := 0
	ts.noError(ts.PageBodies(t.Context(), ts.org, "r", 0, func(p *stepwell.Page) error {
		if !bytes.Equal(p.Body, bodies[i]) || p.Bytes != int64(len(bodies[i])) {
			t.Errorf("page %d: %d bytes came back as %d (%d noted)", i+1, len(bodies[i]), len(p.Body), p.Bytes)
		}
		i++
		return nil
	}))
	if i != len(bodies) {
		t.Errorf("%d of %d pages came back", i, len(bodies))
	}
}

// TestResultBlob keeps a large result of its own.
func TestResultBlob(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	random := make([]byte, 400<<10)
	rand.Read(random)
	body := json.RawMessage(`"` + base64.StdEncoding.EncodeToString(random) + `"`)
	if !ts.finish(stepwell.Finish{Run: "r", Status: stepwell.RunSuccess, Result: &stepwell.Result{Body: body, Bytes: int64(len(body))}}) {
		t.Fatal("not finished")
	}
	if n := ts.count(`SELECT count(*) FROM runs WHERE data_blob IS NOT NULL AND data IS NULL`); n != 1 {
		t.Error("the result is no blob")
	}
	r := must[*stepwell.Result](t)(ts.ReadResult(t.Context(), ts.org, "r"))
	if !bytes.Equal(r.Body, body) || r.Bytes != int64(len(body)) || r.Step != nil {
		t.Errorf("the result came back as %d bytes of %d, step %v", len(r.Body), len(body), r.Step)
	}
}

func TestPageBodiesWalkInOrderAndMissNone(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	var want []string
	for item := range 3 {
		pages := []int{pageBatch + 7, 1, 2}[item]
		for page := 1; page <= pages; page++ {
			ts.save(ts.key("r", 1, item, page), stepwell.Page{Body: fmt.Appendf(nil, `[%d]`, page), Done: page == pages})
			want = append(want, fmt.Sprintf("%d/%d", item, page))
		}
	}
	var got []string
	ts.noError(ts.PageBodies(t.Context(), ts.org, "r", 1, func(p *stepwell.Page) error {
		got = append(got, fmt.Sprintf("%d/%d", p.Item, p.Page))
		return nil
	}))
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v, want %v", got, want)
	}
	var heads []int
	ts.noError(ts.PageHeads(t.Context(), ts.org, "r", 1, 2, 1, func(p *stepwell.Page) error {
		heads = append(heads, p.Page)
		return nil
	}))
	if len(heads) != 1 || heads[0] != 2 {
		t.Errorf("heads after page 1 of item 2 are %v", heads)
	}
	for _, hole := range []string{"item = 0 AND page = 3", "item = 1 AND page = 1", "item = 2 AND page = 1"} {
		ts.exec(`CREATE TABLE kept AS SELECT * FROM pages WHERE ` + hole)
		ts.exec(`DELETE FROM pages WHERE ` + hole)
		err := ts.PageBodies(t.Context(), ts.org, "r", 1, func(*stepwell.Page) error { return nil })
		// A whole item that is missing shows in the summaries only.
		if (err == nil) != strings.HasPrefix(hole, "item = 1") {
			t.Errorf("without %s the walk ends with %v", hole, err)
		}
		ts.exec(`INSERT INTO pages SELECT * FROM kept`)
		ts.exec(`DROP TABLE kept`)
	}
}

func TestSummaries(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	summary := func(step int) stepwell.StepSummary {
		t.Helper()
		for _, sum := range must[[]stepwell.StepSummary](t)(ts.Summaries(t.Context(), ts.org, "r")) {
			if sum.Step == step {
				return sum
			}
		}
		t.Fatalf("step %d has no summary", step)
		return stepwell.StepSummary{}
	}
	if sums := must[[]stepwell.StepSummary](t)(ts.Summaries(t.Context(), ts.org, "r")); len(sums) != 0 {
		t.Errorf("a new run has summaries: %+v", sums)
	}
	ts.save(ts.key("r", 0, 0, 1), stepwell.Page{Body: json.RawMessage(`[1,2]`), Records: 2})
	if sum := summary(0); sum.Whole || sum.Done != 0 || sum.Pages != 1 {
		t.Errorf("a pull on its way: %+v", sum)
	}
	ts.save(ts.key("r", 0, 0, 2), stepwell.Page{Body: json.RawMessage(`[3]`), Records: 1, Done: true, EndedBy: "shortPage"})
	want := stepwell.StepSummary{Step: 0, Items: 1, Pages: 2, Done: 1, Records: 3, Bytes: 8, LastPage: 2, EndedBy: "shortPage", Whole: true}
	if sum := summary(0); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
	ts.save(ts.key("r", 1, 0, 1), stepwell.Page{Done: true})
	ts.save(ts.key("r", 1, 1, 1), stepwell.Page{Error: "first", Done: true})
	ts.save(ts.key("r", 1, 2, 1), stepwell.Page{Error: "second", Done: true})
	if sum := summary(1); sum.Items != 3 || sum.Failed != 2 || sum.FirstError != "first" || !sum.Whole || sum.LastItem != 2 {
		t.Errorf("a loop with failures: %+v", sum)
	}
	for _, broken := range []string{
		`DELETE FROM pages WHERE step = 0 AND page = 1`,                // begins at 2
		`UPDATE pages SET page = 3 WHERE step = 0 AND page = 2`,        // a hole in the middle
		`UPDATE pages SET done = (page = 1) WHERE step = 0`,            // a page after the end
		`UPDATE pages SET done = false WHERE step = 0`,                 // no end
		`UPDATE pages SET page = page + 1 WHERE step = 0 AND page = 2`, // the last is not where it should be
		`INSERT INTO pages (org_id, run_id, step, item, page, done) SELECT org_id, run_id, 0, 1, 1, false FROM pages WHERE step = 0 AND page = 1`, // one item of two has no end
	} {
		ts.exec(`CREATE TABLE kept AS SELECT * FROM pages WHERE step = 0`)
		ts.exec(broken)
		if sum := summary(0); sum.Whole {
			t.Errorf("after %s: %+v", broken, sum)
		}
		ts.exec(`DELETE FROM pages WHERE step = 0`)
		ts.exec(`INSERT INTO pages SELECT * FROM kept`)
		ts.exec(`DROP TABLE kept`)
	}
	if sum := summary(0); sum != want {
		t.Errorf("put together again: %+v", sum)
	}
}

func TestSelectionsInChunks(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	const total = 2*selectionChunk + 3
	var items []json.RawMessage
	for i := range total {
		items = append(items, fmt.Appendf(nil, `{"n":%d}`, i))
	}
	chosen := &stepwell.Selection{Loop: true, Total: total, Items: items}
	if head := must[*stepwell.Selection](t)(ts.Selection(t.Context(), ts.org, "r", 0)); head != nil {
		t.Errorf("a selection is there before it was made: %+v", head)
	}
	if !must[bool](t)(ts.SaveSelection(t.Context(), ts.org, "r", 0, chosen)) {
		t.Fatal("not saved")
	}
	if n := ts.count(`SELECT count(*) FROM selections`); n != 3 {
		t.Errorf("%d chunks, want 3", n)
	}
	other := &stepwell.Selection{Loop: true, Total: 1, Items: []json.RawMessage{[]byte(`"other"`)}}
	if must[bool](t)(ts.SaveSelection(t.Context(), ts.org, "r", 0, other)) {
		t.Error("saved twice")
	}
	if head := must[*stepwell.Selection](t)(ts.Selection(t.Context(), ts.org, "r", 0)); head == nil || !head.Loop || head.Total != total {
		t.Fatalf("the head is %+v", head)
	}
	for _, item := range []int{0, selectionChunk - 1, selectionChunk, total - 1} {
		first, got, err := ts.SelectionItems(t.Context(), ts.org, "r", 0, item)
		ts.noError(err)
		if want := fmt.Sprintf(`{"n":%d}`, item); string(got[item-first]) != want {
			t.Errorf("item %d is %s", item, got[item-first])
		}
	}
	empty := &stepwell.Selection{Loop: true}
	if !must[bool](t)(ts.SaveSelection(t.Context(), ts.org, "r", 1, empty)) {
		t.Error("an empty selection was not saved")
	}
	if head := must[*stepwell.Selection](t)(ts.Selection(t.Context(), ts.org, "r", 1)); head == nil || !head.Loop || head.Total != 0 {
		t.Errorf("the empty selection is %+v", head)
	}
	ts.finish(stepwell.Finish{Run: "r", Status: stepwell.RunAborted, Error: "cancelled"})
	if must[bool](t)(ts.SaveSelection(t.Context(), ts.org, "r", 2, chosen)) {
		t.Error("a selection of an ended run was saved")
	}
	if n := ts.count(`SELECT count(*) FROM selections WHERE step = 2`); n != 0 {
		t.Errorf("%d chunks of it are there", n)
	}
}

// TestSelectionsDoNotMix stores different choices at once: a selector may be random, and
// one of two workers wins with all of its items.
func TestSelectionsDoNotMix(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	const total = 3 * selectionChunk
	parallel(8, func(saver int) {
		var items []json.RawMessage
		for range total {
			items = append(items, fmt.Appendf(nil, `"%d"`, saver))
		}
		if _, err := ts.SaveSelection(t.Context(), ts.org, "r", 0, &stepwell.Selection{Loop: true, Total: total, Items: items}); err != nil {
			t.Error(err)
		}
	})
	seen := map[string]bool{}
	for item := 0; item < total; item += selectionChunk {
		_, items, err := ts.SelectionItems(t.Context(), ts.org, "r", 0, item)
		ts.noError(err)
		for _, text := range items {
			seen[string(text)] = true
		}
	}
	if len(seen) != 1 {
		t.Errorf("the stored selection mixes %v", seen)
	}
	if n := ts.count(`SELECT count(DISTINCT xmin::text) FROM selections`); n != 1 {
		t.Errorf("%d transactions stored the selection: a crash between them leaves half of one", n)
	}
}

// TestLargeBodiesDoNotMix saves different large answers for one page: what is stored
// stays whole, and the other's blob goes.
func TestLargeBodiesDoNotMix(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.run("r", "")
	large := func() json.RawMessage {
		random := make([]byte, 300<<10)
		rand.Read(random)
		return json.RawMessage(`"` + base64.StdEncoding.EncodeToString(random) + `"`)
	}
	k := ts.key("r", 0, 0, 1)
	first := large()
	if !ts.save(k, stepwell.Page{Body: first, Done: true}) {
		t.Fatal("not saved")
	}
	if ts.save(k, stepwell.Page{Body: large(), Done: true}) || ts.save(k, stepwell.Page{Body: first, Done: true}) {
		t.Fatal("saved twice")
	}
	ts.noError(ts.PageBodies(t.Context(), ts.org, "r", 0, func(p *stepwell.Page) error {
		if !bytes.Equal(p.Body, first) {
			t.Error("the stored page has another's body")
		}
		return nil
	}))
	result := large()
	end := func(body json.RawMessage) bool {
		return ts.finish(stepwell.Finish{Run: "r", Status: stepwell.RunSuccess, Result: &stepwell.Result{Body: body, Bytes: int64(len(body))}})
	}
	if !end(result) || end(large()) {
		t.Fatal("not finished once")
	}
	if r := must[*stepwell.Result](t)(ts.ReadResult(t.Context(), ts.org, "r")); !bytes.Equal(r.Body, result) {
		t.Error("the result is another's")
	}
	if files := ts.blobFiles(); files != 2 {
		t.Errorf("%d blobs are kept, want the page's and the result's", files)
	}
}
