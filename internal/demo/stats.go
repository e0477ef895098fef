package demo

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// maxRecorded bounds the pages and the starts that are kept, each: an upstream
// that runs for days must not grow. About 100 MB together. What comes later
// still counts in Total.
const maxRecorded = 1_000_000

// PageKey names what is counted. Run is the run key that the request brought
// (query value `run` or header X-Run-Key), "" without one. Route is the path of
// the route, for example /orders or /orders/by-page (POST /orders is
// "POST /orders"). Page counts from 1; routes without pages are page 1.
type PageKey struct {
	Run   string `json:"run,omitempty"`
	Route string `json:"route"`
	Page  int    `json:"page"`
}

// PageStats is what is known about the requests for one page.
type PageStats struct {
	PageKey
	Hits          int `json:"hits"`          // requests begun
	InFlight      int `json:"inFlight"`      // requests not yet answered
	MaxConcurrent int `json:"maxConcurrent"` // the most that were in flight at once
}

// Start is one request of a run key. Status is 0 while it is in flight and
// when its sender hung up before the answer.
type Start struct {
	At     time.Time `json:"at"`
	Route  string    `json:"route"`
	Page   int       `json:"page"`
	Status int       `json:"status"`
}

// Stats is the answer of GET /_stats.
type Stats struct {
	Total     int64       `json:"total"`   // requests begun
	Created   int         `json:"created"` // orders made by POST /orders
	Truncated bool        `json:"truncated,omitempty"`
	Pages     []PageStats `json:"pages"`
	Starts    []Start     `json:"starts,omitempty"` // of the run key asked for
}

// recorder counts requests. It is safe for concurrent use.
type recorder struct {
	mu        sync.Mutex
	total     int64
	pages     map[PageKey]*PageStats
	starts    map[string][]*Start // by run key, in order
	recorded  int                 // starts kept
	truncated bool
}

func newRecorder() *recorder {
	return &recorder{pages: map[PageKey]*PageStats{}, starts: map[string][]*Start{}}
}

// begin counts a request. It gives the number of the request for its page, from
// 1, and a function that must be called once with the status it was answered.
func (r *recorder) begin(key PageKey) (hit int, end func(status int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	page := r.pages[key]
	if page == nil {
		page = &PageStats{PageKey: key}
		if len(r.pages) < maxRecorded {
			r.pages[key] = page
		} else {
			r.truncated = true
		}
	}
	page.Hits++
	page.InFlight++
	page.MaxConcurrent = max(page.MaxConcurrent, page.InFlight)
	start := r.keepStart(key)
	return page.Hits, func(status int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		page.InFlight--
		start.Status = status
	}
}

// keepStart notes the start of a request that brought a run key. The lock is held.
func (r *recorder) keepStart(key PageKey) *Start {
	start := &Start{At: time.Now().UTC(), Route: key.Route, Page: key.Page}
	switch {
	case key.Run == "":
	case r.recorded < maxRecorded:
		r.recorded++
		r.starts[key.Run] = append(r.starts[key.Run], start)
	default:
		r.truncated = true
	}
	return start
}

// page gives what is known of one page.
func (r *recorder) page(key PageKey) PageStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pages[key]; p != nil {
		return *p
	}
	return PageStats{PageKey: key}
}

// startsOf gives the requests of a run key in the order of their start.
func (r *recorder) startsOf(run string) []Start {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := make([]Start, 0, len(r.starts[run]))
	for _, s := range r.starts[run] {
		starts = append(starts, *s)
	}
	return starts
}

// stats gives everything of one run key, or of all when all is true, in the
// order of run, route and page.
func (r *recorder) stats(run string, all bool) Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{Total: r.total, Truncated: r.truncated, Pages: []PageStats{}}
	for key, p := range r.pages {
		if all || key.Run == run {
			s.Pages = append(s.Pages, *p)
		}
	}
	slices.SortFunc(s.Pages, func(a, b PageStats) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Page, b.Page))
	})
	for _, start := range r.starts[run] {
		s.Starts = append(s.Starts, *start)
	}
	return s
}

// reset forgets everything. Requests in flight end without a trace.
func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total, r.recorded, r.truncated = 0, 0, false
	clear(r.pages)
	clear(r.starts)
}
