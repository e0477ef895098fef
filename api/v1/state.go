package v1

import "encoding/json"

// State is the persistent state of a tool: at most 100 keys of 1 to 256 characters, with
// values of at most 64 KiB each. Texts equal to a known credential read as `[masked]`.
type State struct {
	ToolID string          `json:"toolId"`
	State  json.RawMessage `json:"state"` // an object
}

// StatePut is the body of PUT /tools/<toolId>/state: the whole state. A text `[masked]`
// keeps what is stored at its place.
type StatePut struct {
	State json.RawMessage `json:"state"` // an object
}

// StateWritten is the answer to a PUT of a state. The warnings name the keys that others
// changed since the state was read.
type StateWritten struct {
	ToolID   string   `json:"toolId"`
	Warnings []string `json:"warnings"`
}

// StateReset is the answer to a DELETE of a state.
type StateReset struct {
	ToolID      string `json:"toolId"`
	DeletedKeys int    `json:"deletedKeys"`
}
