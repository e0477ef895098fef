package outbound

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter caps what ParseRetryAfter returns, so that adding it to a time
// never overflows. It is far above every wait that the service accepts.
const maxRetryAfter = 100 * 365 * 24 * time.Hour

// ParseRetryAfter reads the value of a Retry-After header: seconds (a decimal
// fraction is accepted, as some services send one) or an HTTP date, which is
// compared with now. A date in the past gives 0. ok is false when the value is
// neither, or negative. Values over 100 years are cut to that.
func ParseRetryAfter(value string, now time.Time) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789.") == "" {
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil && !math.IsInf(seconds, 1) {
			return 0, false
		}
		if seconds >= maxRetryAfter.Seconds() {
			return maxRetryAfter, true
		}
		return time.Duration(math.Ceil(seconds*1000)) * time.Millisecond, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), maxRetryAfter), true
}
