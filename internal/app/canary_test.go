package app_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "stepwell/api/v1"
)

// canary is a secret that must be found nowhere. It has characters that encodings change.
const canary = "Canary/+=&ü-7f3e91c4d8"

// forms are the shapes in which a canary could have been written down.
func forms(canary string) []string {
	out := []string{canary, url.QueryEscape(canary), url.PathEscape(canary)}
	quoted, _ := json.Marshal(canary)
	out = append(out, string(quoted[1:len(quoted)-1]), strings.ReplaceAll(canary, "ü", `\u00fc`))
	for shift := range 3 { // base64 of a text that holds it, at each alignment
		text := strings.Repeat("x", shift) + canary
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			coded := enc.EncodeToString([]byte(text))
			out = append(out, coded[4:len(coded)-4])
		}
	}
	for _, f := range out[:len(out):len(out)] { // binary columns show as hexadecimal digits
		out = append(out, hex.EncodeToString([]byte(f)))
	}
	return out
}

func findCanary(text string) string {
	for _, f := range forms(canary) {
		if strings.Contains(text, f) {
			return f
		}
	}
	return ""
}

// TestCanary gives a secret as a run-time credential to runs that succeed, fail in
// every way and are cancelled, and looks for it everywhere afterwards.
func TestCanary(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	got := make(chan string, 100)
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("X-Key")
		switch r.URL.Path {
		case "/fine":
			fmt.Fprint(w, `{"ok":true}`)
		case "/slow":
			<-r.Context().Done()
		default: // an upstream that repeats what it was told
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "no: %s %s %s", r.Header.Get("X-Key"), r.Header.Get("Authorization"), r.URL)
		}
	})
	step := func(id, path string) string {
		return n.tool(t, fmt.Sprintf(`{"id":%q,"steps":[{"id":"a","config":{"url":"%s%s?k=<<encodeURIComponent(sourceData.credentials.key)>>&run=x",
			"headers":{"X-Key":"<<(s) => s.credentials.key>>","Authorization":"Basic me:<<(s) => s.credentials.key>>"}}}]}`, id, up.URL, path))
	}
	credentials, _ := json.Marshal(map[string]string{"key": canary})
	request := v1.RunRequest{Credentials: credentials}
	var answers []string
	for _, tool := range []string{step("fine", "/fine"), step("refused", "/refused"), step("in-path", "/<<(s) => encodeURIComponent(s.credentials.key)>>")} {
		run := n.run(t, tool, request)
		answers = append(answers, n.answers(t, run.RunID)...)
		if key := <-got; key != canary {
			t.Errorf("%s: the upstream got %q", tool, key)
		}
	}
	thrown := n.tool(t, `{"id":"thrown","steps":[{"id":"a","config":{"type":"transform","transformCode":"(s) => { console.log(s.credentials.key); throw new Error('no ' + s.credentials.key) }"}}]}`)
	answers = append(answers, n.answers(t, n.run(t, thrown, request).RunID)...)
	unreachable := n.tool(t, `{"id":"unreachable","steps":[{"id":"a","config":{"method":"POST","url":"http://127.0.0.1:1/<<(s) => encodeURIComponent(s.credentials.key)>>"}}]}`)
	request.Options = &v1.RunOptions{Async: true}
	for _, tool := range []string{step("slow", "/slow"), unreachable} {
		run := n.run(t, tool, request)
		eventually(t, 5*time.Second, func() error {
			if len(up.of("x")) < 4 {
				return fmt.Errorf("the slow request has not begun")
			}
			return nil
		})
		if _, err := n.api.Cancel(t.Context(), run.RunID); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, n.answers(t, run.RunID)...)
	}
	for _, text := range answers {
		if f := findCanary(text); f != "" {
			t.Errorf("an answer holds %q: %.300s", f, text)
		}
	}
	for _, entry := range n.log.All() {
		if text := fmt.Sprint(entry.Message, entry.ContextMap()); findCanary(text) != "" {
			t.Errorf("the log holds the secret: %.300s", text)
		}
	}
	searchDatabases(t, n.cfg.DatabaseURL, findCanary)
}

// answers are all that the API says of a run.
func (n *node) answers(t *testing.T, run string) []string {
	t.Helper()
	var out []string
	for _, path := range []string{"/runs/" + run, "/runs/" + run + "/results", "/runs"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+path, nil)
		req.Header.Set("Authorization", "Bearer "+adminKey)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintln(&b, path, res.Header)
		if _, err := fmt.Fprint(&b, readAll(t, res)); err != nil {
			t.Fatal(err)
		}
		out = append(out, b.String())
	}
	return out
}

// searchDatabases looks through every row of the application's database and of
// Temporal's two. find gives what it finds of a secret in a text.
func searchDatabases(t *testing.T, application string, find func(string) string) {
	t.Helper()
	u, err := url.Parse(application)
	if err != nil {
		t.Fatal("the URL of the stack's database is malformed")
	}
	urls := []string{application}
	for _, name := range []string{"/temporal", "/temporal_visibility"} {
		u.Path = name
		urls = append(urls, u.String())
	}
	rows := 0
	for _, address := range urls {
		rows += searchDatabase(t, address, find)
	}
	if rows < 20 {
		t.Errorf("only %d rows were searched", rows)
	}
}

func searchDatabase(t *testing.T, address string, find func(string) string) (rows int) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal("connect to a database to search")
	}
	defer conn.Close(ctx)
	tables, err := conn.Query(ctx, `SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'`)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(tables, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range names {
		found, err := conn.Query(ctx, `SELECT x::text FROM `+table+` AS x`)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			rows++
			if f := find(text); f != "" {
				t.Errorf("table %s holds %q: %.200s", table, f, text)
			}
		}
	}
	return rows
}
