package v1

import "encoding/json"

// RunRequest is the body of POST /tools/<toolId>/run; it may be absent.
type RunRequest struct {
	RunID       string          `json:"runId,omitempty"`
	Inputs      json.RawMessage `json:"inputs,omitempty"`      // an object
	Credentials json.RawMessage `json:"credentials,omitempty"` // an object; secret, never stored in clear
	Options     *RunOptions     `json:"options,omitempty"`
}

// RerunRequest is the body of POST /runs/<runId>/rerun; it may be absent.
type RerunRequest struct {
	RunID       string          `json:"runId,omitempty"`
	FromStep    string          `json:"fromStep,omitempty"`    // empty: where the run stopped
	Inputs      json.RawMessage `json:"inputs,omitempty"`      // an object; new ones need a rerun from the first step
	Credentials json.RawMessage `json:"credentials,omitempty"` // an object; those of the run that ended, again
	Options     *RerunOptions   `json:"options,omitempty"`     // absent ones are those of the run that ended
	ToolVersion string          `json:"toolVersion,omitempty"` // empty: the version that the run ran
}

// RerunOptions are RunOptions in which async false is not the same as absent.
type RerunOptions struct {
	Async *bool `json:"async,omitempty"` // instead of the one below
	RunOptions
}

// RunOptions are the execution options of a run.
type RunOptions struct {
	Async         bool   `json:"async,omitempty"`
	Timeout       int64  `json:"timeout,omitempty"`    // milliseconds for each outbound request, 1 to 3,600,000
	WebhookURL    string `json:"webhookUrl,omitempty"` // http(s)://… or tool:<toolId>
	Mode          string `json:"mode,omitempty"`       // prod (default) or dev
	RequestSource string `json:"requestSource,omitempty"`
	TraceID       string `json:"traceId,omitempty"`
	MaxPages      int    `json:"maxPages,omitempty"`
	EndUserID     string `json:"endUserId,omitempty"`
}

// Run is one execution of a tool.
type Run struct {
	RunID            string          `json:"runId"`
	ToolID           string          `json:"toolId"`
	Status           string          `json:"status"` // running, success, failed or aborted
	Metadata         RunMetadata     `json:"metadata"`
	Tool             *Tool           `json:"tool,omitempty"` // single runs only
	ToolPayload      json.RawMessage `json:"toolPayload,omitempty"`
	Data             json.RawMessage `json:"data,omitempty"` // absent over 256 KiB, unless it answers a synchronous run
	Error            string          `json:"error,omitempty"`
	StepResults      []StepResult    `json:"stepResults,omitempty"` // in the answer to a synchronous run only
	Options          *RunOptions     `json:"options,omitempty"`
	RequestSource    string          `json:"requestSource,omitempty"`
	TraceID          string          `json:"traceId,omitempty"`
	ResultStorageURI string          `json:"resultStorageUri,omitempty"`
	UserID           string          `json:"userId,omitempty"`
	ExecutionMode    string          `json:"executionMode,omitempty"`
	ParentRunID      string          `json:"parentRunId,omitempty"`
	RerunOf          string          `json:"rerunOf,omitempty"`
	Progress         *Progress       `json:"progress,omitempty"` // single runs only, while running
	FileArtifacts    []FileArtifact  `json:"fileArtifacts,omitempty"`
	ImportantNotice  string          `json:"important_notice,omitempty"`
}

// RunMetadata says when a run ran and what was worth a warning.
type RunMetadata struct {
	StartedAt   Time     `json:"startedAt,omitzero"`
	CompletedAt Time     `json:"completedAt,omitzero"`
	DurationMS  *int64   `json:"durationMs,omitempty"` // once completed
	Warnings    []string `json:"warnings,omitempty"`
}

// StepResult is what one step of a run came to.
type StepResult struct {
	StepID  string          `json:"stepId"`
	Success bool            `json:"success"`
	Data    json.RawMessage `json:"data,omitempty"` // left out over 256 KiB, unless it is part of stored results
	Error   string          `json:"error,omitempty"`
	Pages   int             `json:"pages,omitempty"`
	Items   *int64          `json:"items,omitempty"`   // of a paginated step
	EndedBy string          `json:"endedBy,omitempty"` // stopCondition, shortPage, emptyPage or noNext
}

// Progress says how far a running run is.
type Progress struct {
	Step       string   `json:"step,omitempty"`
	Page       int      `json:"page"`
	Item       int      `json:"item,omitempty"`
	Items      int64    `json:"items"`
	Bytes      int64    `json:"bytes"`
	Rate       float64  `json:"rate,omitempty"` // items a second lately; in events only
	WaitingFor *Waiting `json:"waitingFor,omitempty"`
}

// Event is one server-sent event of GET /runs/<runId>/events.
type Event struct {
	ID       string    // where the run stands; sent back as Last-Event-ID it resumes the stream
	Run      *Run      // of a status event: the run without its data
	Progress *Progress // of a progress event
}

// Waiting names what a run waits for, and until when.
type Waiting struct {
	Reason string `json:"reason"`
	Until  Time   `json:"until,omitzero"`
}

// Results answers GET /runs/<runId>/results. Data is absent, and Message says why,
// while the run is running and when nothing is stored.
type Results struct {
	Success bool        `json:"success"`
	Data    *RunResults `json:"data,omitempty"`
	Message string      `json:"message,omitempty"`
}

// RunResults are the full stored results of a run.
type RunResults struct {
	RunID       string          `json:"runId"`
	Success     bool            `json:"success"` // of the run
	Data        json.RawMessage `json:"data,omitempty"`
	StepResults []StepResult    `json:"stepResults,omitempty"`
	ToolPayload json.RawMessage `json:"toolPayload,omitempty"`
	Error       string          `json:"error,omitempty"`
	StoredAt    Time            `json:"storedAt,omitzero"`

	FileArtifacts []FileArtifact `json:"fileArtifacts,omitempty"`
}

// Files answers GET /runs/<runId>/files.
type Files struct {
	FileArtifacts []FileArtifact `json:"fileArtifacts"`
}

// FileArtifact is a file that a run made.
type FileArtifact struct {
	FileKey     string `json:"fileKey"`
	Filename    string `json:"filename"`
	ContentType string `json:"contentType"`
	Size        int64  `json:"size"`                  // bytes
	DownloadURL string `json:"downloadUrl,omitempty"` // good for an hour; not in lists
}
