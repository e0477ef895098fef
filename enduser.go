package stepwell

import (
	"encoding/json"
	"slices"
	"time"
)

// AllSystems as the only one of EndUser.AllowedSystems means every system.
const AllSystems = "*"

// EndUser is a user of an organization's own application: runs work for one with what
// that one connected.
type EndUser struct {
	OrgID          string
	ID             string          // a uuid in lower case
	ExternalID     string          // the application's own id of the user; unique when given
	Email          string          // may be empty
	Name           string          // may be empty
	Metadata       json.RawMessage // an object, or nil
	AllowedSystems []string        // ids of systems, or AllSystems alone; never nil when it was read
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Connection says whether an end user connected a system.
type Connection struct {
	SystemID       string
	SystemName     string // empty when the system has no name, or is gone
	HasCredentials bool
}

// SystemAccess is what stands against a run for an end user: ids of systems, sorted.
type SystemAccess struct {
	Forbidden []string // not among the end user's allowed systems
	Missing   []string // with tenants, and not connected by the end user
}

// AuditEntry is one row of the audit log: who changed what. It holds no secret.
type AuditEntry struct {
	OrgID      string
	ID         string
	CreatedAt  time.Time
	UserID     string // of the key, or "command line", or "configuration"
	Action     string // `<target type>.<verb>`, such as tool.update; stable
	TargetType string
	Target     string // id of what was changed
	TraceID    string // of the request; empty without one
}

// Systems gives the ids of the systems that the steps of a tool name, each once.
func (t *Tool) Systems() []string {
	ids := []string{}
	for i := range t.Steps {
		if id := t.Steps[i].Config.SystemID; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
