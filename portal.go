package stepwell

import "time"

// Codes of the errors by which the portal refuses a link or a session.
const (
	CodeLinkUnknown  = "link_unknown"  // KindNotFound
	CodeLinkExpired  = "link_expired"  // KindUnauthorized
	CodeLinkReplaced = "link_replaced" // KindUnauthorized: there is a newer one
	CodeSessionEnded = "session_ended" // KindUnauthorized
)

// Guest is the end user whom a link or a session of the portal is for.
type Guest struct {
	OrgID     string
	OrgName   string
	EndUserID string
	Name      string // of the end user, or else their e-mail address; may be empty
}

// TenantSystem is a system that an end user may connect, and whether it is.
type TenantSystem struct {
	System      *System   // with its own credentials: secret
	ConnectedAt time.Time // when the end user last gave credentials; zero: not connected
}

// SignIn is a sign-in at a system's own page that was begun in the portal.
type SignIn struct {
	Guest       Guest // without names
	System      string
	Environment string
	Verifier    string // of PKCE: secret
}
