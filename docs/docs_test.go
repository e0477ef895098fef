package docs

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
	"stepwell/internal/demo"
)

func TestToolExamplesAreTools(t *testing.T) {
	t.Parallel()
	examples, err := Tools()
	if err != nil {
		t.Fatal(err)
	}
	if len(examples) < 15 {
		t.Errorf("%d tools, want at least 15", len(examples))
	}
	seen := map[string]bool{}
	for _, e := range examples {
		decoder := json.NewDecoder(bytes.NewReader(e.Tool))
		decoder.DisallowUnknownFields()
		var tool v1.ToolCreate
		if err := decoder.Decode(&tool); err != nil {
			t.Errorf("line %d: %v", e.Line, err)
		}
		if e.ID == "" || seen[e.ID] {
			t.Errorf("line %d: the id %q is empty or taken", e.Line, e.ID)
		}
		seen[e.ID] = true
		if e.Error == "" && !json.Valid(e.Data) {
			t.Errorf("line %d: the data is no JSON: %s", e.Line, e.Data)
		}
		if !strings.Contains(string(e.Tool), "http://"+demo.DefaultAddr+"/") {
			t.Errorf("line %d: the tool does not call the demo upstream", e.Line)
		}
	}
}

func TestShellExamplesHaveAnswers(t *testing.T) {
	t.Parallel()
	examples, err := Shell()
	if err != nil {
		t.Fatal(err)
	}
	if len(examples) < 10 {
		t.Errorf("%d calls, want at least 10", len(examples))
	}
	for _, e := range examples {
		if !json.Valid(e.Answer) {
			t.Errorf("line %d: the answer is no JSON: %s", e.Line, e.Answer)
		}
		if !strings.HasPrefix(e.Script, "curl -s ") || !strings.Contains(e.Script, "$STEPWELL_API_KEY") {
			t.Errorf("line %d: the call is %s", e.Line, e.Script)
		}
	}
}

// anchors makes the fragment that a heading is linked by.
var anchors = regexp.MustCompile(`[^a-z0-9 -]`)

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	headings, texts := map[string]bool{}, map[string]string{}
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		texts[entry.Name()], headings[entry.Name()] = string(text), true
		for _, line := range strings.Split(string(text), "\n") {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				headings[entry.Name()+"#"+strings.ReplaceAll(anchors.ReplaceAllString(strings.ToLower(title), ""), " ", "-")] = true
			}
		}
	}
	for name, text := range texts {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "../") {
				continue
			}
			if strings.HasPrefix(target, "#") {
				target = name + target
			}
			if !headings[target] {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	const answer = `{"a":1,"b":{"c":"x","d":[1,2]},"e":null}`
	for shown, want := range map[string]string{
		`{}`:                  "",
		`{"a":1}`:             "",
		`{"a":"…"}`:           "",
		`{"b":{"d":[1,2]}}`:   "",
		`{"b":{"d":["…",2]}}`: "",
		`{"e":null}`:          "",
		`{"a":2}`:             "answer.a is 1, want 2",
		`{"b":{"d":[1]}}`:     "answer.b.d is [1 2], want 1 elements",
		`{"b":{"d":[1,3]}}`:   "answer.b.d[1] is 2, want 3",
		`{"f":"…"}`:           `answer has no "f"`,
		`{"a":{}}`:            "answer.a is 1, want an object",
		`{"b":{"x":1}}`:       `answer.b has no "x"`,
		`{"b":{"c":["x"]}}`:   "answer.b.c is x, want 1 elements",
	} {
		if got := Match(json.RawMessage(shown), json.RawMessage(answer)); got != want {
			t.Errorf("%s: %q, want %q", shown, got, want)
		}
	}
}
