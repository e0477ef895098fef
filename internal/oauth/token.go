package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"stepwell/internal/outbound"
)

const (
	// Timeout bounds one exchange with a token endpoint, both ways of saying who the
	// client is together.
	Timeout = 10 * time.Second
	// maxToken bounds the answer of a token endpoint in bytes.
	maxToken = 1 << 20
	// maxShown bounds what of a refusal is shown, in bytes.
	maxShown = 200
)

// Sender sends requests to the outside.
type Sender interface {
	Do(ctx context.Context, r outbound.Request) (*outbound.Response, error)
}

// Renew asks the token endpoint for a new access token, within Timeout. Its errors are
// *Refused and *Unavailable; their texts are public once known secrets are masked in them.
func Renew(ctx context.Context, to Sender, s *Settings) (*Token, error) {
	form := url.Values{"grant_type": {GrantClientCredentials}}
	if s.GrantType == GrantClientCredentials {
		if s.Scopes != "" {
			form.Set("scope", s.Scopes)
		}
	} else {
		form = url.Values{"grant_type": {GrantRefreshToken}, "refresh_token": {s.RefreshToken}}
	}
	return Ask(ctx, to, s, form)
}

// Ask sends a form to the token endpoint, with who the client is: in Basic authorization
// and, when that is not understood, in the form (RFC 6749, 2.3.1). A client without a
// secret only gives its id.
func Ask(ctx context.Context, to Sender, s *Settings, form url.Values) (*Token, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if s.ClientSecret != "" {
		basic := url.QueryEscape(s.ClientID) + ":" + url.QueryEscape(s.ClientSecret)
		token, again, err := exchange(ctx, to, s.TokenURL, form, "Basic "+base64.StdEncoding.EncodeToString([]byte(basic)))
		if !again {
			return token, err
		}
		form.Set("client_secret", s.ClientSecret)
	}
	if s.ClientID != "" {
		form.Set("client_id", s.ClientID)
	}
	token, _, err := exchange(ctx, to, s.TokenURL, form, "")
	return token, err
}

// exchange is one request. again reports a refusal of the client itself, who may not have
// been understood: nothing was granted and nothing used up.
func exchange(ctx context.Context, to Sender, address string, form url.Values, authorization string) (t *Token, again bool, err error) {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	if authorization != "" {
		header.Set("Authorization", authorization)
	}
	// Not repeatable: a refresh token may be good for one use only.
	res, err := to.Do(ctx, outbound.Request{Method: http.MethodPost, URL: address, Header: header, Body: []byte(form.Encode()),
		NoRedirects: true, Timeout: Timeout})
	if err != nil {
		return nil, false, unanswered(err)
	}
	defer res.Close()
	if len(res.Body) > maxToken {
		return nil, false, refusedf("the token endpoint's answer has over %d bytes", maxToken)
	}
	a := readAnswer(res)
	switch {
	case res.Status == http.StatusTooManyRequests, res.Status == http.StatusRequestTimeout, res.Status == http.StatusTooEarly, res.Status >= 500:
		u := &Unavailable{Reason: fmt.Sprintf("the token endpoint answered with status %d", res.Status)}
		if wait, ok := outbound.ParseRetryAfter(res.Header.Get("Retry-After"), time.Now()); ok {
			u.RetryAfter = wait
		}
		return nil, false, u
	case res.Status < 200 || res.Status > 299 || a.Error != "":
		unknownClient := res.Status == http.StatusUnauthorized || a.Error == "invalid_client" || a.Error == "invalid_request" && a.Description != ""
		return nil, authorization != "" && unknownClient, refusedf("the token endpoint refused it with status %d%s", res.Status, a.reason())
	case a.Access == "":
		return nil, false, refusedf("the token endpoint's answer holds no access_token")
	}
	t = &Token{Access: a.Access, Refresh: a.Refresh}
	if seconds, err := strconv.ParseFloat(string(a.ExpiresIn), 64); err == nil && seconds > 0 && seconds < 1e9 {
		t.Expires = time.Now().Add(time.Duration(seconds * float64(time.Second)))
	}
	return t, false, nil
}

// unanswered sorts the failures of a request without an answer.
func unanswered(err error) error {
	var failure *outbound.Error
	if !errors.As(err, &failure) {
		return &Unavailable{Reason: "the token endpoint gave no answer"}
	}
	switch failure.Reason {
	case outbound.ConnectionRefused, outbound.Timeout, outbound.Network, outbound.Unresolved, outbound.BadAnswer, outbound.Cancelled:
		return &Unavailable{Reason: failure.Message}
	}
	return &Refused{Reason: failure.Message}
}

// answer is what a token endpoint says, well or not.
type answer struct {
	Access      string     `json:"access_token"`
	Refresh     string     `json:"refresh_token"`
	ExpiresIn   looseCount `json:"expires_in"`
	Error       string     `json:"error"`
	Description string     `json:"error_description"`
}

// looseCount is a number or its text.
type looseCount string

// UnmarshalJSON takes what stands there without quotes.
func (c *looseCount) UnmarshalJSON(b []byte) error {
	*c = looseCount(strings.Trim(string(b), `"`))
	return nil
}

// readAnswer reads JSON, or the form that some endpoints answer with; what is neither is
// an empty answer.
func readAnswer(res *outbound.Response) (a answer) {
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/x-www-form-urlencoded" || kind == "text/plain" {
		if form, err := url.ParseQuery(string(res.Body)); err == nil && (form.Has("access_token") || form.Has("error")) {
			return answer{form.Get("access_token"), form.Get("refresh_token"), looseCount(form.Get("expires_in")), form.Get("error"), form.Get("error_description")}
		}
	}
	if json.Unmarshal(res.Body, &a) != nil {
		return answer{}
	}
	return a
}

// reason is what the endpoint says about its refusal, fit for a line of text.
func (a *answer) reason() string {
	text := a.Error
	if text != "" && a.Description != "" {
		text += ": " + a.Description
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
