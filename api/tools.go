package api

import (
	"context"
	"encoding/json"

	"stepwell"
	"stepwell/api/v1"
)

func parseToolCreate(req *request) (v1.ToolCreate, error) {
	o := req.body
	t := v1.ToolCreate{
		ID: o.text("id"), Name: o.text("name"), Steps: objects(o, "steps", readStep), Instruction: o.text("instruction"),
		InputSchema: o.rawObject("inputSchema"), OutputSchema: o.rawObject("outputSchema"), OutputTransform: o.text("outputTransform"),
		Folder: o.text("folder"), ResponseFilters: objects(o, "responseFilters", readFilter), WebhookURL: o.text("webhookUrl"),
	}
	if o.get("id") != nil && !validToolID(t.ID) {
		o.fail("id", toolIDRule)
	}
	return t, req.fields.err
}

func parseToolUpdate(req *request) (v1.ToolUpdate, error) {
	o := req.body
	u := v1.ToolUpdate{
		Name:            optional(o, "name", o.text),
		Steps:           optional(o, "steps", func(n string) []v1.Step { return objects(o, n, readStep) }),
		Instruction:     optional(o, "instruction", o.text),
		InputSchema:     optional(o, "inputSchema", o.rawObject),
		OutputSchema:    optional(o, "outputSchema", o.rawObject),
		OutputTransform: optional(o, "outputTransform", o.text),
		Folder:          optional(o, "folder", o.text),
		Archived:        optional(o, "archived", o.flag),
		ResponseFilters: optional(o, "responseFilters", func(n string) []v1.ResponseFilter { return objects(o, n, readFilter) }),
		WebhookURL:      optional(o, "webhookUrl", o.text),
	}
	return u, req.fields.err
}

func readStep(o object) v1.Step {
	config, _ := o.object("config")
	return v1.Step{
		ID: o.text("id"), Config: readStepConfig(config), Instruction: o.text("instruction"), Modify: o.boolean("modify"),
		DataSelector: o.text("dataSelector"), FailureBehavior: o.text("failureBehavior"),
		Concurrency: int(o.whole("concurrency", 1, stepwell.MaxConcurrency)), OutputFile: o.flag("outputFile"), Idempotent: o.flag("idempotent"),
	}
}

func readStepConfig(o object) v1.StepConfig {
	c := v1.StepConfig{
		Type: o.text("type"), URL: o.text("url"), Method: o.text("method"), QueryParams: o.scalars("queryParams"), Headers: o.scalars("headers"),
		Body: o.text("body"), SystemID: o.text("systemId"), TransformCode: o.text("transformCode"),
	}
	if p, ok := o.object("pagination"); ok {
		c.Pagination = &v1.Pagination{
			Type: p.text("type"), PageSize: readPageSize(p), CursorPath: p.text("cursorPath"), StopCondition: p.text("stopCondition"),
			ItemsPath: p.text("itemsPath"), MaxPages: int(p.whole("maxPages", 1, maxMaxPages)),
		}
	}
	return c
}

// maxMaxPages bounds maxPages, of a tool and of a run.
const maxMaxPages = 1_000_000_000

func readPageSize(o object) json.RawMessage {
	raw := o.get("pageSize")
	if raw != nil && (!scalar(raw) || raw[0] == 't' || raw[0] == 'f') {
		o.fail("pageSize", "a positive number or text")
	}
	return raw
}

func readFilter(o object) v1.ResponseFilter {
	return v1.ResponseFilter{
		ID: o.text("id"), Name: o.text("name"), Enabled: o.boolean("enabled"), Target: o.text("target"), Pattern: o.text("pattern"),
		Action: o.text("action"), Scope: o.text("scope"), MaskValue: o.text("maskValue"),
	}
}

func (a *API) createTool(ctx context.Context, req *request, in v1.ToolCreate) (*response, error) {
	t := &stepwell.Tool{
		ID: in.ID, Name: in.Name, Steps: each(in.Steps, domainStep), Instruction: in.Instruction, InputSchema: in.InputSchema,
		OutputSchema: in.OutputSchema, OutputTransform: in.OutputTransform, Folder: in.Folder,
		ResponseFilters: each(in.ResponseFilters, domainFilter), WebhookURL: in.WebhookURL,
	}
	if err := a.Validator.ValidateTool(ctx, t); err != nil {
		return nil, err
	}
	created, err := a.Tools.Create(ctx, req.caller.OrgID, t)
	if err != nil {
		return nil, err
	}
	return &response{body: wireTool(created), made: created.ID}, nil
}

