package v1

import "encoding/json"

// HookAnswer is the answer to POST /hooks/<toolId>: the run is recorded.
type HookAnswer struct {
	RunID  string `json:"runId"`
	Status string `json:"status"` // accepted
	ToolID string `json:"toolId"`
}

// HookChallenge answers a sender that asks whether somebody listens.
type HookChallenge struct {
	Challenge json.RawMessage `json:"challenge"`
}
