package portal_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func startAuth(t *testing.T) *authServer {
	a := &authServer{challenges: map[string]string{}, redirects: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", a.page)
	mux.HandleFunc("GET /allow", a.allow)
	mux.HandleFunc("POST /token", a.token)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// page asks the person for consent.
func (a *authServer) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("tenant") != "acme" || q.Get("client_id") != "client-1" || q.Get("response_type") != "code" || q.Get("scope") != "read send" ||
		q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("state") == "" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(w, `<!doctype html><title>Mail sign-in</title><a id="allow" href="/allow?%s">Allow</a>`, html.EscapeString(r.URL.RawQuery))
}

// allow leads back with a code, or with a refusal.
func (a *authServer) allow(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := r.URL.Query()
	back := url.Values{"state": {q.Get("state")}}
	if a.deny {
		back.Set("error", "access_denied")
	} else {
		code := rand.Text()
		a.challenges[code], a.redirects[code] = q.Get("code_challenge"), q.Get("redirect_uri")
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token exchanges a code once, for who knows its verifier.
func (a *authServer) token(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	code := r.FormValue("code")
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	user, password, _ := r.BasicAuth()
	ok := r.FormValue("grant_type") == "authorization_code" && user == "client-1" && password == "client-secret-1234567890" &&
		a.challenges[code] == base64.RawURLEncoding.EncodeToString(sum[:]) && code != "" && a.redirects[code] == r.FormValue("redirect_uri")
	delete(a.challenges, code)
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(object{"error": "invalid_grant"})
		return
	}
	a.tokens++
	_ = json.NewEncoder(w).Encode(object{"access_token": fmt.Sprintf("mail-access-%d", a.tokens), "refresh_token": "mail-refresh-token", "expires_in": 3600})
}
