package v1

// BulkRequest is the body of POST /runs/cancel and POST /runs/rerun. Its filters are those
// of GET /runs; without any, All must be true.
type BulkRequest struct {
	ID             string `json:"id,omitempty"`     // a UUID: a second operation with it is refused
	DryRun         bool   `json:"dryRun,omitempty"` // only count the runs
	All            bool   `json:"all,omitempty"`
	ToolID         string `json:"toolId,omitempty"`
	Status         string `json:"status,omitempty"`         // of a rerun: failed or aborted; absent means both
	RequestSources string `json:"requestSources,omitempty"` // several are separated by commas
	UserID         string `json:"userId,omitempty"`
	SystemID       string `json:"systemId,omitempty"`
	RerunOf        string `json:"rerunOf,omitempty"`
	ParentRunID    string `json:"parentRunId,omitempty"`
	StartedAfter   Time   `json:"startedAfter,omitzero"`
	StartedBefore  Time   `json:"startedBefore,omitzero"`
}

// Bulk answers with a bulk operation.
type Bulk struct {
	Data BulkOperation `json:"data"`
}

// BulkOperation cancels or reruns many runs in the background. Done, Skipped and Failed
// add up to Total when it is finished.
type BulkOperation struct {
	ID          string      `json:"id,omitempty"` // absent of a dry run
	Kind        string      `json:"kind"`         // cancel or rerun
	Status      string      `json:"status"`       // running, finished or dry_run
	Total       int         `json:"total"`
	Done        int         `json:"done"`
	Skipped     int         `json:"skipped"` // the run had ended before its turn, or is gone
	Failed      int         `json:"failed"`
	Errors      []BulkError `json:"errors"` // the first 100 of failed and skipped ones
	UserID      string      `json:"userId,omitempty"`
	CreatedAt   Time        `json:"createdAt,omitzero"`
	CompletedAt Time        `json:"completedAt,omitzero"`
}

// BulkError says why a run was skipped or failed.
type BulkError struct {
	RunID   string `json:"runId"`
	Message string `json:"message"`
}
