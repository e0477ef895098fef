package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"stepwell"
	"stepwell/engine"
)

// Whatever an upstream does, a pull that succeeds has exactly its records, in
// order, and one that is well-behaved succeeds.
func TestSuccessMeansComplete(t *testing.T) {
	t.Parallel()
	succeeded := 0
	for seed := range uint64(3000) {
		u := newRandomUpstream(rand.New(rand.NewPCG(seed, 1)))
		r := &runner{t: t, tool: u.tool(), in: runInput{}, send: u.send}
		got := r.run()
		switch {
		case got.Error != "" && u.fault == "":
			t.Errorf("seed %d: %+v: a sound upstream failed: %s", seed, u, got.Error)
		case got.Error == "" && !u.complete(t, got.Data):
			t.Errorf("seed %d: %+v: a success without its records: %.300s", seed, u, got.Data)
		case got.Error == "" && got.Items != int64(u.records):
			t.Errorf("seed %d: %d items, want %d", seed, got.Items, u.records)
		case got.Error == "":
			succeeded++
		}
	}
	if succeeded < 1000 {
		t.Errorf("only %d of 3000 pulls succeeded: the test is not worth much", succeeded)
	}
}

// randomUpstream serves records 0 to records-1, some number of them in a page, in
// one of several shapes, soundly or with a fault.
type randomUpstream struct {
	rng      *rand.Rand
	records  int
	kind     string
	size     int    // asked for in a page
	limit    int    // that the upstream gives at most
	shape    string // of the answer
	metadata string // by which it tells that there is more
	fault    string
	calls    int
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func newRandomUpstream(rng *rand.Rand) *randomUpstream {
	u := &randomUpstream{
		rng: rng, records: rng.IntN(40), size: 1 + rng.IntN(9),
		kind:     pick(rng, "offsetBased", "pageBased", "cursorBased", "nextUrl"),
		shape:    pick(rng, "data", "orders", "deep"),
		metadata: pick(rng, "", "total", "meta.total_count", "hasMore", "paging.has_more"),
		fault:    pick(rng, "", "", "", "capped", "stuck", "loop", "lost cursor", "unsized"),
	}
	u.limit = u.size
	switch u.fault {
	case "capped": // noticed by the metadata only
		u.limit = max(1, u.size-1-rng.IntN(u.size))
		if u.metadata == "" {
			u.metadata = "total"
		}
	case "lost cursor":
		if u.metadata == "" {
			u.metadata = "hasMore"
		}
	case "unsized":
		u.limit = u.size + 1 + rng.IntN(3)
	}
	return u
}

func (u *randomUpstream) tool() *stepwell.Tool {
	quoted := func(s string) json.RawMessage { return json.RawMessage(strconv.Quote(s)) }
	cfg := stepwell.StepConfig{URL: "https://api.test/r", QueryParams: map[string]json.RawMessage{"limit": quoted("<<limit>>")},
		Pagination: &stepwell.Pagination{Type: u.kind, PageSize: json.RawMessage(strconv.Itoa(u.size))}}
	switch u.kind {
	case "offsetBased":
		cfg.QueryParams["from"] = quoted("<<offset>>")
	case "pageBased":
		cfg.QueryParams["page"] = quoted("<<page>>")
	case "cursorBased":
		cfg.QueryParams["from"] = quoted("<<(s) => s.cursor>>")
		cfg.Pagination.CursorPath = "next.token"
	case "nextUrl":
		cfg.Pagination.CursorPath = "next.token"
	}
	if u.shape == "deep" {
		cfg.Pagination.ItemsPath = "page.rows"
	}
	return &stepwell.Tool{ID: "t", Steps: []stepwell.Step{{ID: "pull", Config: cfg}}}
}

func (u *randomUpstream) send(req *engine.Request) (*engine.Answer, error) {
	addr, err := url.Parse(req.URL)
	if err != nil {
		return nil, err
	}
	if u.calls++; u.calls > 500 {
		return nil, &engine.StepError{Message: "the pull does not end"}
	}
	q := addr.Query()
	limit := u.limit
	walks := u.kind == "cursorBased" || u.kind == "nextUrl"
	if walks && u.fault != "loop" && u.fault != "stuck" {
		limit = 1 + u.rng.IntN(u.limit) // pages of any length
	}
	from, _ := strconv.Atoi(q.Get("from"))
	if page, err := strconv.Atoi(q.Get("page")); err == nil {
		from = (page - 1) * u.limit
	}
	if u.fault == "stuck" {
		from = 0
	}
	to := min(u.records, max(from, from+limit))
	answer := map[string]any{"noise": "x", "n": u.calls}
	rows := []string{}
	for i := from; i < to; i++ {
		rows = append(rows, fmt.Sprintf("record %d", i))
	}
	switch u.shape {
	case "deep":
		answer["page"] = map[string]any{"rows": rows, "more": []int{1}}
	default:
		answer[u.shape] = rows
	}
	if to < u.records {
		u.setNext(answer, to)
	}
	u.setMetadata(answer, to)
	body, err := json.Marshal(answer)
	return &engine.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, URL: req.URL}, err
}

func (u *randomUpstream) setNext(answer map[string]any, to int) {
	if u.fault == "lost cursor" && u.rng.IntN(3) == 0 {
		return
	}
	if u.fault == "loop" && u.rng.IntN(3) == 0 {
		to = u.limit * u.rng.IntN(to/u.limit+1) // a page that was asked for before
	}
	switch u.kind {
	case "cursorBased":
		answer["next"] = map[string]string{"token": strconv.Itoa(to)}
	case "nextUrl":
		answer["next"] = map[string]string{"token": fmt.Sprintf("?from=%d", to)}
	}
}

func (u *randomUpstream) setMetadata(answer map[string]any, to int) {
	outer, name, nested := strings.Cut(u.metadata, ".")
	if !nested {
		outer, name = "", outer
	}
	var value any = u.records
	switch name {
	case "":
		return
	case "hasMore", "has_more":
		value = to < u.records
	}
	if nested {
		answer[outer] = map[string]any{name: value}
		return
	}
	answer[name] = value
}

func (u *randomUpstream) complete(t *testing.T, data json.RawMessage) bool {
	var answer map[string]json.RawMessage
	unmarshal(t, data, &answer)
	raw := answer[u.shape]
	if u.shape == "deep" {
		var page struct{ Rows json.RawMessage }
		unmarshal(t, answer["page"], &page)
		raw = page.Rows
	}
	var rows []string
	unmarshal(t, raw, &rows)
	for i, row := range rows {
		if row != fmt.Sprintf("record %d", i) {
			return false
		}
	}
	return len(rows) == u.records
}
