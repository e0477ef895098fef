package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// notHere are the engine's cases that a real run cannot repeat as they are.
var notHere = map[string]string{
	"credentials":       "stored credentials",
	"headers":           "stored credentials",
	"next_url":          "stored credentials",
	"failed_status":     "a 503 is repeated five times; see TestRepeats",
	"js_transform":      "state",
	"js_transform_loop": "state",
}

// caseHosts are the hosts that cases call.
var caseHosts = []string{"https://api.test", "https://other.test", "https://sys.test"}

// TestCases puts every case of the engine through a real run: the same requests arrive,
// and the same result comes back.
func TestCases(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	files, err := filepath.Glob("../../engine/testdata/cases/*.txt")
	if err != nil || len(files) < 50 {
		t.Fatal("too few cases: ", len(files), err)
	}
	t.Run("all", func(t *testing.T) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".txt")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if why, skip := notHere[name]; skip {
					t.Skip("needs ", why)
				}
				runCase(t, n, name, file)
			})
		}
	})
}

// caseResult is what a case wants.
type caseResult struct {
	Data     json.RawMessage
	Error    string
	Steps    []json.RawMessage // envelopes
	Pages    int
	Items    int64
	EndedBy  string
	Problems []string
}

func runCase(t *testing.T, n *node, name, file string) {
	parts := readCase(t, file)
	up := startCaseUpstream(t, parts)
	var tool v1.ToolCreate
	decode(t, []byte(up.there(string(parts["tool.json"]))), &tool)
	tool.ID = name
	var in struct {
		Inputs   json.RawMessage
		Runtime  json.RawMessage
		MaxPages int
	}
	if parts["run.json"] != nil {
		decode(t, []byte(up.there(string(parts["run.json"]))), &in)
	}
	var want caseResult
	decode(t, parts["want.json"], &want)
	if _, err := n.api.CreateTool(t.Context(), tool); err != nil {
		t.Fatal("save the tool: ", err)
	}
	run, err := n.api.Run(t.Context(), name, v1.RunRequest{RunID: "case-" + name, Inputs: in.Inputs, Credentials: in.Runtime,
		Options: &v1.RunOptions{MaxPages: in.MaxPages}})
	if len(want.Problems) > 0 {
		checkRefused(t, err, want.Problems)
		return
	}
	if err != nil {
		t.Fatal("run: ", err)
	}
	checkCase(t, up, run, &want, tool)
	up.check(t, name)
	// What is stored says the same as what the synchronous caller got.
	stored, err := n.api.Results(t.Context(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Data == nil {
		if run.Status == "success" || len(run.StepResults) > 0 {
			t.Error("nothing is stored")
		}
		return
	}
	again := *run
	again.Data, again.StepResults, again.Error = stored.Data.Data, stored.Data.StepResults, stored.Data.Error
	checkCase(t, up, &again, &want, tool)
}

func checkRefused(t *testing.T, err error, problems []string) {
	t.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Fatalf("the run was not refused with 400: %v", err)
	}
	for _, p := range problems {
		if !strings.Contains(refused.Message, p) {
			t.Errorf("%q does not name %q", refused.Message, p)
		}
	}
}

// place is where a template stands in a text: another place where hosts are replaced.
var place = regexp.MustCompile(`at character \d+`)

// checkCase compares what came back with what the case wants.
func checkCase(t *testing.T, up *caseUpstream, run *v1.Run, want *caseResult, tool v1.ToolCreate) {
	t.Helper()
	if got := up.back(run.Error); place.ReplaceAllString(got, "") != place.ReplaceAllString(want.Error, "") {
		t.Errorf("error %q, want %q", got, want.Error)
	}
	if status := map[bool]string{true: "success", false: "failed"}[want.Error == ""]; run.Status != status {
		t.Errorf("status %s, want %s", run.Status, status)
	}
	if got, want := compact(t, up.back(string(run.Data))), compact(t, string(want.Data)); got != want && run.Status == "success" {
		t.Errorf("data %s, want %s", got, want)
	}
	if run.Status != "success" {
		return
	}
	if len(run.StepResults) != len(want.Steps) {
		t.Fatalf("%d step results, want %d", len(run.StepResults), len(want.Steps))
	}
	pages, items := 0, int64(0)
	for i, row := range run.StepResults {
		if len(tool.ResponseFilters) == 0 { // else what leaves is filtered, the envelopes are not
			checkRow(t, up, row, want.Steps[i])
		}
		if row.Items != nil {
			pages, items = pages+row.Pages, items+*row.Items
			if row.EndedBy != want.EndedBy {
				t.Errorf("step %s: ended by %q, want %q", row.StepID, row.EndedBy, want.EndedBy)
			}
		}
	}
	if pages != want.Pages || items != want.Items {
		t.Errorf("%d pages with %d items, want %d with %d", pages, items, want.Pages, want.Items)
	}
}

// checkRow compares a row of stepResults with the envelope that later steps see.
func checkRow(t *testing.T, up *caseUpstream, row v1.StepResult, envelope json.RawMessage) {
	t.Helper()
	want := struct {
		Data    json.RawMessage
		Success bool
	}{envelope, true} // a loop's data is its envelopes
	if !bytes.HasPrefix(envelope, []byte("[")) {
		want.Data = nil
		decode(t, envelope, &want)
	}
	if row.Success != want.Success {
		t.Errorf("step %s: success %v, want %v (%s)", row.StepID, row.Success, want.Success, row.Error)
	}
	if got, want := compact(t, up.back(string(row.Data))), compact(t, string(want.Data)); got != want {
		t.Errorf("step %s: data %s, want %s", row.StepID, got, want)
	}
}

// caseUpstream answers as a case says, and keeps what it was asked.
type caseUpstream struct {
	parts   map[string][]byte
	servers []*httptest.Server // in the order of caseHosts
	mu      sync.Mutex
	asked   []string
}

func startCaseUpstream(t *testing.T, parts map[string][]byte) *caseUpstream {
	u := &caseUpstream{parts: parts}
	for i := range caseHosts {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { u.answer(t, w, r, caseHosts[i]) }))
		t.Cleanup(s.Close)
		u.servers = append(u.servers, s)
	}
	return u
}

