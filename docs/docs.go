// Package docs is the documentation, and its examples as data: tests save and
// run every one of them, so that none can go stale. It reads the documents and
// runs nothing; only tests may import it.
package docs

import (
	"bufio"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

//go:embed *.md
var files embed.FS

// block is one fenced block of a document.
type block struct {
	info string // what stands behind the opening fence
	text string
	line int // of the opening fence
}

// blocks reads the fenced blocks of a document.
func blocks(name string) ([]block, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all []block
	var open *block
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for n := 1; lines.Scan(); n++ {
		switch info, fence := strings.CutPrefix(lines.Text(), "```"); {
		case fence && open == nil:
			open = &block{info: strings.TrimSpace(info), line: n}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += lines.Text() + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", name, open.line)
	}
	return all, lines.Err()
}

// ToolExample is a tool of expressions.md and what a run of it without inputs
// comes to: either Data or Error.
type ToolExample struct {
	ID    string
	Line  int             // in the document
	Tool  json.RawMessage // as POST /tools takes it
	Data  json.RawMessage // of the run that succeeds
	Error string          // a part of the error of the run that fails
}

// Tools gives the tools of expressions.md. Each calls the demo upstream at
// demo.DefaultAddr.
//
// In the document a block `json tool` is followed by a block `json data` or
// `text error`.
func Tools() ([]ToolExample, error) {
	const name = "expressions.md"
	all, err := blocks(name)
	if err != nil {
		return nil, err
	}
	var examples []ToolExample
	for i, b := range all {
		if b.info != "json tool" {
			continue
		}
		example := ToolExample{Line: b.line, Tool: json.RawMessage(b.text)}
		var tool struct{ ID string }
		if err := json.Unmarshal(example.Tool, &tool); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, b.line, err)
		}
		example.ID = tool.ID
		if i+1 == len(all) {
			return nil, fmt.Errorf("%s:%d: nothing says what the tool returns", name, b.line)
		}
		switch next := all[i+1]; next.info {
		case "json data":
			example.Data = json.RawMessage(next.text)
		case "text error":
			example.Error = strings.TrimSpace(next.text)
		default:
			return nil, fmt.Errorf("%s:%d: nothing says what the tool returns", name, b.line)
		}
		examples = append(examples, example)
	}
	return examples, nil
}

// ShellExample is one call of api.md and a part of its answer.
type ShellExample struct {
	Line   int
	Script string          // for sh, with STEPWELL_URL (/v1 included) and STEPWELL_API_KEY set
	Answer json.RawMessage // see Match
	// Until says that the call is repeated until the top-level field has a value;
	// Field is empty when one call is enough.
	Until struct{ Field, Value string }
}

// Shell gives the calls of api.md. They build on each other, in order, in an
// installation without tools and runs, and call the demo upstream at
// demo.DefaultAddr.
//
// In the document a block `sh`, or `sh until field=value`, is followed by a
// block `json`.
func Shell() ([]ShellExample, error) {
	const name = "api.md"
	all, err := blocks(name)
	if err != nil {
		return nil, err
	}
	var examples []ShellExample
	for i, b := range all {
		kind, until, _ := strings.Cut(b.info, " until ")
		if kind != "sh" {
			continue
		}
		if i+1 == len(all) || all[i+1].info != "json" {
			return nil, fmt.Errorf("%s:%d: the call has no answer", name, b.line)
		}
		example := ShellExample{Line: b.line, Script: b.text, Answer: json.RawMessage(all[i+1].text)}
		example.Until.Field, example.Until.Value, _ = strings.Cut(until, "=")
		examples = append(examples, example)
	}
	return examples, nil
}

// Match reports how an answer differs from the part of it that a document
// shows, "" when it does not: fields that the document leaves out may have any
// value, "…" stands for any value, and arrays have the elements shown.
func Match(shown, answer json.RawMessage) string {
	var want, got any
	if err := json.Unmarshal(shown, &want); err != nil {
		return "the document: " + err.Error()
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return "the answer: " + err.Error()
	}
	return differ("answer", want, got)
}

// differ is Match for decoded values; at names the place.
func differ(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %.200v, want an object", at, got)
		}
		for name, value := range want {
			inner, has := object[name]
			if !has {
				return fmt.Sprintf("%s has no %q", at, name)
			}
			if d := differ(at+"."+name, value, inner); d != "" {
				return d
			}
		}
		return ""
	case []any:
		array, ok := got.([]any)
		if !ok || len(array) != len(want) {
			return fmt.Sprintf("%s is %.200v, want %d elements", at, got, len(want))
		}
		for i, value := range want {
			if d := differ(fmt.Sprintf("%s[%d]", at, i), value, array[i]); d != "" {
				return d
			}
		}
		return ""
	case string:
		if want == "…" {
			return ""
		}
	}
	if want != got {
		return fmt.Sprintf("%s is %.200v, want %v", at, got, want)
	}
	return ""
}

// Receiver gives the receiver of callbacks that api.md shows: a Python program.
func Receiver() (string, error) {
	all, err := blocks("api.md")
	if err != nil {
		return "", err
	}
	for _, b := range all {
		if b.info == "python" {
			return b.text, nil
		}
	}
	return "", errors.New("api.md shows no receiver")
}
