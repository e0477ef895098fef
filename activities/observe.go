package activities

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/outbound"
	"stepwell/internal/tracing"
)

// exchange sends a request and counts it; with traces on, it is a span below that of
// ctx, and the upstream gets a traceparent.
func (u *unit) exchange(ctx, sending context.Context, r outbound.Request) (*outbound.Response, error) {
	span := u.span(ctx, r)
	began := time.Now()
	answer, err := u.a.Sender.Do(sending, r)
	status, reason := 0, "network error"
	var failure *outbound.Error
	switch {
	case err == nil:
		status = answer.Status
	case errors.As(err, &failure):
		reason = string(failure.Reason)
	}
	u.a.Metrics.Sent(status, reason, time.Since(began))
	span.End(status, reason)
	return answer, err
}

// span begins the span of a request. Of its URL only the host is kept, masked: paths
// and queries hold secrets.
func (u *unit) span(ctx context.Context, r outbound.Request) *tracing.Span {
	if !u.a.Tracer.On() {
		return nil
	}
	host := ""
	if address, err := url.Parse(r.URL); err == nil {
		host = u.s.mask(address.Host)
	}
	return u.a.Tracer.Send(ctx, tracing.Outgoing{Method: r.Method, Host: host, Run: u.key.Run, Tool: u.s.run.ToolID, Step: u.def.ID,
		Item: u.key.Item, Page: u.key.Page, Tries: u.req.Attempt}, r.Header)
}

// observe counts a page and what came of it.
func (u *unit) observe(res PageResult, err error, took time.Duration) {
	outcome := string(res.Outcome)
	if err != nil {
		outcome = "" // the activity is repeated
	}
	u.a.Metrics.Page(outcome, took)
}

// observeEnd counts a run that was finished here, and logs it: its error is the owner's
// to read, and not in the log.
func (a *Activities) observeEnd(run *stepwell.Run) {
	took := run.CompletedAt.Sub(run.StartedAt)
	a.Metrics.RunEnded(string(run.Status), run.RequestSource, took)
	if entry := a.Log.Check(zap.DebugLevel, "run ended"); entry != nil {
		entry.Write(zap.String("run", run.ID), zap.String("tool", run.ToolID), zap.String("trace", run.TraceID),
			zap.String("status", string(run.Status)), zap.Duration("took", took))
	}
}

// maxConsole bounds, in bytes, what is logged of the console output of one call.
const maxConsole = 8 << 10

// console logs what a transform wrote to its console, for debugging: masked, and only
// there, since what is worth keeping is the transform's to return.
func (a *Activities) console(s *session, k stepwell.PageKey, lines []string) {
	if len(lines) == 0 {
		return
	}
	entry := a.Log.Check(zap.DebugLevel, "console")
	if entry == nil {
		return
	}
	text := s.public(strings.Join(lines, "\n"))
	if len(text) > maxConsole {
		text = strings.ToValidUTF8(text[:maxConsole], "") + "…"
	}
	step := "outputTransform"
	if k.Step < len(s.tool.def.Steps) {
		step = s.tool.def.Steps[k.Step].ID
	}
	entry.Write(zap.String("run", k.Run), zap.String("tool", s.run.ToolID), zap.String("step", step), zap.Int("item", k.Item), zap.String("output", text))
}
