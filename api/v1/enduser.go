package v1

import "encoding/json"

// EndUser is a user of the organization's own application.
type EndUser struct {
	ID             string          `json:"id"`
	ExternalID     string          `json:"externalId,omitempty"`
	Email          string          `json:"email,omitempty"`
	Name           string          `json:"name,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
	AllowedSystems []string        `json:"allowedSystems"` // ids, or "*" alone for all
	CreatedAt      Time            `json:"createdAt,omitzero"`
	UpdatedAt      Time            `json:"updatedAt,omitzero"`
	Credentials    *[]Connection   `json:"credentials,omitempty"` // in the answer to GET of one only
	APIKey         string          `json:"apiKey,omitempty"`      // in the answer to POST only: shown once
}

// Connection says whether an end user connected a system.
type Connection struct {
	SystemID       string `json:"systemId"`
	SystemName     string `json:"systemName"`
	HasCredentials bool   `json:"hasCredentials"`
}

// EndUserCreate is the body of POST /end-users.
type EndUserCreate struct {
	ExternalID     string          `json:"externalId,omitempty"`
	Email          string          `json:"email,omitempty"`
	Name           string          `json:"name,omitempty"`
	Metadata       json.RawMessage `json:"metadata,omitempty"`
	AllowedSystems []string        `json:"allowedSystems,omitempty"` // default none
}

// EndUserUpdate is the body of PATCH /end-users/<id>. A null clears.
type EndUserUpdate struct {
	ExternalID     Optional[string]          `json:"externalId,omitzero"`
	Email          Optional[string]          `json:"email,omitzero"`
	Name           Optional[string]          `json:"name,omitzero"`
	Metadata       Optional[json.RawMessage] `json:"metadata,omitzero"`
	AllowedSystems Optional[[]string]        `json:"allowedSystems,omitzero"`
}

// EndUserAnswer answers GET, POST and PATCH of an end user; Success is not in the answer
// to GET.
type EndUserAnswer struct {
	Success bool    `json:"success,omitempty"`
	Data    EndUser `json:"data"`
}

// EndUserCredentials is the body of PUT /end-users/<id>/credentials/<systemId>. It
// replaces what was there.
type EndUserCredentials struct {
	Credentials map[string]string `json:"credentials"`
}

// PortalLink answers POST /end-users/<id>/portal-token.
type PortalLink struct {
	Success bool           `json:"success"`
	Data    PortalLinkData `json:"data"`
}

// PortalLinkData is a link to the portal. Whoever has it can connect and disconnect the
// end user's systems.
type PortalLinkData struct {
	PortalURL string `json:"portalUrl"`
	ExpiresAt Time   `json:"expiresAt"`
}

// AuditEntry is one row of the audit log.
type AuditEntry struct {
	ID         string `json:"id"`
	CreatedAt  Time   `json:"createdAt"`
	UserID     string `json:"userId"`
	Action     string `json:"action"`
	TargetType string `json:"targetType"`
	Target     string `json:"target"`
	TraceID    string `json:"traceId,omitempty"` // absent when no request did it
}
