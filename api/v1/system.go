package v1

import "encoding/json"

// CredentialSet stands in answers in place of each credential: they are never shown. In a
// PATCH it means that the stored one stays.
const CredentialSet = "[set]"

// System is an upstream with stored credentials that steps name by its id.
type System struct {
	ID               string            `json:"id"`
	Name             string            `json:"name,omitempty"`
	URL              string            `json:"url,omitempty"`
	Credentials      map[string]string `json:"credentials"`      // each "[set]"
	CredentialKeys   []string          `json:"credentialKeys"`   // what the portal asks an end user for
	MultiTenancyMode string            `json:"multiTenancyMode"` // disabled or enabled
	Environment      string            `json:"environment"`      // prod or dev
	Metadata         json.RawMessage   `json:"metadata,omitempty"`
	CreatedAt        Time              `json:"createdAt,omitzero"`
	UpdatedAt        Time              `json:"updatedAt,omitzero"`
}

// SystemCreate is the body of POST /systems. Everything may be left out: the id becomes a
// UUID, the environment prod, multiTenancyMode disabled, credentialKeys the keys stored.
type SystemCreate struct {
	ID               string            `json:"id,omitempty"`
	Name             string            `json:"name,omitempty"`
	URL              string            `json:"url,omitempty"`
	Credentials      map[string]string `json:"credentials,omitempty"`
	CredentialKeys   []string          `json:"credentialKeys,omitempty"`
	MultiTenancyMode string            `json:"multiTenancyMode,omitempty"`
	Environment      string            `json:"environment,omitempty"`
	Metadata         json.RawMessage   `json:"metadata,omitempty"`
}

// SystemUpdate is the body of PATCH /systems/<id>. A null clears a field. Credentials are
// merged with those stored; one that is null is removed.
type SystemUpdate struct {
	Name             Optional[string]             `json:"name,omitzero"`
	URL              Optional[string]             `json:"url,omitzero"`
	Credentials      Optional[map[string]*string] `json:"credentials,omitzero"`
	CredentialKeys   Optional[[]string]           `json:"credentialKeys,omitzero"`
	MultiTenancyMode Optional[string]             `json:"multiTenancyMode,omitzero"`
	Metadata         Optional[json.RawMessage]    `json:"metadata,omitzero"`
}
