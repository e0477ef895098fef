package app_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "stepwell/api/v1"
)

var seed = flag.Uint64("seed", 0, "first seed of the random upstreams; 0 takes one from the clock")

// TestSuccessIsComplete pulls from random upstreams: a run that says success has exactly
// the upstream's records, in order; else it says failed, and why. A sound upstream
// succeeds.
func TestSuccessIsComplete(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	count := 150
	if *long {
		count = 2000
	}
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano()) >> 20 << 12
	}
	t.Logf("seed %d", first)
	ups := make([]*randomUpstream, count)
	var mux sync.Map
	server := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		up, _ := mux.Load(strings.Split(r.URL.Path, "/")[1])
		up.(*randomUpstream).answer(w, r)
	})
	var running sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range ups {
		u := newRandomUpstream(first+uint64(i), server.URL)
		ups[i] = u
		mux.Store(u.name, u)
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			u.pull(t, n)
		})
	}
	running.Wait()
	outcomes := map[string]int{}
	for _, u := range ups {
		outcomes[u.kind+", "+u.trouble+": "+u.status]++
	}
	succeeded := 0
	for outcome, times := range outcomes {
		t.Log(times, outcome)
		if strings.HasSuffix(outcome, "success") {
			succeeded += times
		}
	}
	if succeeded < count/3 || succeeded == count {
		t.Errorf("%d of %d pulls succeeded: the test is not worth much", succeeded, count)
	}
}

// Troubles of an upstream. Sound are those in which a run must succeed.
const (
	troubleNone     = ""
	troubleBusy     = "busy for a moment" // sound
	troubleCut      = "cuts a connection" // sound
	troubleStatus   = "refuses a page"
	troubleBroken   = "sends half a page"
	troubleSignIn   = "asks to sign in"
	troubleCapped   = "caps its pages" // below what was asked for, and says how many records there are
	troubleRepeats  = "repeats a page"
	troubleLoses    = "loses the cursor" // in the middle, and says that there is more
	troubleShortens = "shortens a page"  // in the middle, and says how many records there are
)

// randomUpstream has some records in some pages, and maybe a trouble. What it answers
// depends on what it is asked alone, but for troubles that pass.
type randomUpstream struct {
	name, base string
	kind       string
	pages      [][]int  // the records
	cursors    []string // that lead to each page, as JSON
	records    int
	size       int // asked for
	limit      int // given at most, by page and offset
	shape      string
	says       string // how it says that there is more
	trouble    string
	at         int // the page that has it

	mu     sync.Mutex
	met    bool // a trouble that passes has passed
	status string
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func newRandomUpstream(seed uint64, base string) *randomUpstream {
	r := rand.New(rand.NewPCG(seed, 7))
	u := &randomUpstream{name: fmt.Sprintf("random-%d", seed), kind: pick(r, "cursorBased", "cursorBased", "nextUrl", "pageBased", "offsetBased"),
		size: 1 + r.IntN(9), shape: pick(r, "data", "items", "orders"), says: pick(r, "", "total", "has_more"),
		trouble: pick(r, troubleNone, troubleNone, troubleNone, troubleBusy, troubleCut, troubleStatus, troubleBroken, troubleSignIn,
			troubleCapped, troubleRepeats, troubleLoses, troubleShortens)}
	u.base = base + "/" + u.name
	u.limit = u.size
	walks := u.kind == "cursorBased" || u.kind == "nextUrl"
	if u.trouble == troubleCapped && u.size > 1 {
		u.limit = 1 + r.IntN(u.size-1)
	}
	switch {
	case u.trouble == troubleShortens:
		u.says = "total" // nothing else could tell
	case u.says == "" && (u.trouble == troubleCapped || u.trouble == troubleLoses):
		u.says = pick(r, "total", "has_more")
	}
	count := r.IntN(12)
	for i := range count {
		length := u.limit
		if walks {
			length = r.IntN(u.limit + 1) // short and empty pages in the middle
		} else if i == count-1 {
			length = r.IntN(u.limit)
		}
		page := []int{}
		for range length {
			page = append(page, u.records)
			u.records++
		}
		u.pages = append(u.pages, page)
	}
	if len(u.pages) == 0 {
		u.pages = [][]int{{}}
	}
	for i := range u.pages {
		u.cursors = append(u.cursors, oddCursor(r, i))
	}
	u.at = r.IntN(len(u.pages))
	return u
}

// oddCursor gives a cursor as JSON, another one for each page.
func oddCursor(r *rand.Rand, page int) string {
	text := pick(r, "c%d", "a b+%d", "ü/%d&x=y#z", "%d==", "{\"after\": %d}", "<<cursor>>%d", "%%20%d", "'%d\"", "null%d", "-%d\\")
	if r.IntN(4) == 0 {
		return fmt.Sprintf("900719925474099%03d", page) // more digits than a float keeps
	}
	quoted, _ := json.Marshal(fmt.Sprintf(text, page))
	return string(quoted)
}

func (u *randomUpstream) tool() string {
	query, pagination := `"limit":"<<limit>>"`, ""
	switch u.kind {
	case "cursorBased":
		query += `,"c":"<<cursor>>"`
		pagination = `,"cursorPath":"next"`
	case "nextUrl":
		pagination = `,"cursorPath":"next"`
	case "pageBased":
		query += `,"page":"<<page>>"`
	case "offsetBased":
		query += `,"offset":"<<offset>>"`
	}
	return fmt.Sprintf(`{"id":%q,"steps":[{"id":"pull","config":{"url":%q,"queryParams":{%s},"pagination":{"type":%q,"pageSize":%d%s}}}]}`,
		u.name, u.base, query, u.kind, u.size, pagination)
}

// pageOf is the index of the page that is asked for: -1 for none that was ever named.
func (u *randomUpstream) pageOf(q url.Values) int {
	switch u.kind {
	case "pageBased":
		n, err := strconv.Atoi(q.Get("page"))
		if err != nil || n < 1 {
			return -1
		}
		return n - 1
	case "offsetBased":
		n, err := strconv.Atoi(q.Get("offset"))
		if err != nil || n < 0 {
			return -1
		}
		return n / u.size
	}
	if !q.Has("c") {
		return 0
	}
	for i, c := range u.cursors {
		var text string
		if json.Unmarshal([]byte(c), &text) != nil {
			text = c
		}
		if text == q.Get("c") {
			return i
		}
	}
	return -1
}

// passing reports whether a trouble that passes is met now, for the first time.
func (u *randomUpstream) passing() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	met := u.met
	u.met = true
	return !met
}

