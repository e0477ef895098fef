package portal_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"stepwell/internal/config"
)

// canary is a secret that may be in no page.
const canary = "canary-credential-71b2"

// TestAttacks tries what an attacker would: each is refused, nothing is changed, and
// nothing leaks.
func TestAttacks(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	auth := startAuth(t)
	s.tenants(echo(t), auth)
	ann := s.endUser(object{"name": "Ann", "allowedSystems": []string{"crm", "mail"}})
	bob := s.endUser(object{"name": "Bob", "allowedSystems": []string{"shop", "mail"}})
	_, annToken := s.link(ann)
	_, bobToken := s.link(bob)
	stranger := &visitor{t: t, s: s}
	good := url.Values{"value-0": {canary}, "value-1": {canary}}
	unchanged := func(t *testing.T) {
		t.Helper()
		for _, user := range []string{ann, bob} {
			for _, system := range []string{"crm", "shop", "mail"} {
				if s.connected(user, system) {
					t.Fatalf("%s was connected to %s", user, system)
				}
			}
		}
	}
	attack := func(name string, try func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			try(t)
			unchanged(t)
		})
	}

	attack("guessed token", func(t *testing.T) {
		want(t, "page", stranger.get("?token=guessed"), 404, "This link does not work")
		p := stranger.post("", url.Values{"token": {"guessed"}})
		want(t, "exchange", p, 404, "This link does not work")
		if p.header.Get("Set-Cookie") != "" {
			t.Error("a cookie was given")
		}
		want(t, "no token", stranger.get(""), 404, "This link does not work")
	})
	attack("replaced token", func(t *testing.T) {
		_, first := s.link(bob)
		old := s.enter(t, first)
		_, bobToken = s.link(bob)
		want(t, "page", stranger.get("?token="+first), 401, "There is a newer link")
		want(t, "exchange", stranger.post("", url.Values{"token": {first}}), 401, "There is a newer link")
		want(t, "a session opened earlier", old.get("/systems"), 200, "Shop")
	})
	attack("expired token", func(t *testing.T) {
		eve := s.endUser(object{"allowedSystems": []string{"*"}})
		_, token := s.link(eve)
		s.exec(`UPDATE portal_links SET expires_at = now() WHERE end_user_id = $1`, eve)
		want(t, "page", stranger.get("?token="+token), 401, "This link has expired")
		want(t, "exchange", stranger.post("", url.Values{"token": {token}}), 401, "This link has expired")
	})
	attack("guessed session", func(t *testing.T) {
		guess := &visitor{t: t, s: s, cookie: "stepwell_portal=guess"}
		want(t, "systems", guess.get("/systems"), 401, "Your visit has ended")
		want(t, "save", guess.post("/systems/crm", good), 401, "Your visit has ended")
		want(t, "without any", (&visitor{t: t, s: s}).post("/systems/crm", good), 401, "Your visit has ended")
	})
	attack("the token as a session", func(t *testing.T) {
		want(t, "systems", (&visitor{t: t, s: s, cookie: "stepwell_portal=" + annToken}).get("/systems"), 401, "Your visit has ended")
	})
	attack("expired session", func(t *testing.T) {
		eve := s.endUser(object{"allowedSystems": []string{"crm"}})
		_, token := s.link(eve)
		v := s.enter(t, token)
		s.exec(`UPDATE portal_sessions SET expires_at = now() WHERE end_user_id = $1`, eve)
		want(t, "systems", v.get("/systems"), 401, "Your visit has ended")
		want(t, "save", v.post("/systems/crm", good), 401, "Your visit has ended")
		if s.connected(eve, "crm") {
			t.Error("it was saved")
		}
	})
	attack("session after signing out", func(t *testing.T) {
		v := s.enter(t, annToken)
		cookie := v.cookie
		want(t, "sign out", v.post("/sign-out", nil), 200, "You have signed out")
		v.cookie = cookie
		want(t, "systems", v.get("/systems"), 401, "Your visit has ended")
	})
	attack("deleted end user", func(t *testing.T) {
		eve := s.endUser(object{"allowedSystems": []string{"*"}})
		_, token := s.link(eve)
		v := s.enter(t, token)
		s.ask("DELETE", "/end-users/"+eve, nil, nil)
		want(t, "systems", v.get("/systems"), 401, "Your visit has ended")
		want(t, "link", stranger.get("?token="+token), 404, "This link does not work")
	})
	attack("another end user's system", func(t *testing.T) {
		v := s.enter(t, bobToken)
		want(t, "save", v.post("/systems/crm", good), 404, "System not found")
		want(t, "a system without tenants", v.post("/systems/inner", good), 404, "System not found")
		want(t, "remove", v.post("/systems/crm/remove", nil), 404, "System not found")
		if p := v.get("/systems"); strings.Contains(p.body, "Customer records") || strings.Contains(p.body, "Inner system") {
			t.Error("it is shown")
		}
	})
	ann1 := s.enter(t, annToken)
	for name, headers := range map[string][]string{
		"foreign Origin":                     {"Origin", "https://evil.example", "Sec-Fetch-Site", ""},
		"foreign Origin that says it is not": {"Origin", "https://evil.example"},
		"cross-site":                         {"Sec-Fetch-Site", "cross-site"},
		"same site, another origin":          {"Sec-Fetch-Site", "same-site"},
		"typed in":                           {"Sec-Fetch-Site", "none"},
		"null Origin alone":                  {"Sec-Fetch-Site", ""},
		"missing Origin":                     {"Origin", "", "Sec-Fetch-Site", ""},
		"our host, another scheme":           {"Origin", "https://" + strings.TrimPrefix(strings.TrimSuffix(s.base, "/v1"), "http://"), "Sec-Fetch-Site", ""},
		"our host as a prefix":               {"Origin", strings.TrimSuffix(s.base, "/v1") + ".evil.example", "Sec-Fetch-Site", ""},
	} {
		attack(name, func(t *testing.T) {
			want(t, "save", ann1.post("/systems/crm", good, headers...), 403, "This request was refused")
			p := (&visitor{t: t, s: s}).post("", url.Values{"token": {annToken}}, headers...)
			want(t, "exchange", p, 403, "This request was refused")
			if p.header.Get("Set-Cookie") != "" {
				t.Error("a cookie was given")
			}
			want(t, "sign out", ann1.post("/sign-out", nil, headers...), 403, "This request was refused")
		})
	}
	attack("other methods", func(t *testing.T) {
		for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"} {
			if p := ann1.send(method, "/systems/crm?value-0=x&value-1=y", ""); p.status != http.StatusMethodNotAllowed || p.header.Get("Allow") != "POST" {
				t.Errorf("%s: %d, Allow %q", method, p.status, p.header.Get("Allow"))
			}
		}
		want(t, "values in the query", ann1.send("POST", "/systems/crm?value-0=x&value-1=y", ""), 400, "Enter a value")
	})
	attack("oversize and odd forms", func(t *testing.T) {
		want(t, "a megabyte", ann1.post("/systems/crm", url.Values{"value-0": {strings.Repeat("x", 1<<20)}}), 413, "too large")
		want(t, "a long value", ann1.post("/systems/crm", url.Values{"value-0": {strings.Repeat("x", 20<<10)}, "value-1": {canary}}), 400, "too long")
		want(t, "NUL", ann1.send("POST", "/systems/crm", "value-0=a%00b&value-1=c"), 400, "could not be read")
		want(t, "no UTF-8", ann1.send("POST", "/systems/crm", "value-0=%ff&value-1=c"), 400, "could not be read")
		want(t, "no form", ann1.send("POST", "/systems/crm", "value-0=%zz"), 400, "could not be read")
		want(t, "JSON", ann1.send("POST", "/systems/crm", `{"value-0":"a","value-1":"b"}`, "Content-Type", "application/json"), 400, "could not be read")
		want(t, "plain text", ann1.send("POST", "/systems/crm", "value-0=a&value-1=b", "Content-Type", "text/plain"), 400, "could not be read")
		want(t, "one of two", ann1.post("/systems/crm", url.Values{"value-0": {canary}}), 400, "Enter a value for “Account ID”")
		want(t, "keys by name", ann1.post("/systems/crm", url.Values{"api_key": {canary}, "account-id": {canary}}), 400, "Enter a value for “API key”")
	})
	attack("odd paths", func(t *testing.T) {
		for _, path := range []string{"/systems/..%2finner", "/systems/crm%2f..%2finner", "/systems/%00", "/systems//crm", "/systems/crm/", "/../tools", "/systems/crm/remove/x", "/oauth", "/x"} {
			p := ann1.post(path, url.Values{"value-0": {canary}})
			if p.status < 400 || p.location != "" || strings.Contains(p.body, canary) {
				t.Errorf("%s: %d to %q", path, p.status, p.location)
			}
		}
	})
	attack("the way back from a sign-in", func(t *testing.T) {
		state := signIn(t, ann1)
		bob1 := s.enter(t, bobToken)
		want(t, "another's state", bob1.get("/oauth/callback?code=x&state="+state), 400, "not begun here")
		want(t, "without a session", stranger.get("/oauth/callback?code=x&state="+state), 401, "Your visit has ended")
		want(t, "a guessed state", ann1.get("/oauth/callback?code=x&state=guess"), 400, "not begun here")
		want(t, "no state", ann1.get("/oauth/callback?code=x"), 400, "not begun here")
		want(t, "a code that is none", ann1.get("/oauth/callback?code=x&state="+state), 400, "did not accept")
		want(t, "a state that was used", ann1.get("/oauth/callback?code=x&state="+state), 400, "not begun here")
		for _, q := range []string{"redirect_uri=https://evil.example", "next=//evil.example", "return_to=https://evil.example"} {
			if p := ann1.get("/oauth/callback?state=" + signIn(t, ann1) + "&error=access_denied&" + q); p.status != 400 || p.location != "" || strings.Contains(p.body, "evil") {
				t.Errorf("%s: %d to %q", q, p.status, p.location)
			}
		}
		old := signIn(t, ann1)
		s.exec(`UPDATE portal_signins SET expires_at = now()`)
		want(t, "a sign-in of yesterday", ann1.get("/oauth/callback?code=x&state="+old), 400, "not begun here")
		want(t, "a form for a sign-in", ann1.post("/systems/mail", good), 400, "own sign-in page")
		want(t, "a sign-in for a form", ann1.post("/systems/crm/connect", nil), 400, "no sign-in page")
	})
	attack("text of others in the pages", func(t *testing.T) {
		p := ann1.get("/systems?done=%3Cscript%3E&system=crm")
		want(t, "an unknown event", p, 200, "Your connections")
		if strings.Contains(p.body, "<script") || strings.Contains(ann1.get("/systems?done=connected&system=%3Cscript%3Ealert(1)%3C/script%3E").body, "<script") {
			t.Error("a script is in the page")
		}
	})
	attack("framing and sniffing", func(t *testing.T) {
		for _, p := range []page{stranger.get("?token=" + annToken), ann1.get("/systems"), stranger.get("?token=none"), stranger.get("/portal.css")} {
			csp := p.header.Get("Content-Security-Policy")
			for _, rule := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"} {
				if !strings.Contains(csp, rule) {
					t.Errorf("no %s in %q", rule, csp)
				}
			}
			if strings.Contains(csp, "unsafe") || p.header.Get("X-Frame-Options") != "DENY" || p.header.Get("Referrer-Policy") != "no-referrer" || p.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("headers %v", p.header)
			}
			if strings.Contains(p.body, "<script") || strings.Contains(p.body, " style=") || strings.Contains(p.body, " onclick") {
				t.Error("inline code in a page")
			}
		}
	})
	attack("the cookie", func(t *testing.T) {
		p := (&visitor{t: t, s: s}).post("", url.Values{"token": {annToken}})
		cookie := p.header.Get("Set-Cookie")
		for _, part := range []string{"HttpOnly", "SameSite=Lax", "Path=/v1/portal"} {
			if !strings.Contains(cookie, part) {
				t.Errorf("no %s in %q", part, cookie)
			}
		}
		if strings.Contains(p.location, annToken) {
			t.Error("the token is in the address")
		}
	})
	attack("too many saves", func(t *testing.T) {
		eve := s.endUser(object{"allowedSystems": []string{"crm"}})
		_, token := s.link(eve)
		v := s.enter(t, token)
		var last page
		for range 61 {
			last = v.post("/systems/crm", url.Values{"value-0": {"a"}})
		}
		want(t, "the last", last, 429, "Too many tries")
	})
	attack("many guesses", func(t *testing.T) {
		var last page
		for range 70 {
			last = stranger.post("", url.Values{"token": {"guess"}})
		}
		want(t, "the last guess", last, 429, "Too many tries")
		if last.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		want(t, "a good link meanwhile", stranger.get("?token="+annToken), 200, "Ann")
	})
	for _, entry := range s.logs.All() {
		for _, secret := range []string{annToken, bobToken, canary, "client-secret-1234567890", strings.TrimPrefix(ann1.cookie, "stepwell_portal=")} {
			if strings.Contains(entry.Message, secret) {
				t.Error("a secret is in the log")
			}
			for _, field := range entry.Context {
				if strings.Contains(field.String, secret) {
					t.Errorf("a secret is in the log's %s", field.Key)
				}
			}
		}
	}
}

