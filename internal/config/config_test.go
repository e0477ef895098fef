package config

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of docs/operations.md anew")

// TestRefusals: a start with a variable that is unknown or malformed ends with a message
// that names it and says what it should be, and shows no value: it may be a secret.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ env, want string }{
		{"STEPWELL_LISTENS=:8080", "unknown variable STEPWELL_LISTENS; docs/operations.md"},
		{"STEPWELL_listen=:8080", "unknown variable STEPWELL_listen;"},
		{"STEPWELL_B=1 STEPWELL_A=2", "unknown variable STEPWELL_A, STEPWELL_B;"},
		{"STEPWELL_SYNC_WAIT=5", "STEPWELL_SYNC_WAIT: must be a duration such as 5m or 4s"},
		{"STEPWELL_SYNC_WAIT=-5m", "STEPWELL_SYNC_WAIT: must be a duration such as 5m or 4s"},
		{"STEPWELL_STOP_WAIT=0s", "STEPWELL_STOP_WAIT: must be a duration such as 5m or 4s"},
		{"STEPWELL_MAX_BODY=16MB", "STEPWELL_MAX_BODY: must be a whole number, 0 or more"},
		{"STEPWELL_MAX_BODY=-1", "STEPWELL_MAX_BODY: must be a whole number, 0 or more"},
		{"STEPWELL_WORKER_SLOTS=1e3", "STEPWELL_WORKER_SLOTS: must be a whole number, 0 or more"},
		{"STEPWELL_MAX_ANSWER=99999999999999999999", "STEPWELL_MAX_ANSWER: must be a whole number, 0 or more"},
		{"STEPWELL_API_KEY=too-short-secret", ""},
		{"STEPWELL_API_KEY=short-secret", "STEPWELL_API_KEY: must be 16 to 200 visible ASCII characters"},
		{"STEPWELL_API_KEY=a-secret-with-an-ü-in-it", "STEPWELL_API_KEY: must be 16 to 200 visible ASCII characters"},
		{"STEPWELL_ACTIVITIES=local", "STEPWELL_ACTIVITIES: must be auto or regular"},
		{"OTHER_LISTEN=1", ""},
		{"STEPWELL_URL=http://127.0.0.1/v1", ""}, // the command line's
	} {
		_, err := parse(strings.Split(test.env, " "))
		switch {
		case err == nil && test.want != "":
			t.Errorf("%s is taken", test.env)
		case err != nil && (test.want == "" || !strings.HasPrefix(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", test.env, err, test.want)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the message shows the value: %v", test.env, err)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	c, err := parse([]string{"STEPWELL_SYNC_WAIT=90s", "STEPWELL_EGRESS_ALLOW=a.example,10.0.0.0/8", "STEPWELL_MAX_BODY=5", "STEPWELL_LISTEN=:1", "STEPWELL_EGRESS="})
	if err != nil {
		t.Fatal(err)
	}
	if c.SyncWait != 90*time.Second || len(c.EgressAllow) != 2 || c.EgressAllow[1] != "10.0.0.0/8" || c.MaxBody != 5 || c.Listen != ":1" {
		t.Errorf("%+v", c)
	}
	if c.Egress != "private" || c.WorkerSlots != 200 || c.StopWait != 15*time.Second || c.MetricsListen != "" {
		t.Errorf("defaults: %+v", c)
	}
}

// TestDocumentedTable compares the table of docs/operations.md with the struct.
// `go test ./internal/config -update` writes it anew.
func TestDocumentedTable(t *testing.T) {
	t.Parallel()
	const path = "../../docs/operations.md"
	const begin, end = "<!-- configuration, generated -->\n", "<!-- end of configuration -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("docs/operations.md does not have the marks of the table")
	}
	want := "\n| variable | default | what it is |\n|---|---|---|\n"
	for _, row := range Table() {
		value := ""
		if row.Default != "" {
			value = "`" + row.Default + "`"
		}
		want += "| `" + row.Name + "` | " + value + " | " + row.Help + " |\n"
	}
	want += "\n"
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("docs/operations.md has another table: run `go test ./internal/config -update`\n%s", want)
	}
	if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
