package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/api/v1"
)

// answer is what a scripted service says to one request.
type answer struct {
	status int
	header map[string]string
	body   string
	cut    bool // the connection breaks instead
}

// script serves answers in turn and keeps the requests.
type script struct {
	answers []answer
	mu      sync.Mutex
	next    int
	seen    []string
}

// sent are the requests so far.
func (s *script) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	if r.Header.Get("Authorization") != "Bearer secret-key" {
		w.WriteHeader(401)
		return
	}
	a := s.answers[s.next]
	s.next++
	if a.cut {
		panic(http.ErrAbortHandler)
	}
	for name, v := range a.header {
		w.Header().Set(name, v)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func serve(t *testing.T, answers ...answer) (*Client, *script) {
	t.Helper()
	s := &script{answers: answers}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return New(srv.URL+"/v1/", "secret-key", WithRetries(2, time.Millisecond)), s
}

func ok(body string) answer { return answer{status: 200, body: body} }

func TestCalls(t *testing.T) {
	t.Parallel()
	const tool, run, key = `{"id":"a b"}`, `{"runId":"r","status":"running"}`, `{"id":"k"}`
	cases := []struct {
		name, answer, want string
		do                 func(context.Context, *Client) (any, error)
	}{
		{"health", `{"status":"ok"}`, "GET /v1/health", func(ctx context.Context, c *Client) (any, error) { return nil, c.Health(ctx) }},
		{"hook", `{"runId":"r"}`, "POST /v1/hooks/a?mode=dev a=1", func(ctx context.Context, c *Client) (any, error) {
			return c.Hook(ctx, "a", HookCall{Body: []byte("a=1"), ContentType: "application/x-www-form-urlencoded", Mode: "dev", Key: "k"})
		}},
		{"me", `{}`, "GET /v1/me", func(ctx context.Context, c *Client) (any, error) { return c.Me(ctx) }},
		{"create tool", tool, `POST /v1/tools {"id":"a","outputTransform":"(s) => s"}`, func(ctx context.Context, c *Client) (any, error) {
			return c.CreateTool(ctx, v1.ToolCreate{ID: "a", OutputTransform: "(s) => s"})
		}},
		{"get tool", tool, "GET /v1/tools/a%2Fb", func(ctx context.Context, c *Client) (any, error) { return c.GetTool(ctx, "a/b") }},
		{"list tools", `{"data":[]}`, "GET /v1/tools?includeArchived=true&limit=5&page=2", func(ctx context.Context, c *Client) (any, error) {
			return c.ListTools(ctx, Page{Page: 2, Limit: 5}, true)
		}},
		{"update tool", tool, `PUT /v1/tools/a {"name":null,"folder":"f"}`, func(ctx context.Context, c *Client) (any, error) {
			return c.UpdateTool(ctx, "a", v1.ToolUpdate{Name: v1.Null[string](), Folder: v1.Some("f")})
		}},
		{"delete tool", `{"success":true}`, "DELETE /v1/tools/a", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteTool(ctx, "a") }},
		{"versions", `{"data":[{"id":"a"}]}`, "GET /v1/tools/a/versions", func(ctx context.Context, c *Client) (any, error) { return c.ToolVersions(ctx, "a") }},
		{"version", tool, "GET /v1/tools/a/versions/1.0.0", func(ctx context.Context, c *Client) (any, error) { return c.ToolVersion(ctx, "a", "1.0.0") }},
		{"restore", tool, "POST /v1/tools/a/versions/1.0.0/restore", func(ctx context.Context, c *Client) (any, error) { return c.RestoreTool(ctx, "a", "1.0.0") }},
		{"run", run, `POST /v1/tools/a/run {"inputs":{"n":12345678901234567890},"options":{"async":true}}`, func(ctx context.Context, c *Client) (any, error) {
			return c.Run(ctx, "a", v1.RunRequest{Inputs: json.RawMessage(`{"n":12345678901234567890}`), Options: &v1.RunOptions{Async: true}})
		}},
		{"get run", run, "GET /v1/runs/r", func(ctx context.Context, c *Client) (any, error) { return c.GetRun(ctx, "r") }},
		{"list runs", `{"data":[]}`, "GET /v1/runs?startedAfter=2030-01-02T02%3A04%3A05Z&status=failed&toolId=a", func(ctx context.Context, c *Client) (any, error) {
			return c.ListRuns(ctx, Page{}, RunFilter{ToolID: "a", Status: "failed", StartedAfter: time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))})
		}},
		{"results", `{"success":true}`, "GET /v1/runs/r/results", func(ctx context.Context, c *Client) (any, error) { return c.Results(ctx, "r") }},
		{"cancel", run, "POST /v1/runs/r/cancel", func(ctx context.Context, c *Client) (any, error) { return c.Cancel(ctx, "r") }},
		{"create key", key, `POST /v1/api-keys {"role":"runner","tools":[]}`, func(ctx context.Context, c *Client) (any, error) {
			return c.CreateAPIKey(ctx, v1.APIKeyCreate{Role: "runner", Tools: &[]string{}})
		}},
		{"list keys", `{"data":[]}`, "GET /v1/api-keys", func(ctx context.Context, c *Client) (any, error) { return c.ListAPIKeys(ctx, Page{}) }},
		{"update key", key, `PATCH /v1/api-keys/k {"tools":null}`, func(ctx context.Context, c *Client) (any, error) {
			return c.UpdateAPIKey(ctx, "k", v1.APIKeyUpdate{Tools: v1.Null[[]string]()})
		}},
		{"create system", `{"id":"crm"}`, `POST /v1/systems {"id":"crm","credentials":{"token":"x"}}`, func(ctx context.Context, c *Client) (any, error) {
			return c.CreateSystem(ctx, v1.SystemCreate{ID: "crm", Credentials: map[string]string{"token": "x"}})
		}},
		{"list systems", `{"data":[]}`, "GET /v1/systems?page=2", func(ctx context.Context, c *Client) (any, error) { return c.ListSystems(ctx, Page{Page: 2}) }},
		{"get system", `{"id":"crm"}`, "GET /v1/systems/crm", func(ctx context.Context, c *Client) (any, error) { return c.GetSystem(ctx, "crm", "") }},
		{"update system", `{"id":"crm"}`, `PATCH /v1/systems/crm?environment=dev {"url":null,"credentials":{"token":null}}`, func(ctx context.Context, c *Client) (any, error) {
			return c.UpdateSystem(ctx, "crm", "dev", v1.SystemUpdate{URL: v1.Null[string](), Credentials: v1.Some(map[string]*string{"token": nil})})
		}},
		{"delete system", `{"success":true}`, "DELETE /v1/systems/crm?environment=prod", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteSystem(ctx, "crm", "prod") }},
		{"delete key", `{"success":true}`, "DELETE /v1/api-keys/k", func(ctx context.Context, c *Client) (any, error) { return nil, c.DeleteAPIKey(ctx, "k") }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cl, s := serve(t, ok(c.answer))
			if _, err := c.do(t.Context(), cl); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.sent(), []string{c.want}) {
				t.Errorf("sent %q, want %q", s.sent(), c.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	cl, _ := serve(t,
		answer{status: 404, header: map[string]string{"X-Trace-Id": "t1"}, body: `{"error":{"message":"Tool not found","code":"not_found"}}`},
		answer{status: 404, body: `<html>`})
	_, err := cl.GetTool(t.Context(), "a")
	var e *Error
	if !errors.As(err, &e) || *e != (Error{404, "not_found", "Tool not found", "t1"}) || Status(err) != 404 {
		t.Errorf("%#v", err)
	}
	if _, err = cl.GetTool(t.Context(), "a"); err.Error() != "Not Found (HTTP 404)" {
		t.Error(err)
	}
	cl = New("http://127.0.0.1:1/v1", "secret-key", WithRetries(0, 0))
	if _, err = cl.GetTool(t.Context(), "a"); err == nil || Status(err) != 0 || strings.Contains(err.Error(), "secret-key") {
		t.Error(err)
	}
}

// TestRetries states what is repeated: what promises that nothing was done, and what
// may be done twice.
func TestRetries(t *testing.T) {
	t.Parallel()
	create := func(ctx context.Context, c *Client) error { _, err := c.CreateTool(ctx, v1.ToolCreate{}); return err }
	read := func(ctx context.Context, c *Client) error { _, err := c.GetTool(ctx, "a"); return err }
	runOf := func(id string, async bool) func(context.Context, *Client) error {
		return func(ctx context.Context, c *Client) error {
			r, err := c.Run(ctx, "a", v1.RunRequest{RunID: id, Options: &v1.RunOptions{Async: async}})
			if err == nil && r.RunID != "r" {
				return errors.New("another run")
			}
			return err
		}
	}
	const busy, final = `{"runId":"r","status":"running"}`, `{"runId":"r","status":"success"}`
	cases := []struct {
		name    string
		answers []answer
		do      func(context.Context, *Client) error
		sent    int
		fails   bool
	}{
		{"read after 502", []answer{{status: 502}, ok(`{}`)}, read, 2, false},
		{"read after a cut", []answer{{cut: true}, {cut: true}, ok(`{}`)}, read, 3, false},
		{"read gives up", []answer{{status: 500}, {status: 500}, {status: 500}}, read, 3, true},
		{"read of 404", []answer{{status: 404}}, read, 1, true},
		{"create after 503", []answer{{status: 503}, {status: 429}, ok(`{}`)}, create, 3, false},
		{"create after 500", []answer{{status: 500}}, create, 1, true},
		{"create after a cut", []answer{{cut: true}}, create, 1, true},
		{"run without an id after a cut", []answer{{cut: true}}, runOf("", false), 1, true},
		{"run with an id after a cut", []answer{{cut: true}, ok(final)}, runOf("r", false), 2, false},
		{"run that was there after a cut", []answer{{cut: true}, {status: 409}, ok(busy), ok(final)}, runOf("r", false), 4, false},
		{"async run that was there after a cut", []answer{{cut: true}, {status: 409}, ok(busy)}, runOf("r", true), 3, false},
		{"taken id", []answer{{status: 409}}, runOf("r", false), 1, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cl, s := serve(t, c.answers...)
			if err := c.do(t.Context(), cl); (err != nil) != c.fails {
				t.Error(err)
			}
			if len(s.sent()) != c.sent {
				t.Errorf("sent %q, want %d", s.sent(), c.sent)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	cl, s := serve(t, answer{status: 503, header: map[string]string{"Retry-After": "60"}}, ok(`{}`))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := cl.GetTool(ctx, "a"); Status(err) != 503 || len(s.sent()) != 1 {
		t.Errorf("%v, sent %q", err, s.sent())
	}
}

func TestResultsTo(t *testing.T) {
	t.Parallel()
	body := `{"success":true,"data":{"data":"` + strings.Repeat("x", 1<<20) + `"}}`
	cl, _ := serve(t, ok(body), answer{status: 404})
	var got bytes.Buffer
	if err := cl.ResultsTo(t.Context(), "r", &got); err != nil || got.String() != body {
		t.Errorf("%v, %d bytes", err, got.Len())
	}
	if err := cl.ResultsTo(t.Context(), "r", &got); Status(err) != 404 {
		t.Error(err)
	}
}

func TestRedirectIsAnError(t *testing.T) {
	t.Parallel()
	cl, s := serve(t, answer{status: 302, header: map[string]string{"Location": "/elsewhere"}})
	if _, err := cl.GetTool(t.Context(), "a"); Status(err) != 302 || len(s.sent()) != 1 {
		t.Errorf("%v, sent %q", err, s.sent())
	}
}
