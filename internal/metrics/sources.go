package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Database is the state of a pool of connections.
type Database struct {
	Max, InUse, Idle int
	Acquired, Waited int64 // since the start: connections taken, and those of them that had to be waited for
	WaitTime         time.Duration
}

// Open is the state of unfinished runs in Postgres.
type Open struct {
	Running         int           // stops at 100,000
	OldestUnstarted time.Duration // of a run whose workflow is not known to have started; 0 without one
	OldestDelivery  time.Duration // of a callback that is pending; 0 without one
}

// source is a figure that is read when it is scraped.
type source struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

var sources = struct{ connections, acquired, waited, waitTime, running, unstarted, undelivered source }{
	newSource("stepwell_database_connections", prometheus.GaugeValue, "connections to Postgres: in_use, idle, max", "state"),
	newSource("stepwell_database_acquires_total", prometheus.CounterValue, "connections taken from the pool"),
	newSource("stepwell_database_waits_total", prometheus.CounterValue, "connections that had to be waited for"),
	newSource("stepwell_database_wait_seconds_total", prometheus.CounterValue, "time spent waiting for connections"),
	newSource("stepwell_runs_running", prometheus.GaugeValue, "unfinished runs of all processes, at most 100,000; on servers, and absent while Postgres is away"),
	newSource("stepwell_oldest_unstarted_run_seconds", prometheus.GaugeValue, "age of the oldest run whose workflow is not known to have started, 0 without one; on servers, and absent while Postgres is away"),
	newSource("stepwell_oldest_pending_delivery_seconds", prometheus.GaugeValue, "age of the oldest callback that is neither delivered nor given up, 0 without one; on servers, and absent while Postgres is away"),
}

// sourceRows describe sources, in their order.
var sourceRows []Row

func newSource(name string, kind prometheus.ValueType, help string, labels ...string) source {
	row := Row{Name: name, Kind: map[prometheus.ValueType]string{prometheus.GaugeValue: "gauge", prometheus.CounterValue: "counter"}[kind], Help: help}
	if len(labels) > 0 {
		row.Labels = labels[0]
	}
	sourceRows = append(sourceRows, row)
	return source{prometheus.NewDesc(name, help, labels, nil), kind}
}

func (m *Metrics) defineSources() { m.rows = append(m.rows, sourceRows...) }

// collector reads figures when they are scraped.
type collector func(send func(s source, value float64, labels ...string))

// Describe says nothing: the figures are not checked against a description.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads them.
func (c collector) Collect(out chan<- prometheus.Metric) {
	c(func(s source, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
	})
}

// WatchDatabase shows a pool of connections. Call it once.
func (m *Metrics) WatchDatabase(read func() Database) {
	if m == nil {
		return
	}
	m.registry.MustRegister(collector(func(send func(source, float64, ...string)) {
		d := read()
		send(sources.connections, float64(d.InUse), "in_use")
		send(sources.connections, float64(d.Idle), "idle")
		send(sources.connections, float64(d.Max), "max")
		send(sources.acquired, float64(d.Acquired))
		send(sources.waited, float64(d.Waited))
		send(sources.waitTime, d.WaitTime.Seconds())
	}))
}

// openTimeout bounds the query that reads Open: a scrape does not wait for Postgres.
const openTimeout = 2 * time.Second

// WatchRuns shows unfinished runs. They are left out of a scrape while read fails.
// Call it once.
func (m *Metrics) WatchRuns(read func(context.Context) (Open, error)) {
	if m == nil {
		return
	}
	m.registry.MustRegister(collector(func(send func(source, float64, ...string)) {
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		open, err := read(ctx)
		if err != nil {
			return // the store's own trouble is seen elsewhere
		}
		send(sources.running, float64(open.Running))
		send(sources.unstarted, open.OldestUnstarted.Seconds())
		send(sources.undelivered, open.OldestDelivery.Seconds())
	}))
}
