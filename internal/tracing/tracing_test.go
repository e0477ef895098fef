package tracing

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "false <nil>"},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "true <nil>"},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "true <nil>"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "true <nil>"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "false <nil>"},
		{map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, "false <nil>"},
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, "false OTEL_TRACES_EXPORTER: must be otlp or none"},
	} {
		on, err := wanted(func(name string) string { return test.env[name] })
		if got := fmt.Sprint(on, " ", err); got != test.want {
			t.Errorf("%v: %s, want %s", test.env, got, test.want)
		}
	}
	if _, err := newExporter(t.Context(), func(string) string { return "carrier pigeon" }); err == nil {
		t.Error("any protocol is taken")
	}
}

// TestSpans follows a trace from a caller to an upstream, and looks for secrets in it.
func TestSpans(t *testing.T) {
	t.Parallel()
	recorded := tracetest.NewSpanRecorder()
	tracer := newTracer(sdktrace.WithSpanProcessor(recorded))
	const secret = "s3cret"
	r := httptest.NewRequest("POST", "/v1/tools/x/run?token="+secret, strings.NewReader(secret))
	r.Header.Set("Authorization", "Bearer "+secret)
	r.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r.Header.Set("tracestate", "vendor="+secret)
	r.Header.Set("baggage", "key="+secret)
	r, span := tracer.Receive(r, "/tools/{toolId}/run")
	if span.TraceID() != "0af7651916cd43dd8448eb211c80319c" {
		t.Errorf("the caller's trace is not followed: %s", span.TraceID())
	}
	flight := tracer.Carry(t.Context(), r.Context())
	header := http.Header{}
	sent := tracer.Send(flight, Outgoing{Method: "GET", Host: "api.example.com", Run: "r", Tool: "t", Step: "s", Page: 3, Tries: 1}, header)
	if got := header.Get("traceparent"); !strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-") || strings.Contains(got, "b7ad6b7169203331") {
		t.Errorf("the upstream gets %q", got)
	}
	if len(header) != 1 {
		t.Errorf("the upstream gets more than traceparent: %v", header)
	}
	given := http.Header{"Traceparent": {"the author's"}}
	tracer.Send(flight, Outgoing{Method: "GET"}, given).End(200, "")
	if given.Get("traceparent") != "the author's" {
		t.Error("the author's own header is replaced")
	}
	sent.End(0, "timeout")
	span.Set("stepwell.run", "r")
	span.End(200, "")
	ended := recorded.Ended()
	if len(ended) != 3 {
		t.Fatalf("%d spans", len(ended))
	}
	for _, s := range ended {
		if text := fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()); strings.Contains(text, secret) || strings.Contains(text, "/v1/") {
			t.Errorf("the span holds what it must not: %s", text)
		}
	}
	if s := ended[1].Status(); s.Description != "timeout" {
		t.Errorf("a request without an answer is %v", s)
	}
}

func TestExportErrorsHideAddresses(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("traces export: %w", &url.Error{Op: "Post", URL: "http://collector/v1/traces?token=s3cret", Err: errors.New("connection refused")})
	if got := plain(err).Error(); got != "connection refused" {
		t.Error(got)
	}
}

// TestOff: without a tracer nothing is made, changed or allocated.
func TestOff(t *testing.T) {
	var tracer *Tracer
	r, header := httptest.NewRequest("GET", "/", nil), http.Header{}
	n := testing.AllocsPerRun(100, func() { off(tracer, r, header) })
	if n != 0 || len(header) != 0 || tracer.On() {
		t.Errorf("%.0f allocations, %v", n, header)
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func off(tracer *Tracer, r *http.Request, header http.Header) {
	same, span := tracer.Receive(r, "/x")
	if same != r || span.TraceID() != "" || tracer.Carry(r.Context(), r.Context()) != r.Context() {
		panic("something was made")
	}
	span.Set("a", "b")
	tracer.Send(r.Context(), Outgoing{}, header).End(200, "")
	span.End(200, "")
}

func BenchmarkOff(b *testing.B) {
	r, header := httptest.NewRequest("GET", "/", nil), http.Header{}
	b.ReportAllocs()
	for b.Loop() {
		off(nil, r, header)
	}
}
