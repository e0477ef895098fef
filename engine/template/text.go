package template

import (
	"bytes"
	"encoding/json"
)

// Text gives the text that a value has inside a template: a string as it is,
// objects and arrays as compact JSON, numbers and booleans as they are written,
// null and undefined (and no value at all) as `null`. Text that is no JSON is
// given back unchanged.
func Text(value json.RawMessage, undefined bool) string {
	value = bytes.TrimSpace(value)
	if undefined || len(value) == 0 {
		return "null"
	}
	switch value[0] {
	case '"':
		var s string
		if json.Unmarshal(value, &s) == nil {
			return s
		}
	case '{', '[':
		var b bytes.Buffer
		if json.Compact(&b, value) == nil {
			return b.String()
		}
	}
	return string(value)
}
