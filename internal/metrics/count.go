package metrics

import (
	"strconv"
	"time"
)

// HTTP counts an answered request to the API. An empty route is a path that there is
// not; its method is the caller's invention and not kept. A status of 0 is a
// connection that was cut off.
func (m *Metrics) HTTP(method, route string, status int, took time.Duration) {
	if m == nil {
		return
	}
	if route == "" {
		method, route = "other", "none"
	}
	text := "cut"
	if status != 0 {
		text = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(method, route, text).Inc()
	m.requestTime.WithLabelValues(route).Observe(took.Seconds())
}

// RunStarted counts a recorded run. source is one of the seven request sources.
func (m *Metrics) RunStarted(source string) {
	if m == nil {
		return
	}
	m.runsStarted.WithLabelValues(source).Inc()
}

// RunEnded counts a run that got its final status here.
func (m *Metrics) RunEnded(status, source string, took time.Duration) {
	if m == nil {
		return
	}
	m.runsEnded.WithLabelValues(status, source).Inc()
	m.runTime.WithLabelValues(status).Observe(took.Seconds())
}

// Page counts a page or transform; outcome is an activity's, empty for none.
func (m *Metrics) Page(outcome string, took time.Duration) {
	if m == nil {
		return
	}
	series := m.pages[outcome]
	if series == nil {
		series = m.pages["error"]
	}
	series.Observe(took.Seconds())
}

// Sent counts a request to an upstream that was answered with a status, or, when
// status is 0, failed for a reason.
func (m *Metrics) Sent(status int, reason string, took time.Duration) {
	if m == nil {
		return
	}
	if status != 0 {
		reason = strconv.Itoa(status/100) + "xx"
	}
	m.sent.WithLabelValues(reason).Inc()
	m.sentTime.Observe(took.Seconds())
}

// Delivered counts an attempt of a callback that was answered with a status, or, when
// status is 0, failed for a reason.
func (m *Metrics) Delivered(status int, reason string, took time.Duration) {
	if m == nil {
		return
	}
	if status != 0 {
		reason = strconv.Itoa(status/100) + "xx"
	}
	m.delivered.WithLabelValues(reason).Inc()
	m.deliveredTime.Observe(took.Seconds())
}

// slowLocal is the time above which a local activity counts as slow.
const slowLocal = time.Second

// Local counts a local activity if it was slow.
func (m *Metrics) Local(took time.Duration) {
	if m != nil && took > slowLocal {
		m.slowLocal.Inc()
	}
}

// LeaseLost counts a lease that ran out.
func (m *Metrics) LeaseLost(kind Lease) {
	if m != nil {
		m.leasesLost[kind].Inc()
	}
}

// AskedTwice counts a page whose answer came after another's.
func (m *Metrics) AskedTwice() {
	if m != nil {
		m.askedTwice.Inc()
	}
}

// EvaluatorRestarted counts an evaluator child that was ended, with the reason in a
// word or two.
func (m *Metrics) EvaluatorRestarted(reason string) {
	if m != nil {
		m.evaluatorEnds.WithLabelValues(reason).Inc()
	}
}

// Swept counts an action of the sweeper.
func (m *Metrics) Swept(action SweeperAction) {
	if m != nil {
		m.swept[action].Inc()
	}
}

// NoticeDelay counts the way of a notice through Postgres.
func (m *Metrics) NoticeDelay(took time.Duration) {
	if m != nil {
		m.noticeDelay.Observe(took.Seconds())
	}
}

// ListenLost counts a loss of the listening connection.
func (m *Metrics) ListenLost() {
	if m != nil {
		m.listenLost.Inc()
	}
}
