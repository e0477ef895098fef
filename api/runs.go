package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"stepwell"
	"stepwell/api/v1"
)

func parseRunRequest(req *request) (NewRun, error) {
	o := req.body
	n := NewRun{ID: o.text("runId"), Inputs: o.rawObject("inputs"), Credentials: o.rawObject("credentials")}
	if o.get("runId") != nil && !validRunID(n.ID) {
		o.fail("runId", runIDRule)
	}
	if options, ok := o.object("options"); ok {
		n.Options = readOptions(options)
	}
	if req.fields.err != nil {
		return n, req.fields.err
	}
	if n.Options.TraceID != "" {
		req.trace = n.Options.TraceID
	}
	return n, nil
}

func readOptions(o object) stepwell.RunOptions {
	r := stepwell.RunOptions{
		Async: o.flag("async"), TimeoutMS: o.whole("timeout", 1, stepwell.MaxTimeout.Milliseconds()), WebhookURL: o.text("webhookUrl"),
		Mode: o.text("mode"), RequestSource: o.text("requestSource"), TraceID: o.text("traceId"),
		MaxPages: int(o.whole("maxPages", 1, maxMaxPages)), EndUserID: o.text("endUserId"),
	}
	modes := []string{stepwell.ModeProd, stepwell.ModeDev}
	if o.get("mode") != nil && !slices.Contains(modes, r.Mode) {
		o.fail("mode", "one of prod, dev")
	}
	if o.get("requestSource") != nil && !slices.Contains(stepwell.RequestSources, r.RequestSource) {
		o.fail("requestSource", "one of "+strings.Join(stepwell.RequestSources, ", "))
	}
	if o.get("traceId") != nil && !tracePattern.MatchString(r.TraceID) {
		o.fail("traceId", "1 to 128 characters of A-Z a-z 0-9 . _ -")
	}
	if o.get("webhookUrl") != nil && !validWebhook(r.WebhookURL) {
		o.fail("webhookUrl", "an http or https URL, or tool:<toolId>")
	}
	return r
}

