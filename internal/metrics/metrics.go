// Package metrics counts what the service does and shows it in Prometheus's form. It
// owns the names, labels and buckets of all figures, and nothing may be decided by
// them. A nil *Metrics counts nothing, which is how they are turned off.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the figures of one process. Its methods may be called from many
// goroutines, and on nil.
type Metrics struct {
	registry *prometheus.Registry
	rows     []Row

	requests      *prometheus.CounterVec
	requestTime   *prometheus.HistogramVec
	runsStarted   *prometheus.CounterVec
	runsEnded     *prometheus.CounterVec
	runTime       *prometheus.HistogramVec
	pages         map[string]prometheus.Observer // by outcome
	sent          *prometheus.CounterVec
	sentTime      prometheus.Observer
	delivered     *prometheus.CounterVec
	deliveredTime prometheus.Observer
	slowLocal     prometheus.Counter
	leasesLost    map[Lease]prometheus.Counter
	askedTwice    prometheus.Counter
	evaluatorEnds *prometheus.CounterVec
	swept         map[SweeperAction]prometheus.Counter
	noticeDelay   prometheus.Observer
	listenLost    prometheus.Counter
	temporal      map[string]*sdkFigure
}

// Row is a line of the table of figures in the documents.
type Row struct{ Name, Kind, Labels, Help string }

// Buckets in seconds. Quick is for what takes milliseconds, slow for whole runs.
var (
	quick = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	slow  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

// Lease is what ran out.
type Lease string

// Kinds of leases.
const (
	LocalLease   Lease = "local"   // of a local activity: it did not send, and a regular one asks for the page
	RegularLease Lease = "regular" // of a regular activity: its process stood still
	WorkerLease  Lease = "worker"  // of a worker process in Postgres, not renewed in time
)

// SweeperAction is something that the sweeper did.
type SweeperAction string

// Actions of the sweeper.
const (
	SweptStarted   SweeperAction = "started"   // a run's workflow, again or for the first time
	SweptExamined  SweeperAction = "examined"  // asked Temporal about a run without progress
	SweptGivenUp   SweeperAction = "given_up"  // failed a run that nobody will finish
	SweptCancelled SweeperAction = "cancelled" // a cancelled run's workflow, again
	SweptFailed    SweeperAction = "failed"    // a whole sweep, which is tried again
)

// pageOutcomes are those of activities, and error for an activity that ended without one.
var pageOutcomes = []string{"more", "done", "failed", "retry", "pending", "gone", "finished", "error"}

// New makes the figures of a process.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	m.requests = m.counters("stepwell_http_requests_total", "requests to the API; route is none for unknown paths, status cut for connections that were ended without an answer", "method", "route", "status")
	m.requestTime = m.histograms("stepwell_http_request_duration_seconds", "time of requests to the API, waiting for runs included", quick, "route")
	m.runsStarted = m.counters("stepwell_runs_started_total", "runs recorded by this server", "source")
	m.runsEnded = m.counters("stepwell_runs_ended_total", "runs that this process gave their final status", "status", "source")
	m.runTime = m.histograms("stepwell_run_duration_seconds", "time from the record of a run to its final status", slow, "status")

	pages := m.histograms("stepwell_page_duration_seconds", "time of a page or transform in the worker, from its activity to its stored row", quick, "outcome")
	m.pages = byLabel(pageOutcomes, pages.WithLabelValues)
	m.sent = m.counters("stepwell_upstream_requests_total", "requests to upstreams by result: the status's class, or why there was no answer", "result")
	m.sentTime = m.histograms("stepwell_upstream_request_duration_seconds", "time of requests to upstreams, redirects and the reading of the answer included", quick).WithLabelValues()
	m.delivered = m.counters("stepwell_delivery_attempts_total", "attempts of callbacks by result: the status's class, or why there was no answer", "result")
	m.deliveredTime = m.histograms("stepwell_delivery_attempt_duration_seconds", "time of attempts of callbacks until their receiver answered", quick).WithLabelValues()
	m.slowLocal = m.counters("stepwell_local_activities_slow_total", "local activities over 1 s, which hold their workflow task").WithLabelValues()
	m.leasesLost = byLabel([]Lease{LocalLease, RegularLease, WorkerLease},
		m.counters("stepwell_leases_lost_total", "leases that ran out: local and regular activities, worker processes", "kind").WithLabelValues)
	m.askedTwice = m.counters("stepwell_pages_asked_twice_total", "answers dropped because another worker had stored the page before").WithLabelValues()
	m.evaluatorEnds = m.counters("stepwell_evaluator_restarts_total", "evaluator children that were ended, by reason: time, memory, stack, worn, killed from outside, protocol, cancelled", "reason")
	m.swept = byLabel([]SweeperAction{SweptStarted, SweptExamined, SweptGivenUp, SweptCancelled, SweptFailed},
		m.counters("stepwell_sweeper_actions_total", "what the sweeper did", "action").WithLabelValues)
	m.noticeDelay = m.histograms("stepwell_notification_delay_seconds", "from a notice to its return to the process that sent it, by way of Postgres", quick).WithLabelValues()
	m.listenLost = m.counters("stepwell_notification_reconnects_total", "times that the listening connection was lost").WithLabelValues()
	m.defineSDK()
	m.defineSources()
	return m
}

// byLabel makes a series for each value of a label, so that none begins in the middle
// of an alert.
func byLabel[K ~string, V any](values []K, with func(...string) V) map[K]V {
	out := make(map[K]V, len(values))
	for _, v := range values {
		out[v] = with(string(v))
	}
	return out
}

func (m *Metrics) define(kind, name, help string, labels []string) {
	text := ""
	for i, l := range labels {
		if i > 0 {
			text += ", "
		}
		text += l
	}
	m.rows = append(m.rows, Row{name, kind, text, help})
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	m.define("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	m.define("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	m.define("histogram", name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

// Table lists the figures in the order of their definition; those of the Go runtime
// and of the process (go_…, process_…) come on top.
func (m *Metrics) Table() []Row { return m.rows }

// scrapeTimeout bounds the answer to one scrape; maxScrapes is how many are answered at
// a time.
const (
	scrapeTimeout = 10 * time.Second
	maxScrapes    = 4
)

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout})
}
