package engine

import (
	"fmt"
	"math"
	"net/http"
	"time"
)

// Limits of retries. Source: the interface's decisions, section 3.
const (
	MaxAttempts = 5                // attempts of one repeatable request
	firstWait   = time.Second      // before the second attempt; doubles
	maxBackoff  = 60 * time.Second // of one wait that nobody asked for
	jitter      = 0.2              // of a wait, up or down
	// DefaultMaxWaited bounds the waits of one request that 429 and Retry-After ask for.
	DefaultMaxWaited = time.Hour
)

// NetworkError says why a request got no answer.
type NetworkError string

// Reasons of a request without an answer; empty when there was one.
const (
	NetworkRefused NetworkError = "refused" // the connection was refused: nothing was done
	NetworkTimeout NetworkError = "timeout" // the request ran into its timeout
	NetworkOther   NetworkError = "other"   // any other failure below HTTP
)

// Attempt is one failed attempt of a request.
type Attempt struct {
	Number     int            // of attempts that counted, this one included, from 1
	Repeatable bool           // stepwell.Step.Repeatable
	Status     int            // 0 without an answer
	RetryAfter *time.Duration // of the answer; nil without one
	Network    NetworkError   // empty with an answer
	What       string         // names the failure in a reason, in place of Status and Network
	Sent       bool           // false only when it is proved that no byte of the request left
	Timeouts   int            // attempts before this one that ran into their timeout
	Waits      int            // waits so far that a 429 or Retry-After asked for
	Waited     time.Duration  // their sum
	MaxWaited  time.Duration  // bound of that sum; 0 means DefaultMaxWaited
	Rand       float64        // in [0, 1): where in its jitter a wait lies
}

// Retry decides what follows a failed attempt. again tells whether the request goes
// out again, then after a wait of at least after; countsAttempt tells whether the
// next one uses up an attempt, or the wait was asked for by the upstream and adds to
// Waits and Waited instead. reason is public: what is waited for or, when again is
// false, why it is not tried any more, empty when such a failure never is.
func Retry(a Attempt) (after time.Duration, countsAttempt bool, again bool, reason string) {
	if asked(a) {
		return askedWait(a)
	}
	if !retryable(a) {
		return 0, false, false, ""
	}
	what := fmt.Sprintf("status %d", a.Status)
	if a.Status == 0 {
		what = map[NetworkError]string{NetworkRefused: "a refused connection", NetworkTimeout: "a timeout"}[a.Network]
		if what == "" {
			what = "a network error"
		}
	}
	if a.What != "" {
		what = a.What
	}
	if a.Network == NetworkTimeout && a.Timeouts > 0 {
		return 0, false, false, "gave up after two timeouts"
	}
	if a.Number >= MaxAttempts {
		return 0, false, false, fmt.Sprintf("gave up after %d attempts", a.Number)
	}
	wait := backoff(a.Number)
	wait = time.Duration(float64(wait) * (1 - jitter + 2*jitter*a.Rand))
	return wait, true, true, fmt.Sprintf("attempt %d of %d after %s", a.Number+1, MaxAttempts, what)
}

// asked tells a failure whose wait the upstream asks for and that is worth one:
// 429, or a Retry-After with a status that may pass. For what is not repeatable,
// only 429 and 503 prove that nothing was done.
func asked(a Attempt) bool {
	switch {
	case a.Status == http.StatusTooManyRequests:
		return true
	case a.RetryAfter == nil:
		return false
	case a.Repeatable:
		return passing(a.Status)
	}
	return a.Status == http.StatusServiceUnavailable
}

func askedWait(a Attempt) (time.Duration, bool, bool, string) {
	limit := a.MaxWaited
	if limit <= 0 {
		limit = DefaultMaxWaited
	}
	wait := backoff(a.Waits + 1)
	if a.RetryAfter != nil {
		// A Retry-After of nothing, again and again, must not become a hot loop.
		wait = max(*a.RetryAfter, min(time.Second, 50*time.Millisecond<<min(a.Waits, 10)))
	} else {
		wait = time.Duration(float64(wait) * (1 + jitter*a.Rand))
	}
	if wait > limit-a.Waited {
		return 0, false, false, fmt.Sprintf("gave up: the upstream asks to wait %s more after status %d, and the waits for one request may reach %s together", wait.Round(time.Millisecond), a.Status, limit)
	}
	return wait, false, true, fmt.Sprintf("the upstream asked to wait (status %d)", a.Status)
}

// retryable tells a failure that may pass and after which the request may go out
// again.
func retryable(a Attempt) bool {
	if a.Status == 0 {
		return a.Repeatable || !a.Sent || a.Network == NetworkRefused
	}
	return a.Repeatable && passing(a.Status)
}

// passing tells the statuses that may pass by themselves.
func passing(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooEarly || status >= 500 && status <= 599
}

// backoff is the wait before attempt n+1, without jitter.
func backoff(n int) time.Duration {
	if n > 7 {
		return maxBackoff
	}
	return min(maxBackoff, firstWait*time.Duration(math.Pow(2, float64(n-1))))
}