// toolAnswer answers with the tool that a port gave.
func toolAnswer(t *stepwell.Tool, err error) (*response, error) {
	if err != nil {
		return nil, err
	}
	return &response{body: wireTool(t)}, nil
}

// findTool gives the latest version of a tool. An id that cannot exist is not found.
func (a *API) findTool(ctx context.Context, orgID, id string) (*stepwell.Tool, error) {
	if !validToolID(id) {
		return nil, stepwell.NotFound("Tool")
	}
	return a.Tools.Get(ctx, orgID, id)
}

func (a *API) getTool(_ context.Context, req *request, _ none) (*response, error) {
	return toolAnswer(req.tool, nil)
}

func (a *API) updateTool(ctx context.Context, req *request, in v1.ToolUpdate) (*response, error) {
	return toolAnswer(a.Tools.Update(ctx, req.caller.OrgID, req.tool.ID, func(t *stepwell.Tool) error {
		applyUpdate(t, in)
		return a.Validator.ValidateTool(ctx, t)
	}))
}

// applyUpdate sets the fields that are there; null clears.
func applyUpdate(t *stepwell.Tool, in v1.ToolUpdate) {
	set(&t.Name, in.Name)
	set(&t.Instruction, in.Instruction)
	set(&t.InputSchema, in.InputSchema)
	set(&t.OutputSchema, in.OutputSchema)
	set(&t.OutputTransform, in.OutputTransform)
	set(&t.Folder, in.Folder)
	set(&t.Archived, in.Archived)
	set(&t.WebhookURL, in.WebhookURL)
	if in.Steps.Set {
		t.Steps = each(in.Steps.Value, domainStep)
	}
	if in.ResponseFilters.Set {
		t.ResponseFilters = each(in.ResponseFilters.Value, domainFilter)
	}
}

// set changes a field that is there; the value of a null is the zero value.
func set[T any](field *T, o v1.Optional[T]) {
	if o.Set {
		*field = o.Value
	}
}

func (a *API) deleteTool(ctx context.Context, req *request, _ none) (*response, error) {
	if err := a.Tools.Delete(ctx, req.caller.OrgID, req.tool.ID); err != nil {
		return nil, err
	}
	return &response{body: v1.Deleted{Success: true}}, nil
}

func parseToolQuery(req *request) (ToolQuery, error) {
	q := queryReader{values: req.query}
	in := ToolQuery{IncludeArchived: q.flag("includeArchived")}
	in.Page, in.Limit = q.page(50, 1000)
	return in, q.err
}

func (a *API) listTools(ctx context.Context, req *request, in ToolQuery) (*response, error) {
	in.Only = req.caller.Tools
	l, err := a.Tools.List(ctx, req.caller.OrgID, in)
	if err != nil {
		return nil, err
	}
	return &response{body: wireList(l, in.Page, in.Limit, wireTool)}, nil
}

func (a *API) listVersions(ctx context.Context, req *request, _ none) (*response, error) {
	all, err := a.Tools.Versions(ctx, req.caller.OrgID, req.tool.ID)
	if err != nil {
		return nil, err
	}
	return &response{body: v1.Whole[v1.Tool]{Data: each(all, wireTool)}}, nil
}

// versionOf gives the version in the path. A text that is no version is not found.
func versionOf(req *request) (string, error) {
	v := req.vars["version"]
	if !versionPattern.MatchString(v) {
		return "", stepwell.NotFound("Version")
	}
	return v, nil
}

func (a *API) getVersion(ctx context.Context, req *request, _ none) (*response, error) {
	v, err := versionOf(req)
	if err != nil {
		return nil, err
	}
	return toolAnswer(a.Tools.Version(ctx, req.caller.OrgID, req.tool.ID, v))
}

func (a *API) restoreVersion(ctx context.Context, req *request, _ none) (*response, error) {
	v, err := versionOf(req)
	if err != nil {
		return nil, err
	}
	return toolAnswer(a.Tools.Restore(ctx, req.caller.OrgID, req.tool.ID, v))
}
