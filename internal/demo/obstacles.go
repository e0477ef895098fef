package demo

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// maxDelay bounds ?delay=.
const maxDelay = 10 * time.Minute

// obstacles are what stands between a request and its answer.
type obstacles struct {
	delay      time.Duration
	failEvery  int
	loseEvery  int
	failTimes  int
	failStatus int
	retryAfter string
	rate       int
}

// obstacles reads the query values that make the upstream slow, flaky or strict.
// The route's own delay holds unless the query names one.
func (s *Server) obstacles(q url.Values, delay time.Duration) (obstacles, error) {
	o := obstacles{delay: max(s.opts.Delay, delay), retryAfter: q.Get("retryAfter")}
	if text := q.Get("delay"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > maxDelay {
			return o, badRequest("delay must be a duration such as 500ms, at most 10m")
		}
		o.delay = d
	}
	for _, v := range []struct {
		value           *int
		name            string
		fallback        int
		least, greatest int
	}{
		{&o.failEvery, "fail", s.opts.FailEvery, 0, maxOrders},
		{&o.loseEvery, "lose", 0, 0, maxOrders},
		{&o.failTimes, "failTimes", s.opts.FailTimes, 1, maxOrders},
		{&o.failStatus, "failStatus", http.StatusInternalServerError, 400, 599},
		{&o.rate, "rate", 0, 0, maxOrders},
	} {
		n, err := number(q, v.name, v.fallback, v.least, v.greatest)
		if err != nil {
			return o, err
		}
		*v.value = n
	}
	return o, nil
}

// hit reports whether an obstacle that stands at every N-th page is met by the
// n-th request for a page: by failTimes in a row, then not by one, and so on.
func (o obstacles) hit(every, page, n int) bool {
	return every > 0 && page%every == 0 && (n-1)%(o.failTimes+1) < o.failTimes
}

// wait waits for the delay; false when the request or the server ended first.
func (o obstacles) wait(r *http.Request) bool {
	if o.delay == 0 {
		return true
	}
	timer := time.NewTimer(o.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// number reads a whole number out of the query.
func number(q url.Values, name string, fallback, least, greatest int) (int, error) {
	text := q.Get(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > greatest {
		return 0, badRequest(name + " must be a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(greatest))
	}
	return n, nil
}

// maxWindows bounds the run keys and routes whose rate is remembered.
const maxWindows = 10_000

// limiter counts the requests of each run key and route in windows of a second.
type limiter struct {
	mu      sync.Mutex
	windows map[windowKey]*window
}

type windowKey struct{ run, route string }

type window struct {
	since time.Time
	count int
}

func newLimiter() *limiter { return &limiter{windows: map[windowKey]*window{}} }

// allow reports whether one more request fits into the rate now.
func (l *limiter) allow(run, route string, perSecond int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := windowKey{run, route}
	w := l.windows[key]
	if w == nil {
		if len(l.windows) >= maxWindows {
			clear(l.windows)
		}
		w = &window{since: now}
		l.windows[key] = w
	}
	if now.Sub(w.since) >= time.Second {
		w.since, w.count = now, 0
	}
	if w.count >= perSecond {
		return false
	}
	w.count++
	return true
}

func (l *limiter) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.windows)
}
