package demo

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"
)

// tokenLife is how long a token of POST /oauth/token is accepted.
const tokenLife = time.Hour

// maxTokens bounds the issued tokens that are remembered.
const maxTokens = 10_000

// authority checks credentials and issues tokens.
type authority struct {
	mu     sync.Mutex
	issued map[string]time.Time // token to its end
}

func newAuthority() *authority { return &authority{issued: map[string]time.Time{}} }

// scheme is one way to authenticate.
type scheme struct {
	name      string // in the path
	challenge string // of a 401
	check     func(*http.Request) bool
}

// schemes are all ways to authenticate.
func (a *authority) schemes() []scheme {
	return []scheme{
		{"bearer", "Bearer", func(r *http.Request) bool {
			given := r.Header.Get("Authorization")
			return given == "Bearer "+Token || a.valid(given)
		}},
		{"basic", `Basic realm="demo"`, func(r *http.Request) bool {
			user, password, ok := r.BasicAuth()
			return ok && user == User && password == Password
		}},
		{"header", "ApiKey", func(r *http.Request) bool { return r.Header.Get("X-API-Key") == Token }},
	}
}

// guard answers 401 to requests without credentials.
func (s scheme) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.check(r) {
			w.Header().Set("WWW-Authenticate", s.challenge)
			sendError(w, &failure{http.StatusUnauthorized, "credentials are missing or wrong"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// valid reports whether an Authorization header brings an issued token.
func (a *authority) valid(header string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	end, ok := a.issued[header]
	return ok && time.Now().Before(end)
}

// issue answers POST /oauth/token for the grant client_credentials with client
// User and secret Password, in the form or as Basic: a bearer token of an hour.
func (a *authority) issue(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	user, password, ok := r.BasicAuth()
	if !ok {
		user, password = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	switch {
	case r.PostFormValue("grant_type") != "client_credentials":
		sendError(w, badRequest("unsupported_grant_type"))
		return
	case user != User || password != Password:
		sendError(w, &failure{http.StatusUnauthorized, "invalid_client"})
		return
	}
	token := rand.Text()
	a.mu.Lock()
	if len(a.issued) >= maxTokens {
		clear(a.issued)
	}
	a.issued["Bearer "+token] = time.Now().Add(tokenLife)
	a.mu.Unlock()
	answer{body: func(dst []byte) []byte {
		return appendJSON(dst, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(tokenLife.Seconds())})
	}}.send(w)
}
