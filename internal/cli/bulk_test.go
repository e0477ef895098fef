package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
)

// bulk answers a bulk request; the tool none has no runs.
func (s *service) bulk(r *http.Request) any {
	var in v1.BulkRequest
	_ = json.NewDecoder(r.Body).Decode(&in)
	if in.DryRun {
		return v1.Bulk{Data: v1.BulkOperation{Status: "dry_run", Total: 1234}}
	}
	return v1.Bulk{Data: v1.BulkOperation{ID: "b", Status: "running", Total: 3}}
}

func TestBulkCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"runs cancel --tool a --dry-run", 0, "1,234 runs", ""},
		{"runs rerun --status failed --dry-run", 0, "1,234 runs", ""},
		{"runs rerun --all", 1, `"failed": 1`, "1 of 3 runs failed"},
		{"runs rerun --tool a --from-step s", 2, "", "--from-step is for the rerun of one RUN"},
		{"runs cancel --tool a r1", 2, "", "unexpected argument"},
		{"runs cancel", 2, "", "RUN is missing"},
		{"runs cancel r1", 0, `"aborted"`, ""},
	} {
		code, out, errs := use(t, &service{}, Commands{}, "", strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: code %d, %q, %q", c.args, code, out, errs)
		}
	}
}
