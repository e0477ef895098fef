package oauth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"stepwell"
	"stepwell/internal/outbound"
)

var system = map[string]string{GrantType: GrantAuthorizationCode, ClientID: "the client", ClientSecret: "se:cret", TokenURL: "https://x/token",
	AccessToken: "org-access", RefreshToken: "org-refresh", Scopes: "a b"}

func TestWhoseSettings(t *testing.T) {
	t.Parallel()
	own, ok := Read(&stepwell.BoundSystem{Values: system})
	if !ok || own.AccessToken != "org-access" || own.RefreshToken != "org-refresh" || own.ClientID != "the client" {
		t.Errorf("the system's own: %v %+v", ok, own)
	}
	theirs, ok := Read(&stepwell.BoundSystem{Client: system, Values: map[string]string{RefreshToken: "theirs", ClientID: "their client"}})
	if !ok || theirs.AccessToken != "" || theirs.RefreshToken != "theirs" || theirs.ClientID != "their client" || theirs.ClientSecret != "se:cret" || theirs.Scopes != "a b" {
		t.Errorf("an end user's: %v %+v", ok, theirs)
	}
	if none, ok := Read(&stepwell.BoundSystem{Client: system}); ok {
		t.Errorf("an end user who has connected nothing: %+v", none)
	}
	if plain, ok := Read(&stepwell.BoundSystem{Values: map[string]string{AccessToken: "x"}}); ok {
		t.Errorf("a system without OAuth: %+v", plain)
	}
}

func TestWhenATokenIsDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name        string
		token       string
		got, ends   time.Duration // from now; got is 0 when it is not known, ends when there is no end
		due, usable bool
	}{
		{"none", "", 0, time.Hour, true, false},
		{"without an end", "x", 0, 0, false, true},
		{"long", "x", -time.Minute, time.Hour, false, true},
		{"ends in 61 s", "x", -time.Hour, 61 * time.Second, false, true},
		{"ends in 59 s", "x", -time.Hour, 59 * time.Second, true, true},
		{"short and young", "x", -time.Second, 9 * time.Second, false, true},
		{"short and old", "x", -9 * time.Second, time.Second, true, true},
		{"short and of unknown age", "x", 0, 9 * time.Second, true, true},
		{"ended", "x", -time.Hour, -time.Second, true, false},
		{"ended before it came", "x", -time.Second, -time.Hour, true, false},
	} {
		s := Settings{AccessToken: test.token}
		if test.ends != 0 {
			s.ExpiresAt = now.Add(test.ends)
		}
		if test.got != 0 {
			s.tokenAt = now.Add(test.got)
		}
		if s.Due(now) != test.due || s.Usable(now) != test.usable {
			t.Errorf("%s: due %v, usable %v", test.name, s.Due(now), s.Usable(now))
		}
	}
	if s, _ := Read(&stepwell.BoundSystem{Values: map[string]string{GrantType: GrantRefreshToken, AccessToken: "x", ExpiresAt: "soon"}}); !s.Due(now) {
		t.Error("a token whose end is no time is not due")
	}
}

func TestSecretsAmongCredentials(t *testing.T) {
	t.Parallel()
	all := strings.Join(Secrets(system), " ")
	for _, secret := range []string{"se:cret", "org-access", "org-refresh"} {
		if !strings.Contains(all, secret) {
			t.Errorf("%s is not hidden", secret)
		}
	}
	if strings.Contains(all, "https://") || strings.Contains(all, GrantAuthorizationCode) {
		t.Errorf("hidden: %s", all)
	}
	if plain := Secrets(map[string]string{Scopes: "a secret here"}); len(plain) != 1 {
		t.Errorf("without a grant_type %v is hidden", plain)
	}
}

// endpoint answers one after the other and notes what it was asked.
type endpoint struct {
	answers []any // *outbound.Response or error
	asked   []outbound.Request
}

func (e *endpoint) Do(_ context.Context, r outbound.Request) (*outbound.Response, error) {
	e.asked = append(e.asked, r)
	next := e.answers[0]
	e.answers = e.answers[1:]
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next.(*outbound.Response), nil
}

func answers(status int, contentType, body string, header ...string) *outbound.Response {
	h := http.Header{"Content-Type": {contentType}}
	if len(header) == 2 {
		h.Set(header[0], header[1])
	}
	return &outbound.Response{Status: status, Header: h, Body: []byte(body)}
}

