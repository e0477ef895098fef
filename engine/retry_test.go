package engine

import (
	"strings"
	"testing"
	"time"
)

func seconds(n float64) *time.Duration {
	d := time.Duration(n * float64(time.Second))
	return &d
}

func TestRetry(t *testing.T) {
	t.Parallel()
	const none = -1 * time.Second
	for name, c := range map[string]struct {
		a      Attempt
		after  time.Duration // none: not again
		counts bool
		reason string // held by the reason
	}{
		"first 500 of a GET":        {Attempt{Number: 1, Repeatable: true, Status: 500, Rand: 0.5}, time.Second, true, "attempt 2 of 5 after status 500"},
		"lowest jitter":             {Attempt{Number: 1, Repeatable: true, Status: 500}, 800 * time.Millisecond, true, ""},
		"highest jitter":            {Attempt{Number: 3, Repeatable: true, Status: 503, Rand: 0.99999}, 4799984 * time.Microsecond, true, ""},
		"fourth":                    {Attempt{Number: 4, Repeatable: true, Status: 599, Rand: 0.5}, 8 * time.Second, true, ""},
		"fifth":                     {Attempt{Number: 5, Repeatable: true, Status: 500}, none, false, "after 5 attempts"},
		"408":                       {Attempt{Number: 1, Repeatable: true, Status: 408, Rand: 0.5}, time.Second, true, ""},
		"425":                       {Attempt{Number: 1, Repeatable: true, Status: 425, Rand: 0.5}, time.Second, true, ""},
		"404":                       {Attempt{Number: 1, Repeatable: true, Status: 404}, none, false, ""},
		"404 with Retry-After":      {Attempt{Number: 1, Repeatable: true, Status: 404, RetryAfter: seconds(1)}, none, false, ""},
		"301":                       {Attempt{Number: 1, Repeatable: true, Status: 301}, none, false, ""},
		"network of a GET":          {Attempt{Number: 2, Repeatable: true, Network: NetworkOther, Sent: true, Rand: 0.5}, 2 * time.Second, true, "a network error"},
		"timeout of a GET":          {Attempt{Number: 1, Repeatable: true, Network: NetworkTimeout, Sent: true, Rand: 0.5}, time.Second, true, "a timeout"},
		"second timeout":            {Attempt{Number: 2, Repeatable: true, Network: NetworkTimeout, Sent: true, Timeouts: 1}, none, false, "two timeouts"},
		"POST refused":              {Attempt{Number: 1, Network: NetworkRefused, Rand: 0.5}, time.Second, true, "a refused connection"},
		"POST refused, said sent":   {Attempt{Number: 1, Network: NetworkRefused, Sent: true, Rand: 0.5}, time.Second, true, ""},
		"POST never sent":           {Attempt{Number: 1, Network: NetworkOther, Rand: 0.5}, time.Second, true, ""},
		"POST cut off":              {Attempt{Number: 1, Network: NetworkOther, Sent: true}, none, false, ""},
		"POST timed out":            {Attempt{Number: 1, Network: NetworkTimeout, Sent: true}, none, false, ""},
		"POST 500":                  {Attempt{Number: 1, Status: 500}, none, false, ""},
		"POST 500 with Retry-After": {Attempt{Number: 1, Status: 500, RetryAfter: seconds(1)}, none, false, ""},
		"POST 503":                  {Attempt{Number: 1, Status: 503}, none, false, ""},
		"POST 503 with Retry-After": {Attempt{Number: 1, Status: 503, RetryAfter: seconds(7)}, 7 * time.Second, false, "asked to wait"},
		"POST 429":                  {Attempt{Number: 1, Status: 429}, time.Second, false, "asked to wait (status 429)"},
		"429, third wait":           {Attempt{Number: 1, Status: 429, Waits: 2}, 4 * time.Second, false, ""},
		"429, many waits":           {Attempt{Number: 1, Status: 429, Waits: 50}, time.Minute, false, ""},
		"429 asks for time":         {Attempt{Number: 5, Status: 429, RetryAfter: seconds(90)}, 90 * time.Second, false, ""},
		"429 asks for none":         {Attempt{Number: 1, Status: 429, RetryAfter: seconds(0)}, 50 * time.Millisecond, false, ""},
		"again for none":            {Attempt{Number: 1, Status: 429, RetryAfter: seconds(0), Waits: 30}, time.Second, false, ""},
		"past the fifth attempt":    {Attempt{Number: 5, Repeatable: true, Status: 502, RetryAfter: seconds(3)}, 3 * time.Second, false, ""},
		"just an hour":              {Attempt{Number: 1, Status: 429, RetryAfter: seconds(3600)}, time.Hour, false, ""},
		"over an hour":              {Attempt{Number: 1, Status: 429, RetryAfter: seconds(3601)}, none, false, "1h0m1s more"},
		"over an hour together":     {Attempt{Number: 1, Status: 429, RetryAfter: seconds(60), Waits: 9, Waited: time.Hour - 59*time.Second}, none, false, "may reach 1h0m0s together"},
		"a limit of one's own":      {Attempt{Number: 1, Status: 503, Repeatable: true, RetryAfter: seconds(6), MaxWaited: 5 * time.Second}, none, false, "5s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, counts, again, reason := Retry(c.a)
			if !again {
				after = none
			}
			if (after-c.after).Abs() > time.Microsecond || counts != c.counts || !strings.Contains(reason, c.reason) {
				t.Errorf("%v %v %q, want %v %v %q", after, counts, reason, c.after, c.counts, c.reason)
			}
		})
	}
}

// However an upstream answers, a request ends: waits grow to an hour, attempts to five.
func TestRetryEnds(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 429, 503} {
		for _, ask := range []*time.Duration{nil, seconds(0), seconds(10)} {
			a := Attempt{Number: 1, Repeatable: true, Status: status, RetryAfter: ask, Network: NetworkOther, Sent: true}
			for n := 0; ; n++ {
				after, counts, again, _ := Retry(a)
				if !again {
					break
				}
				if n > 4000 || after <= 0 {
					t.Fatalf("status %d, Retry-After %v: request %d after %v", status, ask, n, after)
				}
				if counts {
					a.Number++
				} else {
					a.Waits, a.Waited = a.Waits+1, a.Waited+after
				}
			}
			if a.Number > MaxAttempts || a.Waited > DefaultMaxWaited {
				t.Errorf("status %d: %d attempts, waited %v", status, a.Number, a.Waited)
			}
		}
	}
}
