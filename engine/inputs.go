package engine

import (
	"encoding/json"
	"fmt"
)

// FitInputs checks inputs (an object) against a tool's inputSchema, which may be nil, and
// gives them with the schema's defaults filled in. That they do not fit is a StepError
// whose text lists each path.
func FitInputs(schema *Schema, inputs json.RawMessage) (json.RawMessage, error) {
	if schema == nil {
		return inputs, nil
	}
	fitted, err := schema.ApplyDefaults(inputs)
	if err != nil {
		return nil, &StepError{Message: fmt.Sprintf("The defaults of the tool's inputSchema cannot be filled in: %v", err)}
	}
	if problems := schema.Validate(fitted); len(problems) > 0 {
		message := "The inputs do not match the tool's inputSchema"
		for i, p := range problems {
			message += map[bool]string{true: ": ", false: "; "}[i == 0] + p.String()
		}
		return nil, &StepError{Message: message}
	}
	return fitted, nil
}
