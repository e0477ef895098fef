package engine

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"

	"stepwell"
)

// maxNodes bounds the elements and attributes of an XML document, and the values of a
// YAML one: each costs some hundred bytes until the document is written as JSON.
const maxNodes = 1_000_000

// xmlNode is an element or an attribute. Nodes stand in one slice and refer to each
// other by index; 0 is the document, which nothing refers to.
type xmlNode struct {
	name        string // an attribute's with its `@`
	text        []byte
	first, last int32 // children, attributes before elements
	next        int32 // sibling
}

// decodeXML reads a document into an object with the root as its one key: attributes are
// `@name`, text beside them or beside elements is `#text`, an element with text alone is
// that text, repeated elements are an array. Names keep their prefixes. Entities beyond
// the five of XML itself are refused, and so is a DTD that could declare some.
func decodeXML(body []byte, _ *budget) (json.RawMessage, error) {
	t := xmlTree{nodes: make([]xmlNode, 1, 64), names: map[string]string{}, open: []int32{0}}
	d := xml.NewDecoder(bytes.NewReader(body))
	d.CharsetReader = func(label string, in io.Reader) (io.Reader, error) { return xmlCharset(label, in, body) }
	for {
		token, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = t.take(token)
		}
		if err != nil {
			return nil, xmlError(err, d)
		}
	}
	if len(t.open) > 1 {
		return nil, plainError("not valid XML: <" + shown(t.nodes[t.current()].name) + "> is not closed")
	}
	if t.nodes[0].first == 0 {
		return nil, plainError("not valid XML: it has no element")
	}
	var out jsonText
	t.write(&out, 0)
	return out.done()
}

// xmlCharset undoes the encoding that the document itself declares, unless it is UTF-8
// already: then its Content-Type named it, and it was undone.
func xmlCharset(label string, in io.Reader, body []byte) (io.Reader, error) {
	enc, err := htmlindex.Get(label)
	if utf8.Valid(body) {
		return in, nil
	}
	if err != nil {
		return nil, plainError("not valid XML: its encoding is not known")
	}
	return enc.NewDecoder().Reader(in), nil
}

func xmlError(err error, d *xml.Decoder) error {
	var plain plainError
	if errors.As(err, &plain) || errors.Is(err, errTooDeep) {
		return err
	}
	line, _ := d.InputPos()
	why := "it cannot be read"
	var syntax *xml.SyntaxError
	if errors.As(err, &syntax) {
		switch {
		case strings.Contains(syntax.Msg, "entity"):
			why = "it has an entity that XML itself does not declare, or a lone '&'"
		case strings.Contains(syntax.Msg, "unexpected EOF"):
			why = "it ends too early"
		}
	}
	return plainError(fmt.Sprintf("not valid XML: line %d: %s", line, why))
}

type xmlTree struct {
	nodes []xmlNode
	names map[string]string // one copy of each name
	open  []int32           // the elements that are open, the document first
}

func (t *xmlTree) current() int32 { return t.open[len(t.open)-1] }

func (t *xmlTree) take(token xml.Token) error {
	switch token := token.(type) {
	case xml.StartElement:
		if len(t.open) == 1 && t.nodes[0].first != 0 {
			return plainError("not valid XML: it has more than one root element")
		}
		if len(t.open) > stepwell.MaxJSONDepth {
			return errTooDeep
		}
		t.open = append(t.open, t.add(token.Name, "", nil))
		for _, a := range token.Attr {
			t.add(a.Name, "@", []byte(a.Value))
		}
	case xml.EndElement:
		if len(t.open) == 1 || t.nodes[t.current()].name != xmlName(token.Name) {
			return plainError("not valid XML: </" + shown(xmlName(token.Name)) + "> closes no open element")
		}
		t.open = t.open[:len(t.open)-1]
	case xml.CharData:
		if len(t.open) > 1 {
			n := &t.nodes[t.current()]
			n.text = append(n.text, token...)
		} else if len(bytes.TrimSpace(token)) > 0 {
			return plainError("not valid XML: text stands outside of the root element")
		}
	case xml.Directive:
		if bytes.ContainsAny(token, "[<") {
			return plainError("XML with a DTD of its own, which is not supported")
		}
	}
	if len(t.nodes) > maxNodes {
		return plainError(fmt.Sprintf("XML with more than %d elements and attributes, which is not supported", maxNodes))
	}
	return nil
}

func xmlName(n xml.Name) string {
	if n.Space == "" {
		return n.Local
	}
	return n.Space + ":" + n.Local
}

// add puts a node under the current element.
func (t *xmlTree) add(name xml.Name, mark string, text []byte) int32 {
	full := mark + xmlName(name)
	if t.names[full] == "" {
		t.names[full] = full
	}
	t.nodes = append(t.nodes, xmlNode{name: t.names[full], text: text})
	i, parent := int32(len(t.nodes)-1), &t.nodes[t.current()]
	if parent.first == 0 {
		parent.first = i
	} else {
		t.nodes[parent.last].next = i
	}
	parent.last = i
	return i
}

// write writes the value of a node.
func (t *xmlTree) write(out *jsonText, i int32) {
	n := &t.nodes[i]
	if n.first == 0 {
		text := n.text
		if strings.HasPrefix(n.name, "@") || len(bytes.TrimSpace(text)) > 0 {
			out.string(string(text))
			return
		}
		out.raw(`""`)
		return
	}
	var order []string
	byName := map[string][]int32{}
	for child := n.first; child != 0; child = t.nodes[child].next {
		name := t.nodes[child].name
		if byName[name] == nil {
			order = append(order, name)
		}
		byName[name] = append(byName[name], child)
	}
	separator := "{"
	for _, name := range order {
		out.raw(separator)
		separator = ","
		out.string(name)
		out.raw(":")
		t.writeAll(out, byName[name])
	}
	if text := bytes.TrimSpace(n.text); len(text) > 0 {
		out.raw(`,"#text":`)
		out.string(string(text))
	}
	out.raw("}")
}

// writeAll writes the nodes of one name: one as it is, several as an array.
func (t *xmlTree) writeAll(out *jsonText, same []int32) {
	if len(same) == 1 {
		t.write(out, same[0])
		return
	}
	separator := "["
	for _, i := range same {
		out.raw(separator)
		separator = ","
		t.write(out, i)
	}
	out.raw("]")
}

// looksLikeXML tells a document of XML from one of HTML and from text.
func looksLikeXML(body []byte) bool {
	body = bytes.TrimSpace(body[:min(len(body), 512)])
	if bytes.HasPrefix(body, []byte("<?xml")) {
		return true
	}
	lower := bytes.ToLower(body)
	return len(body) > 1 && body[0] == '<' && (lower[1] >= 'a' && lower[1] <= 'z' || lower[1] == '_') && !bytes.HasPrefix(lower, []byte("<html"))
}
