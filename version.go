package stepwell

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// NextVersion gives the version of after, which follows before: minor + 1 when a run
// would do something else, patch + 1 when anything else changed, before's own when
// nothing did.
func NextVersion(before, after *Tool) string {
	var major, minor, patch int
	if _, err := fmt.Sscanf(before.Version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		major, minor, patch = 1, 0, 0
	}
	switch {
	case !same(behaviour(before), behaviour(after)):
		return fmt.Sprintf("%d.%d.0", major, minor+1)
	case !same(appearance(before), appearance(after)):
		return fmt.Sprintf("%d.%d.%d", major, minor, patch+1)
	}
	return before.Version
}

// behaviour is what a run of the tool depends on.
func behaviour(t *Tool) any {
	return []any{t.Steps, t.InputSchema, t.OutputSchema, t.OutputTransform, t.ResponseFilters}
}

func appearance(t *Tool) any {
	return []any{t.Name, t.Instruction, t.Folder, t.Archived, t.WebhookURL}
}

func same(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
