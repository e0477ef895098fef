// Package tracing makes OpenTelemetry spans: of requests to the API and of requests to
// upstreams; Temporal's SDK makes those between. It owns what a span may hold: names,
// ids, indices and statuses, never a secret, a query, a path of an upstream or a body.
// A nil *Tracer makes nothing, which is how traces are turned off.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// Tracer makes the spans of one process.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// propagator reads and writes traceparent. Baggage is not carried: its content is a
// caller's, and nobody knows whether it may leave.
var propagator = propagation.TraceContext{}

// New makes a tracer as the standard variables say (OTEL_TRACES_EXPORTER,
// OTEL_EXPORTER_OTLP_…, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and their kin), nil when
// they ask for none, which is the default. The exporter connects later and never fails
// a start. process names the service when OTEL_SERVICE_NAME does not. Close ends it.
func New(ctx context.Context, process string, log *zap.Logger) (*Tracer, error) {
	on, err := wanted(os.Getenv)
	if err != nil || !on {
		return nil, err
	}
	exporter, err := newExporter(ctx, os.Getenv)
	if err != nil {
		return nil, err
	}
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", process)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces were not exported", zap.Error(plain(err))) }))
	return newTracer(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)), nil
}

func newTracer(options ...sdktrace.TracerProviderOption) *Tracer {
	p := sdktrace.NewTracerProvider(options...)
	return &Tracer{provider: p, tracer: p.Tracer("stepwell")}
}

// wanted reports whether the variables ask for traces.
func wanted(getenv func(string) string) (bool, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch getenv("OTEL_TRACES_EXPORTER") {
	case "":
		return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "", nil
	case "none":
		return false, nil
	case "otlp":
		return true, nil
	}
	return false, errors.New("OTEL_TRACES_EXPORTER: must be otlp or none")
}

func newExporter(ctx context.Context, getenv func(string) string) (sdktrace.SpanExporter, error) {
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf or grpc")
}

// plain leaves the address out of an error: it may hold a token.
func plain(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// closeTimeout bounds the export of the last spans.
const closeTimeout = 5 * time.Second

// Close exports what is left and ends the tracer.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	return plain(t.provider.Shutdown(ctx))
}

// On reports whether spans are made.
func (t *Tracer) On() bool { return t != nil }

// OpenTelemetry gives the tracer of OpenTelemetry for Temporal's SDK; t is not nil.
func (t *Tracer) OpenTelemetry() (trace.Tracer, propagation.TextMapPropagator) {
	return t.tracer, propagator
}

// Span is one span. Its methods may be called on nil.
type Span struct{ span trace.Span }

// Receive begins the span of a request to the API, below the caller's own when it sent
// a traceparent. The context of the request that it gives carries the span.
func (t *Tracer) Receive(r *http.Request, route string) (*http.Request, *Span) {
	if t == nil {
		return r, nil
	}
	ctx := propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", route)))
	return r.WithContext(ctx), &Span{span}
}

// TraceID is the id of the trace in hexadecimal digits, empty when none is made.
func (s *Span) TraceID() string {
	if s == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Set adds an attribute; empty values are left out. It must not be a secret.
func (s *Span) Set(key, value string) {
	if s != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// End ends a span with a status; 0 and what is 500 or more is an error, of a reason
// that is a fixed word.
func (s *Span) End(status int, reason string) {
	if s == nil {
		return
	}
	if status != 0 {
		s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if status == 0 || status >= 500 {
		s.span.SetStatus(codes.Error, reason)
	}
	s.span.End()
}

// Carry gives ctx the span that another context carries: work that outlives an
// activity belongs to it all the same.
func (t *Tracer) Carry(ctx, from context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContextFromContext(from))
}

// Outgoing describes a request to an upstream. Host is masked already.
type Outgoing struct {
	Method, Host      string
	Run, Tool, Step   string
	Item, Page, Tries int
}

// Send begins the span of a request to an upstream, and adds traceparent to its header
// when the author of the request has not.
func (t *Tracer) Send(ctx context.Context, o Outgoing, header http.Header) *Span {
	if t == nil {
		return nil
	}
	ctx, span := t.tracer.Start(ctx, "HTTP "+o.Method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", o.Method), attribute.String("server.address", o.Host),
		attribute.String("stepwell.run", o.Run), attribute.String("stepwell.tool", o.Tool), attribute.String("stepwell.step", o.Step),
		attribute.Int("stepwell.item", o.Item), attribute.Int("stepwell.page", o.Page), attribute.Int("stepwell.attempt", o.Tries)))
	if header.Get("traceparent") == "" {
		carrier := propagation.MapCarrier{}
		propagator.Inject(ctx, carrier)
		header.Set("traceparent", carrier["traceparent"]) // tracestate is a caller's and stays here
	}
	return &Span{span}
}
