package stepwell

import (
	"encoding/json"
	"time"
)

// Multi-tenancy modes of a system.
const (
	TenancyDisabled = "disabled"
	TenancyEnabled  = "enabled"
)

// Environments are those that a system may exist in, once in each: the modes of runs.
var Environments = []string{ModeProd, ModeDev}

// System is an upstream with credentials that steps name by its id. An id exists at
// most once in each environment.
type System struct {
	OrgID            string
	ID               string
	Environment      string // ModeProd or ModeDev
	Name             string
	URL              string
	MultiTenancyMode string            // TenancyDisabled or TenancyEnabled
	CredentialKeys   []string          // what the portal asks an end user for; nil: the keys stored
	Metadata         json.RawMessage   // an object, or nil
	Credentials      map[string]string // secret; never nil when it was read
	CreatedAt        time.Time
	UpdatedAt        time.Time
}

// CredentialPlace names the row that holds credentials: a system's own or, with EndUser,
// what that end user connected. The latter is one for all environments.
type CredentialPlace struct {
	Org, System, Environment string
	EndUser                  string // id of an end user; empty for the system's own
}

// BoundSystem is a system as a run uses it: of the environment that its mode picks, and
// with its end user's credentials when there is one and the system has tenants.
type BoundSystem struct {
	Place  CredentialPlace
	URL    string
	Values map[string]string // what expressions read; nil when the end user has connected nothing. Secret
	// Forbidden says that the run's end user may not use the system, or is gone: then there
	// are no values.
	Forbidden bool
	Client    map[string]string // the system's own values when Values are an end user's, else nil. Secret
	// TokenAt is when the access token among the values was obtained; zero when it was
	// given, not fetched.
	TokenAt time.Time
}

// HeldCredentials are the credentials of a place as they are stored.
type HeldCredentials struct {
	Values  map[string]string // secret
	TokenAt time.Time         // as in BoundSystem
}
