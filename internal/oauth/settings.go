// Package oauth owns what OAuth 2 means here: which credentials of a system are its
// settings, when an access token has to be renewed, and the exchange with a token
// endpoint. It must not store anything, and no error of it holds a secret that it sent.
package oauth

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"stepwell"
)

// Credentials of a system that OAuth gives a meaning.
const (
	GrantType    = "grant_type"
	ClientID     = "client_id"
	ClientSecret = "client_secret"
	TokenURL     = "token_url"
	AuthURL      = "auth_url"
	Scopes       = "scopes" // separated by spaces
	AccessToken  = "access_token"
	RefreshToken = "refresh_token"
	ExpiresAt    = "expires_at" // of the access token, RFC 3339
)

// Grant types.
const (
	GrantClientCredentials = "client_credentials"
	GrantRefreshToken      = "refresh_token"
	GrantAuthorizationCode = "authorization_code"
)

var grants = []string{GrantClientCredentials, GrantRefreshToken, GrantAuthorizationCode}

// ofClient are the settings that an end user's credentials take from their system's.
var ofClient = []string{GrantType, ClientID, ClientSecret, TokenURL, AuthURL, Scopes}

// public are the settings that are no secrets: masking them would tear texts apart.
var public = []string{GrantType, TokenURL, AuthURL, Scopes, ExpiresAt}

// maxMargin is how long before its end an access token is renewed: longer than clocks
// differ and a request is on its way. One that lives less than 5 min is renewed in the
// last fifth of its life.
const maxMargin = time.Minute

// Keeps reports whether a credential of a system that uses OAuth is a setting or a token,
// which nobody is asked for; an end user may have a client of their own.
func Keeps(key string) bool {
	return slices.Contains(public, key) || key == AccessToken || key == RefreshToken
}

// Settings are the OAuth settings of a bound system.
type Settings struct {
	GrantType, ClientID, ClientSecret, TokenURL, AuthURL, Scopes string
	AccessToken, RefreshToken                                    string
	ExpiresAt                                                    time.Time // zero: not known
	tokenAt                                                      time.Time
}

// Read reads the settings of a bound system; ok is false when it does not use OAuth. An
// end user's access and refresh token are never the system's own.
func Read(b *stepwell.BoundSystem) (s Settings, ok bool) {
	values := map[string]string{}
	for _, key := range ofClient {
		if v := b.Client[key]; v != "" {
			values[key] = v
		}
	}
	maps.Copy(values, b.Values)
	if b.Values == nil || !slices.Contains(grants, values[GrantType]) {
		return s, false
	}
	s = Settings{
		GrantType: values[GrantType], ClientID: values[ClientID], ClientSecret: values[ClientSecret], TokenURL: values[TokenURL],
		AuthURL: values[AuthURL], Scopes: values[Scopes], AccessToken: values[AccessToken], RefreshToken: values[RefreshToken],
		tokenAt: b.TokenAt,
	}
	if at := values[ExpiresAt]; at != "" {
		// What is no time was never checked (an end user's): renewed rather than trusted.
		if s.ExpiresAt, _ = time.Parse(time.RFC3339, at); s.ExpiresAt.IsZero() {
			s.ExpiresAt = time.Unix(0, 0)
		}
	}
	return s, true
}

// Due reports whether the access token has to be renewed before it is used at now: there
// is none, or it ends soon. One whose end is not known is not due.
func (s *Settings) Due(now time.Time) bool {
	if s.AccessToken == "" {
		return true
	}
	if s.ExpiresAt.IsZero() {
		return false
	}
	margin := maxMargin
	if !s.tokenAt.IsZero() {
		margin = max(0, min(margin, s.ExpiresAt.Sub(s.tokenAt)/5))
	}
	return !now.Before(s.ExpiresAt.Add(-margin))
}

// Usable reports whether the access token may be used at now, due or not.
func (s *Settings) Usable(now time.Time) bool {
	return s.AccessToken != "" && (s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt))
}

// Age is for how long the access token has been known; an hour when that is not known.
func (s *Settings) Age(now time.Time) time.Duration {
	if s.tokenAt.IsZero() {
		return time.Hour
	}
	return now.Sub(s.tokenAt)
}

// Renewable reports whether there is what a new access token can be had with.
func (s *Settings) Renewable() bool {
	return s.TokenURL != "" && (s.GrantType == GrantClientCredentials || s.RefreshToken != "")
}

// Secrets gives the values among credentials that must be hidden.
func Secrets(values map[string]string) []string {
	_, oauth := values[GrantType]
	var secrets []string
	for key, value := range values {
		if !oauth || !slices.Contains(public, key) {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// Check checks the OAuth settings among the credentials of a system: without a
// grant_type there are none. Its error is KindInvalid and names the credential.
func Check(values map[string]string) error {
	grant, ok := values[GrantType]
	if !ok {
		return nil
	}
	if !slices.Contains(grants, grant) {
		return bad(GrantType, "one of "+strings.Join(grants, ", "))
	}
	for _, key := range []string{TokenURL, AuthURL} {
		if text, given := values[key]; given && !ValidURL(text) {
			return bad(key, "an http or https URL")
		}
	}
	if at, given := values[ExpiresAt]; given {
		if _, err := time.Parse(time.RFC3339, at); err != nil {
			return bad(ExpiresAt, "a date and time such as 2030-01-02T03:04:05Z")
		}
	}
	if values[TokenURL] == "" {
		return bad(TokenURL, "given when there is a 'grant_type'")
	}
	if grant == GrantClientCredentials && values[ClientID] == "" {
		return bad(ClientID, "given for the grant type "+grant)
	}
	return nil
}

// ValidURL reports whether a text is an http or https URL with a host.
func ValidURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func bad(key, must string) error {
	return stepwell.Invalid("invalid_field", "'%s' must be %s", "credentials."+key, must)
}

// Token is what a token endpoint gave.
type Token struct {
	Access  string
	Refresh string    // empty: the one that was used stays
	Expires time.Time // zero: not said
}

// Into puts a token among credentials.
func (t *Token) Into(values map[string]string) {
	values[AccessToken] = t.Access
	delete(values, ExpiresAt)
	if !t.Expires.IsZero() {
		values[ExpiresAt] = t.Expires.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	if t.Refresh != "" {
		values[RefreshToken] = t.Refresh
	}
}

// Refused is the error of a token endpoint that will go on refusing.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// Unavailable is the error of a token endpoint that may answer better later.
type Unavailable struct {
	Reason string
	// RetryAfter is what the endpoint asked to wait; 0 when it asked for nothing.
	RetryAfter time.Duration
}

func (e *Unavailable) Error() string { return e.Reason }

func refusedf(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }
