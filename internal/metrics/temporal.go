package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TemporalTags are the tags of the SDK's figures that become labels here.
type TemporalTags struct {
	TaskQueue, WorkerType, PollerType, Operation, StatusCode, FailureReason string
}

// label gives a tag by the name of its label.
func (t *TemporalTags) label(name string) string {
	switch name {
	case "task_queue":
		return t.TaskQueue
	case "worker_type":
		return t.WorkerType
	case "poller_type":
		return t.PollerType
	case "operation":
		return t.Operation
	case "status_code":
		return t.StatusCode
	default:
		return t.FailureReason
	}
}

// sdkFigure is a figure of Temporal's SDK that is shown; one of the vectors is set.
type sdkFigure struct {
	labels  []string
	counter *prometheus.CounterVec
	gauge   *prometheus.GaugeVec
	timer   *prometheus.HistogramVec
}

// defineSDK chooses those of the SDK's figures that are shown. They keep the SDK's
// names, which Temporal's documents explain; timers get _seconds.
func (m *Metrics) defineSDK() {
	m.temporal = map[string]*sdkFigure{}
	counter := func(name, help string, labels ...string) {
		m.temporal[name] = &sdkFigure{labels: labels, counter: m.counters(name, help, labels...)}
	}
	gauge := func(name, help string, labels ...string) {
		m.temporal[name] = &sdkFigure{labels: labels, gauge: m.gauges(name, help, labels...)}
	}
	timer := func(name, help string, labels ...string) {
		m.temporal[name] = &sdkFigure{labels: labels, timer: m.histograms(name+"_seconds", help, quick, labels...)}
	}
	counter("temporal_workflow_task_execution_failed", "workflow tasks that failed", "failure_reason")
	counter("temporal_workflow_task_no_completion", "workflow tasks that ended without an answer to Temporal")
	counter("temporal_activity_execution_failed", "regular activities that ended without an outcome, and are repeated")
	counter("temporal_sticky_cache_miss", "workflows that were not in memory and were replayed")
	counter("temporal_sticky_cache_total_forced_eviction", "workflows dropped from memory to make room")
	counter("temporal_request_failure", "calls to Temporal that failed", "operation", "status_code")
	counter("temporal_long_request_failure", "long polls of Temporal that failed", "operation", "status_code")
	// A process has a worker for each of its task queues, each with gauges of its own.
	gauge("temporal_worker_task_slots_available", "free slots: WorkflowWorker, ActivityWorker, LocalActivityWorker", "task_queue", "worker_type")
	gauge("temporal_worker_task_slots_used", "slots at work", "task_queue", "worker_type")
	gauge("temporal_num_pollers", "pollers at work", "task_queue", "poller_type")
	gauge("temporal_sticky_cache_size", "workflows in memory")
	timer("temporal_workflow_task_schedule_to_start_latency", "time that workflow tasks waited for a worker")
	timer("temporal_activity_schedule_to_start_latency", "time that regular activities waited for a worker")
	timer("temporal_workflow_task_execution_latency", "time of workflow tasks, their local activities included")
	timer("temporal_request_latency", "time of calls to Temporal", "operation")
}

// values gives the labels of a figure.
func (f *sdkFigure) values(tags *TemporalTags) []string {
	if len(f.labels) == 0 {
		return nil
	}
	out := make([]string, len(f.labels))
	for i, name := range f.labels {
		out[i] = tags.label(name)
	}
	return out
}

// TemporalCounter is a counter of the SDK.
type TemporalCounter struct{ counter prometheus.Counter }

// Inc adds.
func (c TemporalCounter) Inc(n int64) { c.counter.Add(float64(n)) }

// TemporalGauge is a gauge of the SDK.
type TemporalGauge struct{ gauge prometheus.Gauge }

// Update sets.
func (g TemporalGauge) Update(v float64) { g.gauge.Set(v) }

// TemporalTimer is a timer of the SDK.
type TemporalTimer struct{ observer prometheus.Observer }

// Record adds a time.
func (t TemporalTimer) Record(d time.Duration) { t.observer.Observe(d.Seconds()) }

// TemporalCounter gives a counter by the SDK's name; ok is false for one that is not shown.
func (m *Metrics) TemporalCounter(name string, tags *TemporalTags) (c TemporalCounter, ok bool) {
	f := m.temporal[name]
	if f == nil || f.counter == nil {
		return c, false
	}
	return TemporalCounter{f.counter.WithLabelValues(f.values(tags)...)}, true
}

// TemporalGauge gives a gauge by the SDK's name; ok is false for one that is not shown.
func (m *Metrics) TemporalGauge(name string, tags *TemporalTags) (g TemporalGauge, ok bool) {
	f := m.temporal[name]
	if f == nil || f.gauge == nil {
		return g, false
	}
	return TemporalGauge{f.gauge.WithLabelValues(f.values(tags)...)}, true
}

// TemporalTimer gives a timer by the SDK's name; ok is false for one that is not shown.
func (m *Metrics) TemporalTimer(name string, tags *TemporalTags) (t TemporalTimer, ok bool) {
	f := m.temporal[name]
	if f == nil || f.timer == nil {
		return t, false
	}
	return TemporalTimer{f.timer.WithLabelValues(f.values(tags)...)}, true
}
