package outbound

import (
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0": 0, "120": 2 * time.Minute, " 5 ": 5 * time.Second, "007": 7 * time.Second, "0.2500": 250 * time.Millisecond, "1.0001": 1001 * time.Millisecond,
		"99999999999999999999999":        maxRetryAfter,
		"Sun, 01 Mar 2026 12:00:30 GMT":  30 * time.Second,
		"Sunday, 01-Mar-26 12:01:00 GMT": time.Minute,
		"Sun Mar  1 12:00:01 2026":       time.Second,
		"Sun, 01 Mar 2026 11:59:59 GMT":  0,
		"Sun, 01 Mar 9998 11:59:59 GMT":  maxRetryAfter,
	} {
		if got, ok := ParseRetryAfter(value, now); !ok || got != want {
			t.Errorf("%q: %v, %v, want %v", value, got, ok, want)
		}
	}
	for _, value := range []string{"", " ", "-1", "1e3", "soon", "1.2.3", ".", "NaN", "2026-03-01T12:00:30Z", "+5", "0x10"} {
		if got, ok := ParseRetryAfter(value, now); ok {
			t.Errorf("%q: %v", value, got)
		}
	}
}
