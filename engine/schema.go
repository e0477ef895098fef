package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Schema is a compiled JSON Schema, 2020-12 unless its $schema says otherwise. It
// is immutable and safe for concurrent use.
type Schema struct {
	raw      json.RawMessage
	compiled *jsonschema.Schema
}

// Problem is one violation of a schema.
type Problem struct {
	Path    string // for example `customer.emails[0]`; empty at the top
	Message string // names the rule and no data
}

// String gives `path: message`.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// schemaURL is the base of references inside a schema. Nothing is ever loaded.
const schemaURL = "https://schema.invalid/"

// noRemote refuses to load anything: a schema must be complete in itself.
type noRemote struct{}

var errRemoteRef = errors.New("a $ref or $schema outside the schema is not supported")

// Load refuses.
func (noRemote) Load(string) (any, error) { return nil, errRemoteRef }

// CompileSchema reads a JSON Schema. The error says what is wrong with it; a
// reference to anything outside the schema is refused.
func CompileSchema(raw json.RawMessage) (*Schema, error) {
	doc, err := decodeForSchema(raw)
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noRemote{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, schemaError(err)
	}
	compiled, err := c.Compile(schemaURL)
	if err != nil {
		return nil, schemaError(err)
	}
	return &Schema{raw: raw, compiled: compiled}, nil
}

func compileOptional(raw json.RawMessage) (*Schema, error) {
	if isNull(raw) {
		return nil, nil
	}
	return CompileSchema(raw)
}

// schemaError says in the API's words why a text is no schema.
func schemaError(err error) error {
	var invalid *jsonschema.ValidationError
	var schema *jsonschema.SchemaValidationError
	var load *jsonschema.LoadURLError
	switch {
	case errors.As(err, &load):
		return errRemoteRef
	case errors.As(err, &schema) && errors.As(schema.Err, &invalid):
		if problems := problemsOf(invalid); len(problems) > 0 {
			return plainError("is no JSON Schema: " + problems[0].String())
		}
	}
	var pattern *jsonschema.InvalidRegexError
	if errors.As(err, &pattern) {
		return plainError("is no JSON Schema: a pattern is no valid regular expression")
	}
	var pointer *jsonschema.JSONPointerNotFoundError
	var anchor *jsonschema.AnchorNotFoundError
	if errors.As(err, &pointer) || errors.As(err, &anchor) {
		return plainError("is no JSON Schema: a $ref names nothing in it")
	}
	return plainError("is no JSON Schema")
}

// decodeForSchema decodes JSON for the validator, which compares numbers exactly.
// It would spend seconds on 1e999999, so exponents are cut to what no bound in a
// schema reaches.
func decodeForSchema(raw json.RawMessage) (any, error) {
	if err := checkJSON(raw); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errNotJSON
	}
	return tameNumbers(v), nil
}

const maxExponent = 400

func tameNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		i := strings.IndexAny(string(v), "eE")
		if i < 0 {
			return v
		}
		exp, err := strconv.Atoi(string(v[i+1:]))
		switch {
		case err == nil && exp >= -maxExponent && exp <= maxExponent:
			return v
		case strings.HasPrefix(string(v[i+1:]), "-"):
			return v[:i] + json.Number(fmt.Sprintf("e-%d", maxExponent))
		}
		return v[:i] + json.Number(fmt.Sprintf("e%d", maxExponent))
	case []any:
		for i := range v {
			v[i] = tameNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = tameNumbers(v[k])
		}
	}
	return v
}

// maxProblems bounds what Validate reports.
const maxProblems = 20

// Validate gives the violations of data, none when it conforms; at most 20, in the
// order of their paths.
func (s *Schema) Validate(data json.RawMessage) []Problem {
	v, err := decodeForSchema(data)
	if err != nil {
		return []Problem{{Message: err.Error()}}
	}
	err = s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return []Problem{{Message: "cannot be compared with the schema"}}
	}
	return problemsOf(invalid)
}

// problemsOf collects the leaves of a validation error.
func problemsOf(err *jsonschema.ValidationError) []Problem {
	var all []Problem
	var collect func(*jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf, *kind.Not, *kind.Contains:
			all = append(all, Problem{Path: instancePath(e.InstanceLocation), Message: problemText(e.ErrorKind)})
			return
		}
		if len(e.Causes) == 0 {
			all = append(all, leafProblems(e)...)
		}
		for _, c := range e.Causes {
			collect(c)
		}
	}
	collect(err)
	slices.SortStableFunc(all, func(a, b Problem) int { return strings.Compare(a.String(), b.String()) })
	all = slices.Compact(all)
	return all[:min(len(all), maxProblems)]
}

func leafProblems(e *jsonschema.ValidationError) []Problem {
	path := instancePath(e.InstanceLocation)
	var names []string
	message := ""
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		names, message = k.Missing, "is required"
	case *kind.DependentRequired:
		names, message = k.Missing, "is required beside '"+k.Prop+"'"
	case *kind.AdditionalProperties:
		names, message = k.Properties, "is not allowed"
	default:
		return []Problem{{Path: path, Message: problemText(e.ErrorKind)}}
	}
	var all []Problem
	for _, name := range names {
		all = append(all, Problem{Path: joinPath(path, name), Message: message})
	}
	return all
}

// problemText names the rule that is broken. It shows values of the schema, never
// of the data.
func problemText(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ") + ", and is " + k.Got
	case *kind.Enum:
		return "must be one of " + cut(string(mustJSON(k.Want)), 200)
	case *kind.Const:
		return "must be " + cut(string(mustJSON(k.Want)), 200)
	case *kind.Pattern:
		return "must match the pattern " + cut(k.Want, 200)
	case *kind.Format:
		return "must be of the format " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d keys", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d keys", k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("must have no equal items; those at %d and %d are", k.Duplicates[0], k.Duplicates[1])
	}
	return numberText(k)
}

func numberText(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "must be greater than " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "must be less than " + k.Want.RatString()
	case *kind.MultipleOf:
		return "must be a multiple of " + k.Want.RatString()
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Not:
		return "must not match a schema that it matches ('not')"
	case *kind.AnyOf:
		return "matches none of the allowed schemas ('anyOf')"
	case *kind.OneOf:
		if len(k.Subschemas) > 0 {
			return "matches more than one of the allowed schemas ('oneOf')"
		}
		return "matches none of the allowed schemas ('oneOf')"
	}
	return "breaks the rule '" + strings.Join(k.KeywordPath(), "/") + "'"
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("a value of the schema")
	}
	return b
}

func instancePath(location []string) string {
	path := ""
	for _, name := range location {
		path = joinPath(path, name)
	}
	return path
}

func joinPath(path, name string) string {
	if _, ok := arrayIndex(name); ok && path != "" {
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