// validWebhook checks the form of a webhookUrl.
func validWebhook(raw string) bool {
	if id, ok := strings.CutPrefix(raw, stepwell.ToolScheme); ok {
		return validToolID(id)
	}
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (a *API) startRun(ctx context.Context, req *request, n NewRun) (*response, error) {
	if err := a.completeRun(ctx, req, &n); err != nil {
		return nil, err
	}
	return a.begin(ctx, req, n)
}

// begin starts a complete run and answers as its caller asked.
func (a *API) begin(ctx context.Context, req *request, n NewRun) (*response, error) {
	var run *stepwell.Run
	var err error
	if n.Options.Async {
		run, err = a.Runner.Start(ctx, n)
	} else {
		run, err = a.Runner.StartAndWait(ctx, n, a.SyncWait)
	}
	if err != nil {
		return nil, err
	}
	req.run = run // which the log names
	if run.Tool == nil {
		run.Tool = n.Tool
	}
	switch {
	case !run.Status.Final():
		return a.runAnswer(req, run, http.StatusAccepted)
	case run.Status == stepwell.RunSuccess && run.Data == nil && run.DataSize > stepwell.MaxInlineData:
		return a.largeAnswer(req, run)
	}
	return a.runAnswer(req, run, http.StatusOK)
}

// largeAnswer is runAnswer for a run whose data is streamed because of its size. What
// goes wrong with the data cuts the answer off: an error in its place would say that
// nothing was done.
func (a *API) largeAnswer(req *request, run *stepwell.Run) (*response, error) {
	whole, err := a.wireWholeRun(run, req)
	if err != nil {
		return nil, err
	}
	head, err := encode(whole)
	if err != nil {
		return nil, err
	}
	rows, err := rowParts(run.StepResults)
	if err != nil {
		return nil, err
	}
	return &response{stream: func(ctx context.Context, w io.Writer) error {
		m := &memberWriter{ctx: ctx, w: w}
		m.text(string(openEnd(head)))
		if m.err == nil {
			m.err = w.(*streamWriter).flush()
		}
		m.value(`,"data":`, func(ctx context.Context, w io.Writer) error { return a.Runs.WriteData(ctx, w, run) })
		for _, part := range rows {
			m.text(string(part))
		}
		m.text("}\n")
		return m.err
	}}, nil
}

var errArchived = stepwell.Invalid("archived", "Tool is archived: unarchive it before running it")

// completeRun checks a new run against its tool, in the order of the answers, and
// fills in what the caller left out.
func (a *API) completeRun(ctx context.Context, req *request, n *NewRun) (err error) {
	n.Tool, n.Caller = req.tool, req.caller
	fill(&n.Options.Mode, stepwell.ModeProd) // which decides what an end user must have connected
	if err := a.bindEndUser(ctx, req.caller, n); err != nil {
		return err
	}
	if req.tool.Archived {
		return errArchived
	}
	if n.Inputs == nil {
		n.Inputs = json.RawMessage("{}")
	}
	if n.Inputs, err = a.Validator.ValidateInputs(ctx, n.Tool, n.Inputs); err != nil {
		return err
	}
	if n.Options.WebhookURL == "" {
		n.Options.WebhookURL = n.Tool.WebhookURL
	}
	if err := a.checkWebhook(ctx, req.caller, n.Options.WebhookURL); err != nil {
		return err
	}
	if n.ID == "" {
		id, err := uuid.NewV7() // in order of time, so that new runs are neighbours in an index
		if err != nil {
			return err
		}
		n.ID = id.String()
	}
	fill(&n.Options.RequestSource, stepwell.RequestSources[0])
	fill(&n.Options.TraceID, req.trace)
	return nil
}

func fill(s *string, absent string) {
	if *s == "" {
		*s = absent
	}
}

// checkWebhook refuses a callback or a next link that is known now to fail later.
func (a *API) checkWebhook(ctx context.Context, caller *stepwell.Caller, webhook string) error {
	if webhook != "" && !validWebhook(webhook) { // the tool's own: a caller's is checked already
		return stepwell.Invalid("invalid_tool", "The tool's 'webhookUrl' must be an http or https URL, or tool:<toolId>")
	}
	id, ok := strings.CutPrefix(webhook, stepwell.ToolScheme)
	if !ok {
		return nil
	}
	next, err := a.findTool(ctx, caller.OrgID, id)
	if stepwell.KindOf(err) == stepwell.KindNotFound {
		return stepwell.Invalid("chain_target", "'webhookUrl' names a tool that does not exist: %s", webhook)
	}
	if err != nil {
		return err
	}
	if err := execute.allow(caller, subject{toolID: next.ID}); err != nil {
		return err
	}
	if next.Archived {
		return stepwell.Invalid("chain_target", "'webhookUrl' names a tool that is archived: %s", webhook)
	}
	return a.checkLinks(ctx, caller, next)
}

// checkLinks follows a chain from tool to tool: a key that is limited to some tools must
// not reach others through the chains of those. A link that is not there fails later, by
// itself.
func (a *API) checkLinks(ctx context.Context, caller *stepwell.Caller, from *stepwell.Tool) error {
	if caller.Tools == nil {
		return nil
	}
	for range stepwell.MaxLinks {
		id, ok := strings.CutPrefix(from.WebhookURL, stepwell.ToolScheme)
		if !ok {
			return nil
		}
		next, err := a.findTool(ctx, caller.OrgID, id)
		if stepwell.KindOf(err) == stepwell.KindNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		if err := execute.allow(caller, subject{toolID: next.ID}); err != nil {
			return err
		}
		from = next
	}
	return nil
}

// runAnswer answers with a run. Step results are there only when the port gave some:
// in the answer to a synchronous run.
func (a *API) runAnswer(req *request, run *stepwell.Run, status int) (*response, error) {
	whole, err := a.wireWholeRun(run, req)
	if err != nil {
		return nil, err
	}
	parts, err := runParts(whole, run.Data, run.StepResults)
	if err != nil {
		return nil, err
	}
	return &response{status: status, parts: parts}, nil
}

func (a *API) getRun(_ context.Context, req *request, _ none) (*response, error) {
	return a.runAnswer(req, req.run, http.StatusOK)
}

func (a *API) cancelRun(ctx context.Context, req *request, _ none) (*response, error) {
	run, err := a.Runner.Cancel(ctx, req.caller.OrgID, req.run.ID)
	if err != nil {
		return nil, err
	}
	return a.runAnswer(req, run, http.StatusOK)
}

func parseRunQuery(req *request) (RunQuery, error) {
	q := queryReader{values: req.query}
	in := q.runFilter()
	in.Page, in.Limit = q.page(50, 100)
	return in, q.err
}

// runFilter reads what selects runs.
func (q *queryReader) runFilter() RunQuery {
	in := RunQuery{
		ToolID: q.text("toolId"), UserID: q.text("userId"), SystemID: q.text("systemId"),
		RerunOf: q.text("rerunOf"), ParentRunID: q.text("parentRunId"),
		Status:       stepwell.RunStatus(q.oneOf("status", "running", "success", "failed", "aborted")),
		StartedAfter: q.time("startedAfter"), StartedBefore: q.time("startedBefore"),
	}
	if sources, there := q.get("requestSources"); there {
		for s := range strings.SplitSeq(sources, ",") {
			s = strings.TrimSpace(s)
			if !slices.Contains(stepwell.RequestSources, s) {
				q.fail("requestSources", "one or several of "+strings.Join(stepwell.RequestSources, ", "))
				break
			}
			in.RequestSources = append(in.RequestSources, s)
		}
	}
	return in
}

func (a *API) listRuns(ctx context.Context, req *request, in RunQuery) (*response, error) {
	in.OnlyTools, in.EndUserID = req.caller.Tools, req.caller.EndUserID
	l, err := a.Runs.List(ctx, req.caller.OrgID, in)
	if err != nil {
		return nil, err
	}
	wire := func(r *stepwell.Run) v1.Run {
		out := a.wireRun(r, req.base)
		if len(out.ToolPayload) > stepwell.MaxInlineData {
			out.ToolPayload = nil
		}
		return out
	}
	return &response{body: wireList(l, in.Page, in.Limit, wire)}, nil
}

func (a *API) getResults(ctx context.Context, req *request, _ none) (*response, error) {
	message := "The run is still running: its results are there when it has ended"
	if req.run.Status.Final() {
		res, err := a.Runs.Results(ctx, req.caller.OrgID, req.run.ID)
		if err != nil {
			return nil, err
		}
		if res != nil {
			files, err := a.linkedFiles(req.run, req.base)
			return &response{stream: writeResults(req.run, res, files)}, err
		}
		message = "No results are stored for this run"
	}
	return &response{body: v1.Results{Success: true, Message: message}}, nil
}

// writeResults writes v1.Results member by member, because its data is streamed.
func writeResults(run *stepwell.Run, res *Results, files []v1.FileArtifact) JSONWriter {
	return func(ctx context.Context, w io.Writer) error {
		head, err := encode(v1.RunResults{RunID: run.ID, Success: run.Status == stepwell.RunSuccess, Error: run.Error,
			ToolPayload: run.Inputs, StoredAt: wireTime(res.StoredAt), FileArtifacts: files})
		if err != nil {
			return err
		}
		s := &memberWriter{ctx: ctx, w: w}
		s.text(`{"success":true,"data":`)
		s.text(string(openEnd(head)))
		s.value(`,"data":`, res.Data)
		s.text(`,"stepResults":[`)
		for i, row := range res.Steps {
			if i > 0 {
				s.text(`,`)
			}
			b, err := encode(wireStepResult(row.StepResult))
			if err != nil {
				return err
			}
			s.text(string(openEnd(b)))
			s.value(`,"data":`, row.Write)
			s.text(`}`)
		}
		s.text("]}}\n")
		return s.err
	}
}

// memberWriter writes until the first error.
type memberWriter struct {
	ctx context.Context
	w   io.Writer
	err error
}

func (m *memberWriter) text(s string) {
	if m.err == nil {
		_, m.err = io.WriteString(m.w, s)
	}
}

// value writes a name and a value, or nothing when there is no value.
func (m *memberWriter) value(name string, write JSONWriter) {
	if write == nil {
		return
	}
	if m.text(name); m.err == nil {
		m.err = write(m.ctx, m.w)
	}
}
