package outbound

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// echo answers with what it was asked, one line.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %q %s", r.Method, r.URL.Path, body, r.Header.Get("Content-Type"))
}

func TestRedirectMethods(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if status := r.URL.Query().Get("status"); status != "" {
			var code int
			fmt.Sscan(status, &code)
			w.Header().Set("Location", "../to/here?x=1#frag")
			w.WriteHeader(code)
			return
		}
		if r.Referer() != "" {
			w.WriteHeader(400)
		}
		echo(w, r)
	})
	c := newClient(t, Config{})
	for _, tc := range []struct {
		method string
		status int
		want   string
	}{
		{"POST", 301, `GET /to/here "" `},
		{"POST", 302, `GET /to/here "" `},
		{"POST", 303, `GET /to/here "" `},
		{"POST", 307, `POST /to/here "body" text/x`},
		{"POST", 308, `POST /to/here "body" text/x`},
		{"GET", 301, `GET /to/here "body" text/x`},
		{"GET", 303, `GET /to/here "body" text/x`},
		{"PUT", 302, `PUT /to/here "body" text/x`},
		{"PUT", 303, `GET /to/here "" `},
		{"DELETE", 307, `DELETE /to/here "body" text/x`},
		{"PATCH", 308, `PATCH /to/here "body" text/x`},
	} {
		for _, repeatable := range []bool{true, false} {
			resp := do(t, c, Request{Method: tc.method, URL: fmt.Sprintf("%s/from/?status=%d", s.URL, tc.status), Body: []byte("body"),
				Header: http.Header{"Content-Type": {"text/x"}, "Content-Language": {"de"}}, Repeatable: repeatable})
			if got := string(resp.Body); got != tc.want || resp.Status != 200 {
				t.Errorf("%s %d: got %d %s, want %s", tc.method, tc.status, resp.Status, got, tc.want)
			}
			if want := s.URL + "/to/here?x=1"; resp.URL != want {
				t.Errorf("URL %s, want %s", resp.URL, want)
			}
		}
	}
	if resp := do(t, c, Request{Method: "HEAD", URL: s.URL + "/from/?status=303"}); resp.Status != 200 || resp.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD: %d", resp.Status)
	}
	for _, status := range []int{300, 304, 305, 399} {
		if resp := do(t, c, Request{URL: fmt.Sprintf("%s/from/?status=%d", s.URL, status)}); resp.Status != status {
			t.Errorf("%d became %d", status, resp.Status)
		}
	}
}

func TestRedirectWithoutLocationIsAnAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(302); io.WriteString(w, "lost") })
	if resp := do(t, newClient(t, Config{}), Request{URL: s.URL}); resp.Status != 302 || string(resp.Body) != "lost" {
		t.Errorf("%d %q", resp.Status, resp.Body)
	}
}

func TestRedirectToAnotherOriginDropsCredentials(t *testing.T) {
	t.Parallel()
	show := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header) }
	other := serve(t, show)
	var s *httptest.Server
	s = serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, strings.Replace(other.URL, "://", "://you:there@", 1), http.StatusTemporaryRedirect)
		case "/home":
			http.Redirect(w, r, strings.ToUpper(s.URL)+"/end", http.StatusTemporaryRedirect)
		case "/name": // the same machine by another name is another origin
			http.Redirect(w, r, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+"/end", http.StatusTemporaryRedirect)
		case "/back": // what was dropped stays dropped
			http.Redirect(w, r, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+"/home2", http.StatusTemporaryRedirect)
		case "/home2":
			http.Redirect(w, r, s.URL+"/end", http.StatusTemporaryRedirect)
		default:
			show(w, r)
		}
	})
	credentials := []string{"Authorization", "Cookie", "X-Api-Key", "X-Auth-Token", "Apikey", "X-Shop-Access-Token", "Private-Token", "X-Hub-Signature", "X-Odd"}
	kept := []string{"Idempotency-Key", "Accept", "Traceparent"}
	header := http.Header{}
	for _, name := range append(credentials, kept...) {
		header[name] = []string{"value-of-" + name}
	}
	c := newClient(t, Config{})
	for path, dropped := range map[string]bool{"/home": false, "/away": true, "/name": true, "/back": true} {
		resp := do(t, c, Request{Method: "POST", URL: s.URL + path, Header: header, CredentialHeaders: []string{"x-odd"}})
		for _, name := range kept {
			if !strings.Contains(string(resp.Body), "value-of-"+name) {
				t.Errorf("%s: %s is gone", path, name)
			}
		}
		for _, name := range credentials {
			if strings.Contains(string(resp.Body), "value-of-"+name) == dropped {
				t.Errorf("%s: dropped should be %v for %s", path, dropped, name)
			}
		}
		if strings.Contains(string(resp.Body), "Referer") || strings.Contains(string(resp.Body), "Basic") {
			t.Errorf("%s: %s", path, resp.Body)
		}
	}
}

func TestRedirectLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var left int
		fmt.Sscan(r.URL.Path[1:], &left)
		if left > 0 {
			http.Redirect(w, r, fmt.Sprintf("/%d?token=hush", left-1), http.StatusFound)
		}
	})
	c := newClient(t, Config{})
	if resp := do(t, c, Request{URL: s.URL + "/5"}); resp.Status != 200 {
		t.Errorf("status %d", resp.Status)
	}
	if e := doFails(t, c, Request{URL: s.URL + "/6"}, TooManyRedirects); !e.Sent || strings.Contains(e.Error(), "hush") {
		t.Errorf("sent %v: %v", e.Sent, e)
	}
}

func TestBadRedirects(t *testing.T) {
	t.Parallel()
	plain := serve(t, echo)
	s, roots := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(302)
	})
	c := newClient(t, Config{Roots: roots})
	for location, want := range map[string]Reason{
		plain.URL + "/x?hush":                        BadRedirect,
		"http://" + s.Listener.Addr().String() + "/": BadRedirect,
		"file:///etc/passwd":                         BadRedirect,
		"gopher://hush@x/":                           BadRedirect,
		"javascript:hush":                            BadRedirect,
		"https://":                                   BadRedirect,
		"https://x:hush/":                            BadRedirect,
		"https://169.254.169.254/latest?hush":        Refused,
		"https://[::ffff:169.254.169.254]/?hush":     Refused,
	} {
		req := Request{URL: s.URL + "/?to=" + strings.NewReplacer(":", "%3A", "/", "%2F", "?", "%3F", "@", "%40").Replace(location)}
		if e := doFails(t, c, req, want); !e.Sent || strings.Contains(e.Error(), "hush") {
			t.Errorf("%s: sent %v, %v", location, e.Sent, e)
		}
	}
}

// TestNoRedirects gives the answer of a redirect, with its body.
func TestNoRedirects(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/from" {
			t.Errorf("%s was asked", r.URL.Path)
		}
		w.Header().Set("Location", "/to")
		w.WriteHeader(http.StatusTemporaryRedirect)
		fmt.Fprint(w, "over there")
	})
	res, err := newClient(t, Config{}).Do(t.Context(), Request{Method: "POST", URL: s.URL + "/from", Body: []byte("secret"), NoRedirects: true})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	if res.Status != http.StatusTemporaryRedirect || string(res.Body) != "over there" {
		t.Errorf("%d %s", res.Status, res.Body)
	}
}
