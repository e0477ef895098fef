package stepwell

import (
	"encoding/json"
	"time"
)

// Tool is a saved, ordered list of steps with an optional output transform.
// Every saved version is immutable; a Tool value is one version.
type Tool struct {
	// VersionKey identifies the stored version inside the store; 0 before it is saved.
	VersionKey int64 `json:"-"`

	ID              string           `json:"id"`
	Name            string           `json:"name,omitempty"`
	Steps           []Step           `json:"steps"`
	Version         string           `json:"version"`
	Instruction     string           `json:"instruction,omitempty"`
	InputSchema     json.RawMessage  `json:"inputSchema,omitempty"`
	OutputSchema    json.RawMessage  `json:"outputSchema,omitempty"`
	OutputTransform string           `json:"outputTransform,omitempty"`
	Folder          string           `json:"folder,omitempty"`
	Archived        bool             `json:"archived"`
	ResponseFilters []ResponseFilter `json:"responseFilters,omitempty"`
	WebhookURL      string           `json:"webhookUrl,omitempty"`
	CreatedAt       time.Time        `json:"createdAt"`
	UpdatedAt       time.Time        `json:"updatedAt"`
}

// Step is one unit of a tool: an HTTP request or a transform.
// It is a document: its JSON form is the same in the API and in the store.
type Step struct {
	ID              string     `json:"id"`
	Config          StepConfig `json:"config"`
	Instruction     string     `json:"instruction,omitempty"`
	Modify          *bool      `json:"modify,omitempty"`
	DataSelector    string     `json:"dataSelector,omitempty"`
	FailureBehavior string     `json:"failureBehavior,omitempty"`
	Concurrency     int        `json:"concurrency,omitempty"`
	OutputFile      bool       `json:"outputFile,omitempty"`
	Idempotent      bool       `json:"idempotent,omitempty"`
}

// Step types.
const (
	StepTypeRequest   = "request"
	StepTypeTransform = "transform"
)

// Failure behaviours of a step.
const (
	FailureFail     = "fail"
	FailureContinue = "continue"
)

// StepConfig says what a step does. Values of QueryParams and Headers are
// JSON: text (which may hold templates), numbers, booleans or arrays of these.
type StepConfig struct {
	Type          string                     `json:"type,omitempty"`
	URL           string                     `json:"url,omitempty"`
	Method        string                     `json:"method,omitempty"`
	QueryParams   map[string]json.RawMessage `json:"queryParams,omitempty"`
	Headers       map[string]json.RawMessage `json:"headers,omitempty"`
	Body          string                     `json:"body,omitempty"`
	Pagination    *Pagination                `json:"pagination,omitempty"`
	SystemID      string                     `json:"systemId,omitempty"`
	TransformCode string                     `json:"transformCode,omitempty"`
}

// Pagination types.
const (
	PaginationOffset   = "offsetBased"
	PaginationPage     = "pageBased"
	PaginationCursor   = "cursorBased"
	PaginationNextURL  = "nextUrl"
	PaginationDisabled = "disabled"
)

// Pagination says how a step walks over the pages of an upstream.
// PageSize is a JSON number, its text, or a template that gives one.
type Pagination struct {
	Type          string          `json:"type"`
	PageSize      json.RawMessage `json:"pageSize,omitempty"`
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
	Target    string `json:"target"`            // KEYS, VALUES, BOTH
	Pattern   string `json:"pattern"`           // RE2, case-insensitive, unanchored
	Action    string `json:"action"`            // REMOVE, MASK, FAIL
	Scope     string `json:"scope,omitempty"`   // FIELD (default), ITEM, ENTRY
	MaskValue string `json:"maskValue,omitempty"`
}

// IsTransform reports whether the step runs code and sends nothing.
func (s *Step) IsTransform() bool { return s.Config.Type == StepTypeTransform }

// Method is the HTTP method of the step, GET when absent.
func (s *Step) Method() string {
	if s.Config.Method == "" {
		return "GET"
	}
	return s.Config.Method
}

// Paginated reports whether the step walks over pages.
func (s *Step) Paginated() bool {
	p := s.Config.Pagination
	return !s.IsTransform() && p != nil && p.Type != PaginationDisabled
}

// Effects reports whether the step's request may change something upstream:
// its modify flag when given, else its method.
func (s *Step) Effects() bool {
	if s.IsTransform() {
		return false
	}
	if s.Modify != nil {
		return *s.Modify
	}
	switch s.Method() {
	case "GET", "HEAD", "OPTIONS":
		return false
	}
	return true
}

// Repeatable reports whether the same request may be sent again when its
// outcome is unknown. PUT and DELETE have effects and are repeatable.
func (s *Step) Repeatable() bool {
	if s.IsTransform() {
		return true
	}
	if s.Modify != nil {
		return !*s.Modify
	}
	switch s.Method() {
	case "POST", "PATCH":
		return false
	}
	return true
}

// ContinueOnFailure reports whether the run goes on when the step fails.
func (s *Step) ContinueOnFailure() bool { return s.FailureBehavior == FailureContinue }
