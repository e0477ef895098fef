package v1

import "encoding/json"

// Tool is one version of a saved tool.
type Tool struct {
	ID              string           `json:"id"`
	Name            string           `json:"name,omitempty"`
	Steps           []Step           `json:"steps"` // never null
	Version         string           `json:"version"`
	Instruction     string           `json:"instruction,omitempty"`
	InputSchema     json.RawMessage  `json:"inputSchema,omitempty"`
	OutputSchema    json.RawMessage  `json:"outputSchema,omitempty"`
	OutputTransform string           `json:"outputTransform,omitempty"`
	Folder          string           `json:"folder,omitempty"`
	Archived        bool             `json:"archived"`
	ResponseFilters []ResponseFilter `json:"responseFilters,omitempty"`
	WebhookURL      string           `json:"webhookUrl,omitempty"`
	CreatedAt       Time             `json:"createdAt,omitzero"`
	UpdatedAt       Time             `json:"updatedAt,omitzero"`
}

// ToolCreate is the body of POST /tools. It needs steps or an outputTransform.
type ToolCreate struct {
	ID              string           `json:"id,omitempty"`
	Name            string           `json:"name,omitempty"`
	Steps           []Step           `json:"steps,omitempty"`
	Instruction     string           `json:"instruction,omitempty"`
	InputSchema     json.RawMessage  `json:"inputSchema,omitempty"`
	OutputSchema    json.RawMessage  `json:"outputSchema,omitempty"`
	OutputTransform string           `json:"outputTransform,omitempty"`
	Folder          string           `json:"folder,omitempty"`
	ResponseFilters []ResponseFilter `json:"responseFilters,omitempty"`
	WebhookURL      string           `json:"webhookUrl,omitempty"`
}

// ToolUpdate is the body of PUT /tools/<toolId>: only what is there changes, and
// null clears a field.
type ToolUpdate struct {
	Name            Optional[string]           `json:"name,omitzero"`
	Steps           Optional[[]Step]           `json:"steps,omitzero"` // replaces all steps
	Instruction     Optional[string]           `json:"instruction,omitzero"`
	InputSchema     Optional[json.RawMessage]  `json:"inputSchema,omitzero"`
	OutputSchema    Optional[json.RawMessage]  `json:"outputSchema,omitzero"`
	OutputTransform Optional[string]           `json:"outputTransform,omitzero"`
	Folder          Optional[string]           `json:"folder,omitzero"`
	Archived        Optional[bool]             `json:"archived,omitzero"`
	ResponseFilters Optional[[]ResponseFilter] `json:"responseFilters,omitzero"`
	WebhookURL      Optional[string]           `json:"webhookUrl,omitzero"`
}

// Step is one unit of a tool: an HTTP request or a transform.
type Step struct {
	ID              string     `json:"id"`
	Config          StepConfig `json:"config"`
	Instruction     string     `json:"instruction,omitempty"`
	Modify          *bool      `json:"modify,omitempty"`
	DataSelector    string     `json:"dataSelector,omitempty"`
	FailureBehavior string     `json:"failureBehavior,omitempty"` // fail (default) or continue
	Concurrency     int        `json:"concurrency,omitempty"`     // 1 to 50
	OutputFile      bool       `json:"outputFile,omitempty"`
	Idempotent      bool       `json:"idempotent,omitempty"`
}

// StepConfig says what a step does. Values of QueryParams and Headers are text
// (which may hold templates), numbers, booleans or arrays of these.
type StepConfig struct {
	Type          string                     `json:"type,omitempty"` // request (default) or transform
	URL           string                     `json:"url,omitempty"`
	Method        string                     `json:"method,omitempty"` // GET when absent
	QueryParams   map[string]json.RawMessage `json:"queryParams,omitempty"`
	Headers       map[string]json.RawMessage `json:"headers,omitempty"`
	Body          string                     `json:"body,omitempty"`
	Pagination    *Pagination                `json:"pagination,omitempty"`
	SystemID      string                     `json:"systemId,omitempty"`
	TransformCode string                     `json:"transformCode,omitempty"`
}

// Pagination says how a step walks over the pages of an upstream.
type Pagination struct {
	Type          string          `json:"type,omitempty"`
	PageSize      json.RawMessage `json:"pageSize,omitempty"` // a number, its text, or a template
	CursorPath    string          `json:"cursorPath,omitempty"`
	StopCondition string          `json:"stopCondition,omitempty"`
	ItemsPath     string          `json:"itemsPath,omitempty"`
	MaxPages      int             `json:"maxPages,omitempty"`
}

// ResponseFilter removes, masks or refuses parts of what leaves the service.
type ResponseFilter struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Enabled   *bool  `json:"enabled,omitempty"` // absent means true
	Target    string `json:"target,omitempty"`  // KEYS, VALUES or BOTH
	Pattern   string `json:"pattern,omitempty"` // RE2, case-insensitive, unanchored
	Action    string `json:"action,omitempty"`  // REMOVE, MASK or FAIL
	Scope     string `json:"scope,omitempty"`   // FIELD (default), ITEM or ENTRY
	MaskValue string `json:"maskValue,omitempty"`
}
