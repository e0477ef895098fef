package stepwell

import "encoding/json"

// Limits of a tool's persistent state. Source: the interface's decisions, section 6.
const (
	MaxStateKeys  = 100      // keys
	MaxStateKey   = 256      // characters of a key, at least 1
	MaxStateValue = 64 << 10 // bytes of a value as compact UTF-8 JSON
)

// State is the persistent state of a tool at one moment. Seq counts the writes to it: what
// has changed since is what has a higher number.
type State struct {
	Seq    int64
	Values json.RawMessage // an object
}

// StateChange is what one call of a transform did to persistedState. It is stored with the
// transform's page, so that it counts once however often the transform is repeated.
type StateChange struct {
	Set      json.RawMessage `json:"set,omitempty"` // an object of the keys that are new or have another value
	Removed  []string        `json:"removed,omitempty"`
	Warnings []string        `json:"warnings,omitempty"` // values that are no JSON
}

// Empty reports whether there is nothing to be stored.
func (c *StateChange) Empty() bool {
	return c == nil || c.Set == nil && len(c.Removed) == 0 && len(c.Warnings) == 0
}

// StateWrite is what a successful run writes back to its tool's state: the keys that it
// changed, each unless it was written by another since Seq, the moment at which the run
// read the state.
type StateWrite struct {
	Seq     int64
	Set     map[string]json.RawMessage
	Removed []string
}

// Empty reports whether there is nothing to be written.
func (w *StateWrite) Empty() bool { return w == nil || len(w.Set) == 0 && len(w.Removed) == 0 }