func (u *randomUpstream) answer(w http.ResponseWriter, r *http.Request) {
	page := u.pageOf(r.URL.Query())
	if page < 0 {
		http.Error(w, "no such page", http.StatusBadRequest)
		return
	}
	if page == u.at {
		switch u.trouble {
		case troubleBusy:
			if u.passing() {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
		case troubleCut:
			if u.passing() {
				panic(http.ErrAbortHandler)
			}
		case troubleStatus:
			w.WriteHeader(http.StatusForbidden)
			return
		case troubleSignIn:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<h1>Please sign in</h1>")
			return
		}
	}
	body := u.body(page)
	if u.trouble == troubleBroken && page == u.at {
		body = body[:len(body)/2]
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, body)
}

// body is a page as JSON.
func (u *randomUpstream) body(page int) string {
	records, next := []int{}, page+1
	if page < len(u.pages) {
		records = u.pages[page]
	}
	if page == u.at {
		switch u.trouble {
		case troubleRepeats: // the page before, and the cursor that led here
			page = max(0, page-1)
			records, next = u.pages[page], page+1
		case troubleLoses:
			next = len(u.pages)
		case troubleShortens:
			records = records[:len(records)/2]
		}
	}
	fetched := 0
	for _, p := range u.pages[:min(page+1, len(u.pages))] {
		fetched += len(p)
	}
	listed, _ := json.Marshal(records)
	out := fmt.Sprintf(`{"noise":[%d],%q:%s`, page, u.shape, listed)
	if u.shape == "orders" {
		out = fmt.Sprintf(`{%q:%s`, u.shape, listed)
	}
	if next < len(u.pages) {
		switch u.kind {
		case "cursorBased":
			out += `,"next":` + u.cursors[next]
		case "nextUrl":
			var text string
			if json.Unmarshal([]byte(u.cursors[next]), &text) != nil {
				text = u.cursors[next]
			}
			out += fmt.Sprintf(`,"next":"?c=%s"`, url.QueryEscape(text))
		}
	}
	switch u.says {
	case "total":
		out += fmt.Sprintf(`,"total":%d`, u.records)
	case "has_more":
		out += fmt.Sprintf(`,"pagination":{"has_more":%v}`, fetched < u.records)
	}
	return out + "}"
}

// sound reports whether the pull must succeed. Where a trouble happens to change
// nothing, either end is right.
func (u *randomUpstream) sound() bool {
	return u.trouble == troubleNone || u.trouble == troubleBusy || u.trouble == troubleCut
}

// pull runs the tool and checks what comes of it.
func (u *randomUpstream) pull(t *testing.T, n *node) {
	var create v1.ToolCreate
	if err := json.Unmarshal([]byte(u.tool()), &create); err != nil {
		t.Error(err)
		return
	}
	_, err := n.api.CreateTool(t.Context(), create)
	var run *v1.Run
	if err == nil {
		run, err = n.api.Run(t.Context(), u.name, v1.RunRequest{})
	}
	if err != nil {
		t.Errorf("%s: %v", u.name, err)
		return
	}
	u.status = run.Status
	complain := func(format string, args ...any) {
		t.Errorf("%s (%s, %s at page %d of %d, says %q): %s", u.name, u.kind, u.trouble, u.at+1, len(u.pages), u.says, fmt.Sprintf(format, args...))
	}
	if run.Status != "success" {
		if u.sound() {
			complain("a sound upstream failed: %s", run.Error)
		}
		if !strings.HasPrefix(run.Error, "Step 1 (pull): ") || len(run.Error) < 30 || run.Data != nil {
			complain("it failed and says %q, with %d bytes of data", run.Error, len(run.Data))
		}
		return
	}
	var data map[string]json.RawMessage
	if err := json.Unmarshal(run.Data, &data); err != nil {
		complain("the data is %.200s", run.Data)
		return
	}
	var records []int
	if err := json.Unmarshal(data[u.shape], &records); err != nil {
		complain("the records are %.200s", data[u.shape])
		return
	}
	for i, r := range records {
		if r != i {
			complain("record %d is number %d", i, r)
			return
		}
	}
	if len(records) != u.records {
		complain("a success with %d of %d records", len(records), u.records)
	}
	if row := run.StepResults[0]; row.Items == nil || *row.Items != int64(u.records) {
		complain("the step says %+v of %d records", row, u.records)
	}
}
