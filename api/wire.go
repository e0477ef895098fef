package api

import (
	"encoding/json"
	"net/url"
	"time"

	"stepwell"
	"stepwell/api/v1"
	"stepwell/internal/secret"
)

func wireTime(t time.Time) v1.Time { return v1.Time{Time: t} }

// each maps a slice; the result is never nil, so it is never null.
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

func wireList[A, B any](l Listed[A], page, limit int, f func(A) B) v1.List[B] {
	return v1.List[B]{Data: each(l.Items, f), Page: page, Limit: limit, Total: l.Total, HasMore: l.More}
}

func wireTool(t *stepwell.Tool) v1.Tool {
	return v1.Tool{
		ID: t.ID, Name: t.Name, Steps: each(t.Steps, wireStep), Version: t.Version, Instruction: t.Instruction,
		InputSchema: t.InputSchema, OutputSchema: t.OutputSchema, OutputTransform: t.OutputTransform, Folder: t.Folder,
		Archived: t.Archived, ResponseFilters: each(t.ResponseFilters, wireFilter), WebhookURL: t.WebhookURL,
		CreatedAt: wireTime(t.CreatedAt), UpdatedAt: wireTime(t.UpdatedAt),
	}
}

func wireStep(s stepwell.Step) v1.Step {
	return v1.Step{
		ID: s.ID, Config: wireStepConfig(s.Config), Instruction: s.Instruction, Modify: s.Modify, DataSelector: s.DataSelector,
		FailureBehavior: s.FailureBehavior, Concurrency: s.Concurrency, OutputFile: s.OutputFile, Idempotent: s.Idempotent,
	}
}

func wireStepConfig(c stepwell.StepConfig) v1.StepConfig {
	return v1.StepConfig{
		Type: c.Type, URL: c.URL, Method: c.Method, QueryParams: c.QueryParams, Headers: c.Headers, Body: c.Body,
		Pagination: (*v1.Pagination)(c.Pagination), SystemID: c.SystemID, TransformCode: c.TransformCode,
	}
}

func wireFilter(f stepwell.ResponseFilter) v1.ResponseFilter { return v1.ResponseFilter(f) }

func domainStep(s v1.Step) stepwell.Step {
	return stepwell.Step{
		ID: s.ID, Config: domainStepConfig(s.Config), Instruction: s.Instruction, Modify: s.Modify, DataSelector: s.DataSelector,
		FailureBehavior: s.FailureBehavior, Concurrency: s.Concurrency, OutputFile: s.OutputFile, Idempotent: s.Idempotent,
	}
}

func domainStepConfig(c v1.StepConfig) stepwell.StepConfig {
	return stepwell.StepConfig{
		Type: c.Type, URL: c.URL, Method: c.Method, QueryParams: c.QueryParams, Headers: c.Headers, Body: c.Body,
		Pagination: (*stepwell.Pagination)(c.Pagination), SystemID: c.SystemID, TransformCode: c.TransformCode,
	}
}

func domainFilter(f v1.ResponseFilter) stepwell.ResponseFilter { return stepwell.ResponseFilter(f) }

// wireRun maps a run without its tool, data, step results and progress.
func (a *API) wireRun(r *stepwell.Run, base string) v1.Run {
	out := v1.Run{
		RunID: r.ID, ToolID: r.ToolID, Status: string(r.Status), Error: r.Error, ToolPayload: r.Inputs,
		Metadata:      v1.RunMetadata{StartedAt: wireTime(r.StartedAt), CompletedAt: wireTime(r.CompletedAt), Warnings: r.Warnings},
		RequestSource: r.RequestSource, TraceID: r.TraceID, UserID: r.UserID, ExecutionMode: r.Mode,
		ParentRunID: r.ParentRunID, RerunOf: r.RerunOf, ImportantNotice: a.Notice, FileArtifacts: wireFiles(r.Files),
		Options: &v1.RunOptions{
			Async: r.Options.Async, Timeout: r.Options.TimeoutMS, WebhookURL: secret.RedactURL(r.Options.WebhookURL), Mode: r.Options.Mode,
			RequestSource: r.Options.RequestSource, TraceID: r.Options.TraceID, MaxPages: r.Options.MaxPages, EndUserID: r.Options.EndUserID,
		},
	}
	if !r.CompletedAt.IsZero() {
		took := r.CompletedAt.Sub(r.StartedAt).Milliseconds()
		out.Metadata.DurationMS = &took
	}
	if r.DataSize > stepwell.MaxInlineData {
		out.ResultStorageURI = base + "/runs/" + url.PathEscape(r.ID) + "/results"
	}
	return out
}

