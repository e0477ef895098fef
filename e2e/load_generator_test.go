package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// caller calls the API without a client's comfort: it sees statuses and headers.
type caller struct{ http *http.Client }

func newCaller() *caller {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 1000, 1000
	transport.DisableCompression = true
	return &caller{&http.Client{Transport: transport}}
}

// answer is what a call came to.
type answer struct {
	status     int // 0 when there was none
	retryAfter string
	body       []byte
	err        error
	took       time.Duration
}

// call sends one request; body "" means a GET.
func (c *caller) call(ctx context.Context, url, body string) answer {
	began := time.Now()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, reader = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	res, err := c.http.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Retry-After"), text, err, time.Since(began)}
}

// rate is what a load at a fixed rate came to. Latencies count from the moment when a
// request was due, whether or not its sender was free then.
type rate struct {
	asked     float64 // requests a second
	lasted    time.Duration
	latencies []time.Duration // sorted
	failures  []string
}

// generate sends requests at a fixed rate for a time; send says what is wrong with an
// answer. At most `senders` are under way at once.
func generate(ctx context.Context, perSecond float64, d time.Duration, senders int, send func(ctx context.Context, i int) error) rate {
	total := int(perSecond * d.Seconds())
	latencies := make([]time.Duration, total)
	var next atomic.Int64
	var mu sync.Mutex
	var failures []string
	var all sync.WaitGroup
	began := time.Now()
	for range senders {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= total || ctx.Err() != nil {
					return
				}
				due := began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
				time.Sleep(time.Until(due))
				if err := send(ctx, i); err != nil {
					mu.Lock()
					failures = append(failures, err.Error())
					mu.Unlock()
				}
				latencies[i] = time.Since(due)
			}
		})
	}
	all.Wait()
	slices.Sort(latencies)
	return rate{perSecond, time.Since(began), latencies, failures}
}

// check reports a load and checks that every answer was right and 99 of 100 in time, and,
// on a machine of its own, that the rate was kept up.
func (r rate) check(t testing.TB, what string, p99 time.Duration) {
	t.Helper()
	reached := float64(len(r.latencies)) / r.lasted.Seconds()
	t.Logf("%s: %.0f a second asked for, %.0f reached, %d in all; %s", what, r.asked, reached, len(r.latencies), percentiles(r.latencies))
	if len(r.failures) > 0 {
		t.Errorf("%s: %d wrong answers, the first: %s", what, len(r.failures), r.failures[0])
	}
	if at := r.latencies[len(r.latencies)*99/100]; at > p99+*slack {
		t.Errorf("%s: one of 100 took %s", what, at)
	}
	if reached < 0.9*r.asked && *slack == 0 {
		t.Errorf("%s: %.0f a second were reached, not %.0f", what, reached, r.asked)
	}
}

// cpu gives the processor time that a process has used, in hundredths of a second (the
// system's unit for processes' times).
func cpu(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // from the state on; user and system time are the 12th and 13th
	if len(fields) < 13 {
		return 0, fmt.Errorf("the times of process %d are not there", pid)
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}