// there puts the addresses of the servers in place of the case's.
func (u *caseUpstream) there(text string) string {
	for i, host := range caseHosts {
		text = strings.ReplaceAll(text, host, u.servers[i].URL)
	}
	return text
}

// back is there, undone.
func (u *caseUpstream) back(text string) string {
	for i, host := range caseHosts {
		text = strings.ReplaceAll(text, u.servers[i].URL, host)
	}
	return text
}

// ofTransport are headers that the sender adds and that say nothing of the step.
var ofTransport = []string{"Accept-Encoding", "Connection", "Content-Length", "User-Agent", "Traceparent"}

func (u *caseUpstream) answer(t *testing.T, w http.ResponseWriter, r *http.Request, host string) {
	lines := []string{}
	for name, values := range r.Header {
		for _, v := range values {
			if !slices.Contains(ofTransport, name) {
				lines = append(lines, name+": "+v)
			}
		}
	}
	slices.Sort(lines)
	lines = append([]string{r.Method + " " + host + r.RequestURI}, lines...)
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		t.Error("read a request: ", err)
	}
	if body.Len() > 0 {
		lines = append(lines, "", strings.ReplaceAll(body.String(), "\r\n", "\n"))
	}
	u.mu.Lock()
	u.asked = append(u.asked, strings.TrimSuffix(strings.Join(lines, "\n"), "\n")+"\n")
	part := u.parts[fmt.Sprintf("answer %d", len(u.asked))]
	u.mu.Unlock()
	head, answer, _ := strings.Cut(string(part), "\n\n")
	first, headers, _ := strings.Cut(strings.TrimSpace(head), "\n")
	status, err := strconv.Atoi(first)
	if err != nil {
		t.Errorf("request %d was not expected: %s", len(u.asked), lines[0])
		w.WriteHeader(http.StatusGone)
		return
	}
	w.Header()["Content-Type"] = nil // the server must not guess one
	for line := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			w.Header().Add(name, u.there(value))
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(u.there(strings.TrimSuffix(answer, "\n")))) // the caller may have seen enough
}

// check compares the requests that arrived with those that the case wants.
func (u *caseUpstream) check(t *testing.T, name string) {
	t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	count := 0
	for u.parts[fmt.Sprintf("request %d", count+1)] != nil {
		count++
	}
	if len(u.asked) != count {
		t.Errorf("%d requests arrived, want %d", len(u.asked), count)
	}
	for i, got := range u.asked[:min(count, len(u.asked))] {
		want := strings.ReplaceAll(string(u.parts[fmt.Sprintf("request %d", i+1)]), " (credential)", "")
		want = strings.ReplaceAll(want, "run-1/", "case-"+name+"/")
		if got = u.back(got); got != want {
			t.Errorf("request %d:\n%s\nwant:\n%s", i+1, got, want)
		}
	}
}

// readCase reads the parts of a case; engine/cases_test.go says what they are.
func readCase(t *testing.T, file string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts, name := map[string][]byte{}, ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok && strings.HasSuffix(head, " --") {
			name = strings.TrimSuffix(head, " --")
			parts[name] = []byte{}
			continue
		}
		parts[name] = append(parts[name], line...)
	}
	return parts
}

func decode(t *testing.T, document []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(document, v); err != nil {
		t.Fatalf("%v: %.300s", err, document)
	}
}

func compact(t *testing.T, document string) string {
	t.Helper()
	if document == "" {
		return ""
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(document)); err != nil {
		t.Fatalf("%v: %.300s", err, document)
	}
	return b.String()
}
