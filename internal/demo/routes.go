package demo

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// answer is what a route has decided to say. Page is the page that the request
// is counted for. Status 0 means 200, contentType "" means JSON.
type answer struct {
	page        int
	status      int
	contentType string
	header      map[string]string
	body        func(dst []byte) []byte // appends the body
}

// failure is an error that the caller made, with the status it becomes.
type failure struct {
	status  int
	message string
}

func (f *failure) Error() string { return f.message }

func badRequest(message string) error { return &failure{http.StatusBadRequest, message} }
func notFound(message string) error   { return &failure{http.StatusNotFound, message} }

// route decides the answer to a request. It must be quick and wait for nothing:
// the obstacles come after it, because they need to know the page.
type route func(r *http.Request, q url.Values) (answer, error)

// endpoint is one row of the route table.
type endpoint struct {
	method, path string // method "" takes any
	answer       route
	effects      bool          // it is decided when the obstacles have been passed
	delay        time.Duration // unless the query names one
}

// name is what the endpoint's requests are counted under.
func (e endpoint) name() string {
	if e.effects {
		return e.method + " " + e.path
	}
	return e.path
}

// routes is the table of all routes, once as they are and once under each way
// to authenticate.
func (s *Server) routes() http.Handler {
	table := []endpoint{
		{method: "GET", path: "/customers", answer: s.listCustomers},
		{method: "GET", path: "/customers/{id}", answer: s.getCustomer},
		{method: "GET", path: "/orders", answer: s.ordersByCursor},
		{method: "GET", path: "/orders/by-page", answer: s.ordersByPage},
		{method: "GET", path: "/orders/by-offset", answer: s.ordersByOffset},
		{method: "GET", path: "/orders/by-link", answer: s.ordersByLink},
		{method: "GET", path: "/orders/by-next", answer: s.ordersByNext},
		{method: "GET", path: "/orders/{id}", answer: s.getOrder},
		{method: "POST", path: "/orders", answer: s.createOrder, effects: true},
		{method: "GET", path: "/exports/orders.csv", answer: s.exportCSV},
		{method: "GET", path: "/exports/orders.ndjson", answer: s.exportNDJSON},
		{method: "GET", path: "/reports", answer: s.report, delay: 500 * time.Millisecond},
		{path: "/echo", answer: s.echo},
	}
	mux := http.NewServeMux()
	for _, e := range table {
		h := s.handler(e)
		mux.Handle(strings.TrimSpace(e.method+" "+e.path), h)
		for _, scheme := range s.auth.schemes() {
			mux.Handle(strings.TrimSpace(e.method+" /auth/"+scheme.name+e.path), scheme.guard(h))
		}
	}
	mux.HandleFunc("POST /oauth/token", s.auth.issue)
	mux.HandleFunc("GET /_stats", s.getStats)
	mux.HandleFunc("DELETE /_stats", s.deleteStats)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		sendError(w, notFound("no such route"))
	})
	return mux
}

// buffers holds the bytes of answers between requests.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}

// handler counts a request, puts the obstacles in its way and sends its answer.
// An answer with effects is decided after the obstacles, others before them.
func (s *Server) handler(e endpoint) http.Handler {
	name := e.name()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		blocks, err := s.obstacles(q, e.delay)
		a := answer{page: 1}
		if err == nil && !e.effects {
			a, err = e.answer(r, q)
		}
		run := runKey(r, q)
		if len(run) > maxRunKey {
			err = badRequest("the run key is too long")
		}
		if err != nil {
			sendError(w, err)
			return
		}
		hit, end := s.recorder.begin(PageKey{run, name, a.page})
		status := 0
		defer func() { end(status) }()

		if blocks.rate > 0 && !s.limiter.allow(run, name, blocks.rate, time.Now()) {
			w.Header().Set("Retry-After", "1")
			status = sendError(w, &failure{http.StatusTooManyRequests, "too many requests"})
			return
		}
		if !blocks.wait(r) {
			return
		}
		if blocks.hit(blocks.failEvery, a.page, hit) {
			if blocks.retryAfter != "" {
				w.Header().Set("Retry-After", blocks.retryAfter)
			}
			status = sendError(w, &failure{blocks.failStatus, "this request was told to fail"})
			return
		}
		if e.effects {
			if a, err = e.answer(r, q); err != nil {
				status = sendError(w, err)
				return
			}
		}
		if blocks.hit(blocks.loseEvery, a.page, hit) {
			panic(http.ErrAbortHandler) // net/http's way to cut a connection
		}
		status = a.send(w)
	})
}

// maxRunKey bounds a run key, in bytes: keys are kept.
const maxRunKey = 300

// runKey is the key that a request is counted under.
func runKey(r *http.Request, q url.Values) string {
	if run := q.Get("run"); run != "" {
		return run
	}
	return r.Header.Get("X-Run-Key")
}

// jsonType is shared by all answers: setting it allocates nothing.
var jsonType = []string{"application/json"}

// send writes the answer and gives its status.
func (a answer) send(w http.ResponseWriter) int {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	*buf = a.body((*buf)[:0])

	h := w.Header()
	h["Content-Type"] = jsonType
	if a.contentType != "" {
		h.Set("Content-Type", a.contentType)
	}
	h["Content-Length"] = []string{strconv.Itoa(len(*buf))}
	for name, value := range a.header {
		h.Set(name, value)
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(*buf) // the sender may be gone; the request is counted either way
	return a.status
}

// sendError answers with an error's text and gives the status.
func sendError(w http.ResponseWriter, err error) int {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{http.StatusInternalServerError, "internal error"}
	}
	return answer{status: f.status, body: func(dst []byte) []byte {
		return appendJSON(dst, map[string]string{"error": f.message})
	}}.send(w)
}

// getStats answers GET /_stats: everything, or with ?run=KEY what was counted
// under that key, its starts among it.
func (s *Server) getStats(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	stats := s.recorder.stats(q.Get("run"), !q.Has("run"))
	stats.Created = s.orders.count()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(stats) // the sender may be gone
}

// deleteStats answers DELETE /_stats: it forgets everything counted.
func (s *Server) deleteStats(w http.ResponseWriter, _ *http.Request) {
	s.Reset()
	w.WriteHeader(http.StatusNoContent)
}
