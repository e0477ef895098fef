package stepwell

import (
	"encoding/json"
	"time"
)

// RunStatus is the state of a run: running, then exactly one of the others.
type RunStatus string

// The states of a run.
const (
	RunRunning RunStatus = "running"
	RunSuccess RunStatus = "success"
	RunFailed  RunStatus = "failed"
	RunAborted RunStatus = "aborted"
)

// Final reports whether the status never changes again.
func (s RunStatus) Final() bool { return s != RunRunning }

// Execution modes: which system credentials a run uses.
const (
	ModeProd = "prod"
	ModeDev  = "dev"
)

// RequestSources are the values of a run's requestSource.
var RequestSources = []string{"api", "frontend", "scheduler", "mcp", "tool-chain", "webhook", "cli"}

// RunOptions are the execution options of a run, as given by its caller.
type RunOptions struct {
	Async         bool   `json:"async,omitempty"`
	TimeoutMS     int64  `json:"timeout,omitempty"` // of each outbound request; 0 means the default
	WebhookURL    string `json:"webhookUrl,omitempty"`
	Mode          string `json:"mode,omitempty"`
	RequestSource string `json:"requestSource,omitempty"`
	TraceID       string `json:"traceId,omitempty"`
	MaxPages      int    `json:"maxPages,omitempty"`
	EndUserID     string `json:"endUserId,omitempty"`
}

// Run is one execution of one tool version.
type Run struct {
	OrgID         string
	ID            string
	ToolID        string
	ToolVersion   int64 // the store's key of the version that it runs
	Tool          *Tool // loaded on single reads only
	Status        RunStatus
	Error         string // empty unless failed or aborted
	Inputs        json.RawMessage
	Options       RunOptions
	RequestSource string
	TraceID       string
	UserID        string
	Mode          string
	ParentRunID   string
	RerunOf       string
	Link          int // place in its chain, from 1; 0 before the run is recorded means 1
	// CredentialNames are the keys of the run-time credentials; their values are not kept.
	CredentialNames []string
	Warnings        []string
	StartedAt       time.Time
	CompletedAt     time.Time // zero while running
	DataSize        int64     // bytes of JSON of data; -1 when the run stored none
	Data            json.RawMessage
	StepResults     []StepResult
	Files           []File    // without their content
	Progress        *Progress // while running, on single reads only
}

// OpenRun is a run as a worker begins with it. Credentials are its run-time ones, an
// object, or nil: secret.
type OpenRun struct {
	Run         Run
	Credentials json.RawMessage
	HasPages    bool // it stored some already
	HasClaims   bool // somebody has, or had, requests of it in flight, or waits to repeat one
	// HookHeaders are the headers of the hook's call that started the run, or the run that
	// it is a rerun of, and HookIsText says whether the call's body is UTF-8; nil without.
	HookHeaders json.RawMessage
	HookIsText  bool
}

// StepResult is what one step of a run came to. Data is nil when it is left out.
type StepResult struct {
	StepID  string
	Success bool
	Data    json.RawMessage
	Error   string
	Pages   int
	Items   int64
	EndedBy string
}

// Progress says how far a running run is.
type Progress struct {
	Step       string
	Page       int
	Item       int
	Items      int64
	Bytes      int64
	Rate       float64 // items a second lately; known to those who watch
	WaitingFor *Waiting
}

// Waiting names what a run waits for, and until when.
type Waiting struct {
	Reason string
	Until  time.Time
}

// Caller is who sent a request: an API key with its organization and role.
type Caller struct {
	OrgID   string
	OrgName string
	KeyID   string
	UserID  string
	Role    string
	Tools   []string // nil means all, empty means none
	// EndUserID is whose key it is, with RoleEndUser only.
	EndUserID string
}

// Roles of API keys.
const (
	RoleAdmin  = "admin"
	RoleMember = "member"
	RoleRunner = "runner"
	// RoleEndUser is the role of end users' keys, which are made with end users.
	RoleEndUser = "end_user"
)

// APIKey is a stored key. The key itself is shown once and never stored.
type APIKey struct {
	OrgID      string
	ID         string
	Name       string
	Role       string
	UserID     string
	Tools      []string
	ExpiresAt  time.Time // zero means never
	CreatedAt  time.Time
	LastUsedAt time.Time
}