// wireWholeRun maps a run as single reads show it. Data and step results are not in
// it: runParts adds them. A caller who may not read tools gets none.
func (a *API) wireWholeRun(r *stepwell.Run, req *request) (out v1.Run, err error) {
	out = a.wireRun(r, req.base)
	out.FileArtifacts, err = a.linkedFiles(r, req.base)
	if r.Tool != nil && read.allows(req.caller, subject{toolID: r.ToolID}) {
		out.Tool = wireShownTool(r.Tool)
	}
	out.Progress = wireProgress(r)
	return out, err
}

// wireShownTool maps a tool as a record of a run shows it.
func wireShownTool(t *stepwell.Tool) *v1.Tool {
	out := wireTool(t)
	out.WebhookURL = secret.RedactURL(out.WebhookURL)
	return &out
}

// wireProgress maps the progress of a running run; nil for others.
func wireProgress(r *stepwell.Run) *v1.Progress {
	p := r.Progress
	if p == nil || r.Status.Final() {
		return nil
	}
	out := &v1.Progress{Step: p.Step, Page: p.Page, Item: p.Item, Items: p.Items, Bytes: p.Bytes, Rate: p.Rate}
	if w := p.WaitingFor; w != nil {
		out.WaitingFor = &v1.Waiting{Reason: w.Reason, Until: wireTime(w.Until)}
	}
	return out
}

// wireStepResult maps a row of stepResults without its data.
func wireStepResult(s stepwell.StepResult) v1.StepResult {
	out := v1.StepResult{StepID: s.StepID, Success: s.Success, Error: s.Error, Pages: s.Pages, EndedBy: s.EndedBy}
	if s.Pages > 0 {
		out.Items = &s.Items
	}
	return out
}

// runParts encodes a run with data and step results put in as they are: they may be
// megabytes of JSON that is known to be valid.
func runParts(run v1.Run, data json.RawMessage, steps []stepwell.StepResult) ([][]byte, error) {
	head, err := encode(run)
	if err != nil {
		return nil, err
	}
	parts := [][]byte{openEnd(head)}
	if data != nil {
		parts = append(parts, []byte(`,"data":`), data)
	}
	rows, err := rowParts(steps)
	return append(append(parts, rows...), []byte("}\n")), err
}

// rowParts encodes the member stepResults, with the comma before it; nothing without rows.
func rowParts(steps []stepwell.StepResult) (parts [][]byte, err error) {
	for i, s := range steps {
		row, err := encode(wireStepResult(s))
		if err != nil {
			return nil, err
		}
		before := `,`
		if i == 0 {
			before = `,"stepResults":[`
		}
		parts = append(parts, []byte(before), openEnd(row))
		if s.Data != nil && len(s.Data) <= stepwell.MaxInlineData {
			parts = append(parts, []byte(`,"data":`), s.Data)
		}
		parts = append(parts, []byte(`}`))
	}
	if len(steps) > 0 {
		parts = append(parts, []byte(`]`))
	}
	return parts, nil
}

// openEnd cuts the last brace of an encoded object off, so that members can follow.
func openEnd(b []byte) []byte { return b[:len(b)-len("}\n")] }

func wireKey(k *stepwell.APIKey) v1.APIKey {
	return v1.APIKey{
		ID: k.ID, Name: k.Name, Role: k.Role, Tools: wireTools(k.Tools), UserID: k.UserID,
		ExpiresAt: wireTime(k.ExpiresAt), CreatedAt: wireTime(k.CreatedAt), LastUsedAt: wireTime(k.LastUsedAt),
	}
}

// wireTools keeps the difference between no list (all tools) and an empty one.
func wireTools(tools []string) *[]string {
	if tools == nil {
		return nil
	}
	return &tools
}
