package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"stepwell/api/v1"
	"stepwell/internal/demo"
)

// check waits for the success of a run and checks what holds whatever happened: every
// record there once and in order, every page asked for, at most `extra` requests more
// than pages, and none that one process had in flight twice at once.
func (in *installation) check(p pull, limit time.Duration, extra int) *v1.Run {
	in.t.Helper()
	run := in.ended(p, limit)
	if run.Status != "success" {
		in.t.Errorf("run %s ended as %s: %s", p.id, run.Status, run.Error)
		return run
	}
	in.checkRecords(p)
	requests := in.upstream.requests(p.id)
	hits := make([]int, p.pages+1)
	for _, r := range requests {
		if r.page > p.pages {
			in.t.Errorf("run %s: page %d was asked for, of %d", p.id, r.page, p.pages)
			return run
		}
		hits[r.page]++
	}
	for page, n := range hits[1:] {
		if n == 0 {
			in.t.Errorf("run %s: page %d was never asked for", p.id, page+1)
		}
	}
	took := time.Duration(0)
	if run.Metadata.DurationMS != nil {
		took = time.Duration(*run.Metadata.DurationMS) * time.Millisecond
	}
	got := len(requests) - p.pages
	in.t.Logf("run %s of %d pages took %s: %d requests more than pages (at most %d): %v", p.id, p.pages, took, got, extra, repeated(requests))
	if got > extra {
		in.t.Errorf("run %s: %d requests more than pages, at most %d may be", p.id, got, extra)
	}
	checkOverlaps(in, p, requests)
	return run
}

// repeats is how many requests may be repeated because a part was killed or stalled:
// one when it is a process that sends, else none, for what it does not let us store is
// kept. But a Postgres that is away lets the leases of workers run out, and another
// worker may then take a page over.
func (in *installation) repeats(victim part) int {
	several := len(in.workers) > 1 || in.dev != nil && len(in.workers) > 0
	switch victim {
	case partDev, partWorker, partSender:
		return 1
	case partPostgres, partSession:
		if several {
			return 1
		}
	}
	return 0
}

// repeat is a page that was asked for more than once.
type repeat struct {
	Page    int
	Senders []int
	Began   []string
	Took    []string
}

func repeated(requests []request) []repeat {
	byPage := map[int]*repeat{}
	var order []int
	for _, r := range requests {
		if byPage[r.page] == nil {
			byPage[r.page] = &repeat{Page: r.page}
			order = append(order, r.page)
		}
		x := byPage[r.page]
		x.Senders = append(x.Senders, r.pid)
		x.Began = append(x.Began, r.began.Format("05.000"))
		took := "goes on"
		if !r.ended.IsZero() {
			took = r.ended.Sub(r.began).Round(time.Millisecond).String()
		}
		x.Took = append(x.Took, took)
	}
	var out []repeat
	slices.Sort(order)
	for _, page := range order {
		if len(byPage[page].Senders) > 1 {
			out = append(out, *byPage[page])
		}
	}
	return out
}

// checkOverlaps checks that no process had a page in flight twice at once.
func checkOverlaps(in *installation, p pull, requests []request) {
	in.t.Helper()
	for i, a := range requests {
		if a.pid == 0 {
			in.t.Errorf("run %s: the sender of a request for page %d was not found", p.id, a.page)
			return
		}
		for _, b := range requests[:i] {
			if a.page == b.page && a.pid == b.pid && (b.ended.IsZero() || b.ended.After(a.began)) {
				in.t.Errorf("run %s: process %d had page %d in flight twice at once", p.id, a.pid, a.page)
			}
		}
	}
}

// checkRecords checks the data of a successful run, record by record.
func (in *installation) checkRecords(p pull) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	res, err := in.client.Results(ctx, p.id)
	if err != nil || res.Data == nil {
		in.t.Errorf("results of run %s: %v", p.id, err)
		return
	}
	var merged struct {
		Data []demo.Order `json:"data"`
	}
	if err := json.Unmarshal(res.Data.Data, &merged); err != nil {
		in.t.Errorf("results of run %s: %v", p.id, err)
		return
	}
	got := merged.Data
	for i := range min(len(got), p.pages*perPage) {
		if want := in.upstream.demo.Order(i); !got[i].PlacedAt.Equal(want.PlacedAt) || got[i].ID != want.ID || got[i].TotalCents != want.TotalCents {
			in.t.Errorf("run %s: record %d is %s, not %s", p.id, i, got[i].ID, want.ID)
			return
		}
	}
	if len(got) != p.pages*perPage {
		in.t.Errorf("run %s has %d records, not %d", p.id, len(got), p.pages*perPage)
	}
	if rows := res.Data.StepResults; len(rows) != 1 || !rows[0].Success || rows[0].Pages != p.pages || rows[0].EndedBy != "noNext" {
		in.t.Errorf("run %s: its step results are not those of %d whole pages: %d rows", p.id, p.pages, len(rows))
	}
}
