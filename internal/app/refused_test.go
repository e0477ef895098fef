package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/internal/app"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

// TestRefusedByTemporal runs a tool whose plan is larger than a Temporal with small limits
// takes: its run fails at once and says why, and the runs of others go on.
func TestRefusedByTemporal(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Options{TemporalSettings: map[string]string{"limit.blobSize.error": "16384", "limit.blobSize.warn": "8192"}})
	n := startParts(t, configFor(t, stack), app.Parts{Server: true, Worker: true})
	up := startUpstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	other := n.tool(t, fmt.Sprintf(`{"id":"other","steps":[{"id":"a","config":{"url":"%s"}}]}`, up.URL))
	var steps []string
	for i := range 200 {
		steps = append(steps, fmt.Sprintf(`{"id":"%s%d","config":{"url":"%s"}}`, strings.Repeat("s", 90), i, up.URL))
	}
	large := n.tool(t, `{"id":"large","steps":[`+strings.Join(steps, ",")+`]}`)
	if _, err := n.api.Run(t.Context(), large, v1.RunRequest{RunID: "large", Options: &v1.RunOptions{Async: true}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if run := n.run(t, other, v1.RunRequest{}); run.Status != "success" || time.Since(began) > stacktest.Promised(5*time.Second) {
		t.Errorf("another run is %s after %s", run.Status, time.Since(began))
	}
	if run := n.waitFinal(t, "large", stacktest.Promised(5*time.Second)); run.Status != "failed" || !strings.Contains(run.Error, "too many steps") {
		t.Errorf("the run is %s: %s", run.Status, run.Error)
	}
}