// signIn begins a sign-in and gives its state.
func signIn(t *testing.T, v *visitor) string {
	t.Helper()
	p := v.post("/systems/mail/connect", nil)
	_, rest, ok := strings.Cut(p.body, "state=")
	if !ok {
		t.Fatalf("no sign-in: %d %s", p.status, p.body)
	}
	state, _, _ := strings.Cut(rest, `"`)
	state, _, _ = strings.Cut(state, "&")
	return state
}

// TestNamesAreText: nothing that an organization or an end user is called is code.
func TestNamesAreText(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	const script = `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	s.ask("POST", "/systems", object{"id": "x", "name": "Name " + script, "multiTenancyMode": "enabled", "credentialKeys": []string{"key" + script, "javascript:alert(1)"},
		"metadata": object{"m": script}}, nil)
	user := s.endUser(object{"name": "User " + script, "externalId": script, "metadata": object{"m": script}, "allowedSystems": []string{"*"}})
	_, token := s.link(user)
	v := s.enter(t, token)
	for _, p := range []page{v.get("?token=" + token), v.get("/systems"), v.post("/systems/x", url.Values{"value-0": {script}}), v.get("?token=" + url.QueryEscape(script)),
		v.get("/" + url.PathEscape(script))} {
		if strings.Contains(p.body, "<script") || strings.Contains(p.body, "<img") || strings.Contains(p.body, "onerror=alert(1)>") {
			t.Errorf("code in a page: %s", p.body)
		}
	}
	if p := v.post("/systems/x", url.Values{"value-0": {script}, "value-1": {canary}}); p.status != http.StatusSeeOther || !s.connected(user, "x") {
		t.Errorf("odd values: %d", p.status)
	}
	for _, p := range []page{v.get("/systems"), v.get("/systems/x/remove")} {
		if p.status != 200 || strings.Contains(p.body, canary) || strings.Contains(p.body, "<script") {
			t.Errorf("%d: %s", p.status, p.body)
		}
	}
}

// TestBehindAProxy: with a public address, cookies are for https only, and the Host that a
// request claims does not matter.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) { c.PublicURL = "https://tools.example.com/v1" })
	user := s.endUser(object{"allowedSystems": []string{"*"}})
	link, token := s.link(user)
	if !strings.HasPrefix(link, "https://tools.example.com/v1/portal?token=") {
		t.Errorf("the link is %s", link)
	}
	v := &visitor{t: t, s: s}
	form := url.Values{"token": {token}}
	want(t, "an Origin that is the Host's", v.post("", form, "Host", "evil.example", "Origin", "https://evil.example", "Sec-Fetch-Site", ""), 403, "refused")
	p := v.post("", form, "Origin", "https://tools.example.com", "Sec-Fetch-Site", "")
	if cookie := p.header.Get("Set-Cookie"); p.status != 303 || !strings.Contains(cookie, "Secure") || p.header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%d, cookie %q", p.status, cookie)
	}
}
