package temporalsetup

import (
	"fmt"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"stepwell/internal/metrics"
	"stepwell/internal/tracing"
)

// measured gives the SDK a handler for its figures, none when nothing is counted.
func measured(m *metrics.Metrics) client.MetricsHandler {
	if m == nil {
		return nil
	}
	return handler{m: m}
}

// handler passes on those of the SDK's figures that are shown. It is a value: WithTags
// gives a changed copy.
type handler struct {
	m    *metrics.Metrics
	tags metrics.TemporalTags
}

// WithTags adds tags; those that become no label are dropped here.
func (h handler) WithTags(tags map[string]string) client.MetricsHandler {
	for name, value := range tags {
		switch name {
		case "task_queue":
			h.tags.TaskQueue = value
		case "worker_type":
			h.tags.WorkerType = value
		case "poller_type":
			h.tags.PollerType = value
		case "operation":
			h.tags.Operation = value
		case "status_code":
			h.tags.StatusCode = value
		case "failure_reason":
			h.tags.FailureReason = value
		}
	}
	return h
}

// Counter gives a counter by name.
func (h handler) Counter(name string) client.MetricsCounter {
	if c, ok := h.m.TemporalCounter(name, &h.tags); ok {
		return c
	}
	return client.MetricsNopHandler.Counter(name)
}

// Gauge gives a gauge by name.
func (h handler) Gauge(name string) client.MetricsGauge {
	if g, ok := h.m.TemporalGauge(name, &h.tags); ok {
		return g
	}
	return client.MetricsNopHandler.Gauge(name)
}

// Timer gives a timer by name.
func (h handler) Timer(name string) client.MetricsTimer {
	if t, ok := h.m.TemporalTimer(name, &h.tags); ok {
		return t
	}
	return client.MetricsNopHandler.Timer(name)
}

// traced gives the interceptors that carry a trace through workflows and activities,
// none when nothing is traced. They add headers and no command: they can be turned on
// and off under open runs.
func traced(t *tracing.Tracer) ([]interceptor.ClientInterceptor, error) {
	if t == nil {
		return nil, nil
	}
	tracer, propagator := t.OpenTelemetry()
	i, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer: tracer, TextMapPropagator: propagator, DisableBaggage: true, AllowInvalidParentSpans: true,
		DisableSignalTracing: true, DisableQueryTracing: true, DisableUpdateTracing: true})
	if err != nil {
		return nil, fmt.Errorf("traces of Temporal: %w", err)
	}
	return []interceptor.ClientInterceptor{i}, nil
}
