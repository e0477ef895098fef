package portal_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// visitor is a browser as far as HTTP goes: it keeps cookies, follows nothing, and says
// where its forms come from.
type visitor struct {
	t      *testing.T
	s      *service
	cookie string
}

// page is what a visitor sees.
type page struct {
	status   int
	header   http.Header
	body     string
	location string
}

// send sends a request; headers are pairs of names and values, and an empty value removes
// what a browser would send.
func (v *visitor) send(method, path, body string, headers ...string) page {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.s.base+"/portal"+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", "null") // as a page that sends no referrer does
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if v.cookie != "" {
		req.Header.Set("Cookie", v.cookie)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	for _, c := range res.Cookies() {
		v.cookie = c.Name + "=" + c.Value
	}
	return page{res.StatusCode, res.Header, string(text), res.Header.Get("Location")}
}

func (v *visitor) get(path string) page { v.t.Helper(); return v.send("GET", path, "") }

func (v *visitor) post(path string, form url.Values, headers ...string) page {
	v.t.Helper()
	return v.send("POST", path, form.Encode(), headers...)
}

// enter opens a link and gives the visitor inside.
func (s *service) enter(t *testing.T, token string) *visitor {
	t.Helper()
	v := &visitor{t: t, s: s}
	p := v.post("", url.Values{"token": {token}})
	if p.status != http.StatusSeeOther || p.location != "/v1/portal/systems" || v.cookie == "" {
		t.Fatalf("the exchange answered %d to %q", p.status, p.location)
	}
	return v
}

// want checks a page's status and that it says something.
func want(t *testing.T, what string, p page, status int, says string) {
	t.Helper()
	if p.status != status || !strings.Contains(p.body, says) {
		t.Errorf("%s: %d, want %d and %q in %s", what, p.status, status, says, p.body)
	}
}
