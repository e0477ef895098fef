package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"stepwell"
)

// decodeYAML reads a document into its value, several into an array of them. Keys are
// text, numbers keep their digits where JSON has the same, dates stay text; what an alias
// stands for is written in its place, up to the limit of an answer.
func decodeYAML(body []byte, _ *budget) (json.RawMessage, error) {
	if values := bytes.Count(body, []byte("\n")) + bytes.Count(body, []byte(",")) + bytes.Count(body, []byte(":")) +
		bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")) + bytes.Count(body, []byte("- ")); values > maxNodes {
		return nil, plainError(fmt.Sprintf("YAML with more than %d values, which is not supported", maxNodes))
	}
	d := yaml.NewDecoder(bytes.NewReader(body))
	var documents []json.RawMessage
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, yamlError(err)
		}
		w := yamlWriter{open: map[*yaml.Node]bool{}}
		if err := w.value(&n, 0); err != nil {
			return nil, err
		}
		text, err := w.done()
		if err != nil {
			return nil, err
		}
		documents = append(documents, text)
	}
	switch len(documents) {
	case 0:
		return jsonNull, nil
	case 1:
		return documents[0], nil
	}
	var all jsonText
	separator := "["
	for _, d := range documents {
		all.raw(separator)
		separator = ","
		all.raw(string(d))
	}
	all.raw("]")
	return all.done()
}

// yamlError keeps the place of a syntax error and nothing of the data.
func yamlError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, _, ok := strings.Cut(rest, ":"); ok {
			return plainError("not valid YAML: near line " + shown(number))
		}
	}
	return plainError("not valid YAML")
}

type yamlWriter struct {
	jsonText
	open map[*yaml.Node]bool // anchors that are being written: one in itself has no end
}

func (w *yamlWriter) value(n *yaml.Node, depth int) error {
	switch {
	case depth > stepwell.MaxJSONDepth:
		return errTooDeep
	case w.full:
		return errTooLarge
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return w.value(n.Content[0], depth)
	case yaml.AliasNode:
		if w.open[n.Alias] {
			return plainError("YAML with an anchor that holds itself, which is not supported")
		}
		w.open[n.Alias] = true
		defer delete(w.open, n.Alias)
		return w.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		w.raw("[")
		for i, e := range n.Content {
			if i > 0 {
				w.raw(",")
			}
			if err := w.value(e, depth+1); err != nil {
				return err
			}
		}
		w.raw("]")
		return nil
	case yaml.MappingNode:
		return w.mapping(n, depth)
	}
	return w.scalar(n)
}

// mapping writes an object; `<<` merges another under its own keys.
func (w *yamlWriter) mapping(n *yaml.Node, depth int) error {
	values, order := map[string]*yaml.Node{}, []string(nil)
	if err := collect(n, values, &order, 0); err != nil {
		return err
	}
	separator := "{"
	for _, key := range order {
		w.raw(separator)
		separator = ","
		w.string(key)
		w.raw(":")
		if err := w.value(values[key], depth+1); err != nil {
			return err
		}
	}
	if separator == "{" {
		w.raw("{")
	}
	w.raw("}")
	return nil
}

// collect gathers the keys of a mapping; those that stand there already win.
func collect(n *yaml.Node, values map[string]*yaml.Node, order *[]string, merges int) error {
	if merges > 20 {
		return plainError("YAML whose '<<' merge too deeply, which is not supported")
	}
	var merged []*yaml.Node
	own := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := dereferenced(n.Content[i]), n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode:
			return plainError("YAML with a key that is no text, which is not supported")
		case k.ShortTag() == "!!merge":
			merged = append(merged, v)
			continue
		case own[k.Value]:
			return plainError("not valid YAML: two keys are equal near line " + strconv.Itoa(k.Line))
		}
		own[k.Value] = true
		if values[k.Value] == nil {
			values[k.Value] = v
			*order = append(*order, k.Value)
		}
	}
	for _, m := range merged {
		m = dereferenced(m)
		sources := []*yaml.Node{m}
		if m.Kind == yaml.SequenceNode {
			sources = m.Content
		}
		for _, source := range sources {
			source = dereferenced(source)
			if source.Kind != yaml.MappingNode {
				return plainError("not valid YAML: '<<' merges what is no mapping")
			}
			if err := collect(source, values, order, merges+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func dereferenced(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (w *yamlWriter) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		w.raw("null")
	case "!!bool":
		var b bool
		if n.Decode(&b) != nil {
			return plainError("not valid YAML: near line " + strconv.Itoa(n.Line))
		}
		w.raw(strconv.FormatBool(b))
	case "!!int", "!!float":
		w.number(n)
	default: // dates and binary data stay the text that they are
		w.string(n.Value)
	}
	return nil
}

// number keeps the text of a number that JSON writes the same way; infinities and NaN,
// which JSON has not, become text.
func (w *yamlWriter) number(n *yaml.Node) {
	if checkJSON([]byte(n.Value)) == nil {
		w.raw(n.Value)
		return
	}
	var whole int64
	var f float64
	switch {
	case n.ShortTag() == "!!int" && n.Decode(&whole) == nil:
		w.raw(strconv.FormatInt(whole, 10))
	case n.Decode(&f) == nil && !math.IsInf(f, 0) && !math.IsNaN(f):
		w.raw(strconv.FormatFloat(f, 'g', -1, 64))
	default:
		w.string(n.Value)
	}
}

// looksLikeYAML is true only of what says so itself: nearly every text is YAML.
func looksLikeYAML(body []byte) bool {
	return bytes.HasPrefix(body, []byte("%YAML ")) || bytes.HasPrefix(body, []byte("---\n")) || bytes.HasPrefix(body, []byte("---\r\n"))
}