func TestAnswersOfATokenEndpoint(t *testing.T) {
	t.Parallel()
	const js, form = "application/json; charset=utf-8", "application/x-www-form-urlencoded"
	for _, test := range []struct {
		name    string
		answers []any
		token   Token
		lives   time.Duration
		refused string
		away    string
		wait    time.Duration
	}{
		{name: "JSON", answers: []any{answers(200, js, `{"access_token":"a","refresh_token":"r","expires_in":3600}`)}, token: Token{Access: "a", Refresh: "r"}, lives: time.Hour},
		{name: "a number as text", answers: []any{answers(200, js, `{"access_token":"a","expires_in":"60"}`)}, token: Token{Access: "a"}, lives: time.Minute},
		{name: "no end", answers: []any{answers(200, "", `{"access_token":"a","expires_in":null}`)}, token: Token{Access: "a"}},
		{name: "a form", answers: []any{answers(200, form, `access_token=a&expires_in=60`)}, token: Token{Access: "a"}, lives: time.Minute},
		{name: "the client in the form", answers: []any{answers(401, js, `{"error":"invalid_client"}`), answers(200, js, `{"access_token":"a"}`)}, token: Token{Access: "a"}},
		{name: "refused", answers: []any{answers(400, js, `{"error":"invalid_grant","error_description":"gone\n"}`)}, refused: "the token endpoint refused it with status 400 (invalid_grant: gone )"},
		{name: "refused with 200", answers: []any{answers(200, form, `error=bad_verification_code`)}, refused: "the token endpoint refused it with status 200 (bad_verification_code)"},
		{name: "no JSON", answers: []any{answers(200, "text/html", `<html>`)}, refused: "the token endpoint's answer holds no access_token"},
		{name: "too large", answers: []any{answers(200, js, strings.Repeat(" ", maxToken+1))}, refused: "the token endpoint's answer has over 1048576 bytes"},
		{name: "failing", answers: []any{answers(502, "text/html", `<html>`)}, away: "the token endpoint answered with status 502"},
		{name: "overloaded", answers: []any{answers(429, js, `{"error":"slow_down"}`, "Retry-After", "7")}, away: "the token endpoint answered with status 429", wait: 7 * time.Second},
		{name: "away", answers: []any{&outbound.Error{Reason: outbound.ConnectionRefused, Message: "nobody listens"}}, away: "nobody listens"},
		{name: "not allowed", answers: []any{&outbound.Error{Reason: outbound.Refused, Message: "the address is not allowed"}}, refused: "the address is not allowed"},
	} {
		e := &endpoint{answers: test.answers}
		token, err := Renew(t.Context(), e, &Settings{GrantType: GrantRefreshToken, ClientID: "the client", ClientSecret: "se:cret", TokenURL: "https://x/token", RefreshToken: "r0"})
		var refused *Refused
		var away *Unavailable
		switch {
		case test.refused != "":
			if !errors.As(err, &refused) || refused.Reason != test.refused {
				t.Errorf("%s: %v", test.name, err)
			}
		case test.away != "":
			if !errors.As(err, &away) || away.Reason != test.away || away.RetryAfter != test.wait {
				t.Errorf("%s: %v %+v", test.name, err, away)
			}
		case err != nil || token.Access != test.token.Access || token.Refresh != test.token.Refresh || token.Expires.IsZero() != (test.lives == 0):
			t.Errorf("%s: %+v %v", test.name, token, err)
		case test.lives != 0 && (time.Until(token.Expires) > test.lives || time.Until(token.Expires) < test.lives-30*time.Second):
			t.Errorf("%s: ends in %s", test.name, time.Until(token.Expires))
		}
		if len(e.answers) > 0 {
			t.Errorf("%s: asked %d times", test.name, len(e.asked))
		}
		first := e.asked[0]
		want := "Basic " + base64.StdEncoding.EncodeToString([]byte("the+client:se%3Acret"))
		if first.Header.Get("Authorization") != want || strings.Contains(string(first.Body), "client") || first.Repeatable || !first.NoRedirects {
			t.Errorf("%s: the first request is %+v %s", test.name, first.Header, first.Body)
		}
		if len(e.asked) == 2 {
			form, _ := url.ParseQuery(string(e.asked[1].Body))
			if e.asked[1].Header.Get("Authorization") != "" || form.Get("client_id") != "the client" || form.Get("client_secret") != "se:cret" || form.Get("refresh_token") != "r0" {
				t.Errorf("%s: the second request is %+v %s", test.name, e.asked[1].Header, e.asked[1].Body)
			}
		}
	}
}
