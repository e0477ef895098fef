package cli

import (
	"context"
	"strings"
	"testing"
)

// TestDoctor: a problem ends the command with 1, and is said with what to do.
func TestDoctor(t *testing.T) {
	t.Parallel()
	findings := []Finding{{Check: "postgres", Level: "ok", Summary: "Postgres answers"},
		{Check: "waiting runs", Level: "notice", Summary: "1 runs wait", Advice: "Nothing", Examples: []string{"run r1"}}}
	cmds := Commands{Doctor: func(_ context.Context, dir string) ([]Finding, error) { return findings, nil }}
	code, out, _ := use(t, nil, cmds, "", "doctor", "--data-dir", "x")
	if code != 0 || !strings.Contains(out, "run r1") || !strings.Contains(out, "→ Nothing") {
		t.Errorf("healthy: code %d, %s", code, out)
	}
	findings = append(findings, Finding{Check: "workers", Level: "problem", Summary: "No worker is alive", Advice: "Start a worker"})
	code, out, errs := use(t, nil, cmds, "", "doctor")
	if code != 1 || !strings.Contains(out, "Start a worker") || !strings.Contains(errs, "1 of 3") {
		t.Errorf("broken: code %d, %s, %s", code, out, errs)
	}
	if code, out, _ = use(t, nil, cmds, "", "doctor", "--json"); code != 1 || !strings.Contains(out, `"healthy": false`) {
		t.Errorf("as JSON: code %d, %s", code, out)
	}
}
