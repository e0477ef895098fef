package cli

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// demoRun is the states that the demo's run goes through.
func demoRun() []v1.Run {
	done := state("success", nil)
	done.Data = json.RawMessage(`{"records":20000,"revenueCents":629910786,"currency":"EUR","topCustomers":[
		{"name":"Mara Lund","orders":233,"revenueCents":7700123},{"name":"Priya Fontaine-Hoffmansdottir","orders":219,"revenueCents":7600005}]}`)
	return []v1.Run{
		state("running", nil),
		state("running", &v1.Progress{Step: "customers", Page: 1, Items: 100, Bytes: 9_800}),
		state("running", &v1.Progress{Step: "orders", Page: 42, Items: 4200, Bytes: 756_000}),
		done,
	}
}

func TestDemoSavesRunsAndShows(t *testing.T) {
	t.Parallel()
	s := &service{states: demoRun()}
	api := client.New(s.start(t)+"/v1", "secret-key")
	var out strings.Builder
	if err := RunDemo(t.Context(), &out, false, api, "http://127.0.0.1:4010"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  Running demo-orders: 3 steps, run r1\n",
		"  orders        page     42     4,200 records  756.0 kB",
		"  Done in 3.4 s: 20,000 orders in 202 pages, each stored as it came\n",
		"  Revenue             6,299,107.86 EUR\n",
		"  Top customers          77,001.23 EUR  Mara Lund           233 orders\n",
		"                         76,000.05 EUR  Priya Fontaine-Ho…  219 orders\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo does not write %q:\n%s", want, out.String())
		}
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if s.updates != 0 || s.tools[DemoToolID].Steps[1].Config.URL != "http://127.0.0.1:4010/orders" || !s.request.Options.Async {
		t.Errorf("the tool was saved as %+v, run as %+v", s.tools[DemoToolID], s.request.Options)
	}

	s.asked = 0
	if err := RunDemo(t.Context(), &out, true, api, "http://127.0.0.1:5020"); err != nil {
		t.Fatal(err)
	}
	if s.updates != 1 || s.tools[DemoToolID].Steps[0].Config.URL != "http://127.0.0.1:5020/customers" {
		t.Errorf("a second demo updated the tool %d times, to %+v", s.updates, s.tools[DemoToolID])
	}
}

func TestDemoReportsAFailedRun(t *testing.T) {
	t.Parallel()
	failed := state("failed", nil)
	failed.Error = "Step 2 (orders): upstream is gone"
	s := &service{states: []v1.Run{failed}}
	err := RunDemo(t.Context(), &strings.Builder{}, true, client.New(s.start(t)+"/v1", "secret-key"), "http://127.0.0.1:4010")
	if err == nil || !strings.Contains(err.Error(), "failed: Step 2 (orders): upstream is gone") {
		t.Errorf("the demo gives %v", err)
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	WriteReady(&out, false, Ready{BaseURL: "http://127.0.0.1:8080/v1", AdminKey: "sw_abc", DemoTool: true, Upstream: "http://127.0.0.1:4010"})
	want := `  stepwell is ready

  API            http://127.0.0.1:8080/v1
  Demo upstream  http://127.0.0.1:4010
  Admin key      sw_abc

  Try it:

    curl -s -X POST http://127.0.0.1:8080/v1/tools/demo-orders/run \
      -H "Authorization: Bearer sw_abc"

  Ctrl-C stops everything.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	WriteReady(&out, false, Ready{BaseURL: "http://127.0.0.1:8080/v1"})
	if !strings.Contains(out.String(), "shown at the first start") || !strings.Contains(out.String(), `Bearer $STEPWELL_API_KEY"`) {
		t.Errorf("without a key:\n%s", out.String())
	}
}
