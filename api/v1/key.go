package v1

// APIKey is a key without its text.
type APIKey struct {
	ID         string    `json:"id"`
	Name       string    `json:"name,omitempty"`
	Role       string    `json:"role"`            // admin, member or runner
	Tools      *[]string `json:"tools,omitempty"` // absent: all; empty: none
	ExpiresAt  Time      `json:"expiresAt,omitzero"`
	UserID     string    `json:"userId"`
	CreatedAt  Time      `json:"createdAt,omitzero"`
	LastUsedAt Time      `json:"lastUsedAt,omitzero"`
	Key        string    `json:"key,omitempty"` // in the answer to POST only: shown once
}

// APIKeyCreate is the body of POST /api-keys.
type APIKeyCreate struct {
	Name      string    `json:"name,omitempty"`
	Role      string    `json:"role"`
	Tools     *[]string `json:"tools,omitempty"`
	ExpiresAt Time      `json:"expiresAt,omitzero"`
	UserID    string    `json:"userId,omitempty"` // default: the key's id
}

// APIKeyUpdate is the body of PATCH /api-keys/<id>. A null name, tools or expiresAt
// clears it: no name, all tools, no expiry.
type APIKeyUpdate struct {
	Name      Optional[string]   `json:"name,omitzero"`
	Role      Optional[string]   `json:"role,omitzero"`
	Tools     Optional[[]string] `json:"tools,omitzero"`
	ExpiresAt Optional[Time]     `json:"expiresAt,omitzero"`
}

// Me answers GET /me: who the key is.
type Me struct {
	UserID  string    `json:"userId"`
	OrgID   string    `json:"orgId"`
	OrgName string    `json:"orgName"`
	Role    string    `json:"role"`
	Tools   *[]string `json:"tools,omitempty"` // absent: all; empty: none
}
