package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// link is a tool of a chain: it adds one to n and shows the credential that it was given.
const link = `{"id":%q,"webhookUrl":%q,"steps":[{"id":"add","config":{"type":"transform",
	"transformCode":"(s) => ({n: (s.n || 0) + 1, token: s.credentials.token || ''})"}}]}`

// children gives the chained runs of a run.
func (n *node) children(t *testing.T, parent string) []v1.Run {
	t.Helper()
	list, err := n.api.ListRuns(t.Context(), client.Page{}, client.RunFilter{ParentRunID: parent})
	if err != nil {
		t.Fatal(err)
	}
	return list.Data
}

// chain waits for a whole chain and gives its runs, each of which must have one child.
func (n *node) chain(t *testing.T, first string) []*v1.Run {
	t.Helper()
	var all []*v1.Run
	for id := first; id != ""; {
		run := n.waitFinal(t, id, time.Minute)
		all = append(all, run)
		next := n.children(t, id)
		if len(next) > 1 {
			t.Fatalf("run %d has %d children", len(all), len(next))
		}
		if id = ""; len(next) == 1 {
			id = next[0].RunID
		}
	}
	return all
}

// TestChain runs a chain of three: each link has the payload, credentials and options of
// the one before.
func TestChain(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.tool(t, fmt.Sprintf(link, "a", ""))
	n.tool(t, fmt.Sprintf(link, "b", "tool:c"))
	n.tool(t, fmt.Sprintf(link, "c", ""))
	first := n.run(t, "a", v1.RunRequest{Inputs: json.RawMessage(`{"n":5}`), Credentials: json.RawMessage(`{"token":"t-1"}`),
		Options: &v1.RunOptions{WebhookURL: "tool:b", Timeout: 4321, TraceID: "trace-1", Mode: "dev"}})
	all := n.chain(t, first.RunID)
	if len(all) != 3 {
		t.Fatalf("the chain has %d runs", len(all))
	}
	for i, run := range all {
		if want := fmt.Sprintf(`{"n":%d,"token":"t-1"}`, 6+i); run.Status != "success" || string(run.Data) != want {
			t.Errorf("run %d is %s %s with %s, want %s", i, run.Status, run.Error, run.Data, want)
		}
		if run.Options.Timeout != 4321 || run.TraceID != "trace-1" || run.ExecutionMode != "dev" || run.UserID != first.UserID {
			t.Errorf("run %d has other options: %+v", i, run.Options)
		}
		if i > 0 && (run.RequestSource != "tool-chain" || run.ParentRunID != all[i-1].RunID || run.ToolID != []string{"a", "b", "c"}[i]) {
			t.Errorf("run %d is of %s, source %s, parent %s", i, run.ToolID, run.RequestSource, run.ParentRunID)
		}
	}
	if got := all[1].Options.WebhookURL; got != "tool:c" {
		t.Errorf("the second link has the webhookUrl %q, not its tool's own", got)
	}
}

// TestChainOfItself is a tool that names itself: the chain ends after 100 runs.
func TestChainOfItself(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.tool(t, fmt.Sprintf(link, "self", "tool:self"))
	all := n.chain(t, n.run(t, "self", v1.RunRequest{RunID: strings.Repeat("r", 200)}).RunID)
	if len(all) != 100 {
		t.Fatalf("the chain has %d runs, want 100", len(all))
	}
	for i, run := range all {
		if run.Status != "success" || string(run.Data) != fmt.Sprintf(`{"n":%d,"token":""}`, i+1) || len(run.Metadata.Warnings) != i/99 {
			t.Errorf("run %d is %s with %s, warnings %q", i+1, run.Status, run.Data, run.Metadata.Warnings)
		}
	}
}

// TestChainPayloads hands on what is no object under data, whatever its size, filtered,
// and whatever path the run takes to its end.
func TestChainPayloads(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	big := `"` + strings.Repeat("x", 3<<20) + `"`
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, map[string]string{"/object": `{"a":12345678901234567890}`, "/array": `[1,null]`, "/big": big, "/secret": `{"a":1,"password":"p"}`}[r.URL.Path])
	})
	n.tool(t, `{"id":"next","outputTransform":"(s) => Object.keys(s)"}`)
	for path, want := range map[string]string{"object": `{"a":12345678901234567890}`, "array": `{"data":[1,null]}`, "big": `{"data":` + big + `}`, "secret": `{"a":1}`} {
		filters := ""
		if path == "secret" {
			filters = `,"responseFilters":[{"target":"KEYS","pattern":"password","action":"REMOVE"}]`
		}
		n.tool(t, fmt.Sprintf(`{"id":%q,"webhookUrl":"tool:next","steps":[{"id":"get","config":{"url":"%s/%s"}}]%s}`, path, up.URL, path, filters))
		all := n.chain(t, n.run(t, path, v1.RunRequest{}).RunID)
		if len(all) != 2 || all[1].Status != "success" {
			t.Fatalf("%s: %d runs", path, len(all))
		}
		if string(all[1].ToolPayload) != want {
			t.Errorf("%s: the next run got %.80s, want %.80s", path, all[1].ToolPayload, want)
		}
	}
}

// TestChainThatCannotGoOn has next tools that are gone or do not fit: the parent is a
// success, and a failed run says why.
func TestChainThatCannotGoOn(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	release := make(chan struct{})
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		fmt.Fprint(w, `{"n":"text"}`)
	})
	for _, c := range []struct {
		name, inputSchema, text, warning string
		change                           func(id string) error
	}{
		{"deleted", "", "Tool not found", "was not found", func(id string) error { return n.api.DeleteTool(t.Context(), id) }},
		{"archived", "", "Tool is archived", "is archived", func(id string) error {
			_, err := n.api.UpdateTool(t.Context(), id, v1.ToolUpdate{Archived: v1.Some(true)})
			return err
		}},
		{"misfit", `,"inputSchema":{"type":"object","properties":{"n":{"type":"number"}}}`, "inputSchema", "", func(string) error { return nil }},
	} {
		t.Log(c.name)
		n.tool(t, fmt.Sprintf(`{"id":%q,"outputTransform":"(s) => 1"%s}`, c.name, c.inputSchema))
		n.tool(t, fmt.Sprintf(`{"id":"to-%s","webhookUrl":"tool:%s","steps":[{"id":"get","config":{"url":"%s/"}}]}`, c.name, c.name, up.URL))
		run := n.run(t, "to-"+c.name, v1.RunRequest{Options: &v1.RunOptions{Async: true}})
		if err := c.change(c.name); err != nil {
			t.Fatal(err)
		}
		release <- struct{}{}
		all := n.chain(t, run.RunID)
		if len(all) != 2 || all[0].Status != "success" || all[1].Status != "failed" || !strings.Contains(all[1].Error, c.text) || all[1].ToolID != c.name {
			t.Fatalf("%s: %d runs, the last is %+v", c.name, len(all), all[len(all)-1])
		}
		if w := strings.Join(all[0].Metadata.Warnings, ";"); !strings.Contains(w, c.warning) || c.warning == "" && w != "" {
			t.Errorf("%s: the warnings are %q", c.name, w)
		}
	}
}
