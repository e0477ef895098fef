package app_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "stepwell/api/v1"
	"stepwell/docs"
	"stepwell/internal/demo"
)

// startDemo starts the demo upstream; the result puts its address in place of the one
// that the documents name, which another process may have.
func startDemo(t *testing.T) (here func(string) string) {
	t.Helper()
	up, err := demo.NewServer(demo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := up.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(text string) string { return strings.ReplaceAll(text, "http://"+demo.DefaultAddr, up.URL()) }
}

// TestExamplesOfExpressions runs every tool of expressions.md.
func TestExamplesOfExpressions(t *testing.T) {
	t.Parallel()
	examples, err := docs.Tools()
	if err != nil || len(examples) < 10 {
		t.Fatal(len(examples), err)
	}
	n, here := startNode(t, nil), startDemo(t)
	t.Run("all", func(t *testing.T) {
		for _, x := range examples {
			t.Run(x.ID, func(t *testing.T) {
				t.Parallel()
				run := n.run(t, n.tool(t, here(string(x.Tool))), v1.RunRequest{})
				switch {
				case x.Error != "":
					if run.Status != "failed" || !strings.Contains(run.Error, x.Error) {
						t.Errorf("expressions.md:%d: the run is a %s with error %q, want %q", x.Line, run.Status, run.Error, x.Error)
					}
				case run.Status != "success":
					t.Errorf("expressions.md:%d: the run failed: %s", x.Line, run.Error)
				default:
					if d := docs.Match(x.Data, run.Data); d != "" {
						t.Errorf("expressions.md:%d: %s", x.Line, d)
					}
					if d := docs.Match(run.Data, x.Data); d != "" && !bytes.Contains(x.Data, []byte("…")) {
						t.Errorf("expressions.md:%d: there is more than the document shows: %s", x.Line, d)
					}
				}
			})
		}
	})
}

// TestReceiverOfAPI runs the receiver of api.md: it takes a callback, and refuses one that
// somebody else signed.
func TestReceiverOfAPI(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	program, err := docs.Receiver()
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, nil)
	n.tool(t, one)
	secrets, err := n.api.WebhookSecrets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := func(secret, says string) (address string) {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address = free.Addr().String()
		_, port, _ := net.SplitHostPort(address)
		free.Close()
		cmd := exec.CommandContext(t.Context(), python, "-c", program)
		cmd.Env = append(os.Environ(), "PORT="+port, "WEBHOOK_SECRET="+secret)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed; from here on it prints no more
			if got := out.String(); !strings.HasSuffix(got, says) || says == "" && got != "" {
				t.Errorf("the receiver printed %q", got)
			}
		})
		eventually(t, 20*time.Second, func() error {
			c, err := net.Dial("tcp", address)
			if err == nil {
				c.Close()
			}
			return err
		})
		return address
	}
	right := start(secrets[0].Secret, " success {'n': 1}\n")
	wrong := start("whsec_"+base64.StdEncoding.EncodeToString([]byte("another secret of somebody else")), "")
	n.delivery(t, n.run(t, "one", calls("http://"+right+"/")).RunID, "delivered")
	refused := n.run(t, "one", calls("http://"+wrong+"/")).RunID
	eventually(t, 20*time.Second, func() error {
		all, err := n.api.Deliveries(t.Context(), refused)
		if err != nil || len(all) != 1 || len(all[0].Attempts) == 0 || all[0].Attempts[0].ResponseStatus != 401 {
			return fmt.Errorf("not refused yet: %+v (%w)", all, err)
		}
		return nil
	})
}

// TestExamplesOfAPI types every call of api.md and of the README, in order, into a shell.
func TestExamplesOfAPI(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	examples, err := docs.Shell()
	if err != nil || len(examples) < 5 {
		t.Fatal(len(examples), err)
	}
	n, here := startNode(t, nil), startDemo(t)
	for _, x := range examples {
		eventually(t, 30*time.Second, func() error {
			answer := n.shell(t, here(x.Script))
			if x.Until.Field != "" && field(answer, x.Until.Field) != x.Until.Value {
				return fmt.Errorf("api.md:%d: %s is still %q", x.Line, x.Until.Field, field(answer, x.Until.Field))
			}
			if d := docs.Match(x.Answer, answer); d != "" {
				t.Errorf("api.md:%d: %s\n%.2000s", x.Line, d, answer)
			}
			return nil
		})
	}
	for i, script := range readmeScripts(t) {
		answer := n.shell(t, here(script))
		// The last call cancels a run that may have ended.
		if e := field(answer, "error"); e != "" && !strings.Contains(e, `"run_ended"`) && e != "Run cancelled by user" {
			t.Errorf("README, call %d: %s", i+1, e)
		}
	}
	if run := n.waitFinal(t, "my-first-run", 10*time.Second); run.Status != "success" && run.Status != "aborted" {
		t.Errorf("the README's run ended as %s: %s", run.Status, run.Error)
	}
}

// shell gives what a script of a document prints.
func (n *node) shell(t *testing.T, script string) json.RawMessage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Env = append(os.Environ(), "STEPWELL_URL="+n.url, "STEPWELL_API_KEY="+adminKey)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, problems.String(), script)
	}
	return out
}

// field is the text of a top-level field, "" when there is none.
func field(document json.RawMessage, name string) string {
	var object map[string]any
	if json.Unmarshal(document, &object) != nil {
		return ""
	}
	switch v := object[name].(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		text, _ := json.Marshal(v)
		return string(text)
	}
}

// readmeScripts are the calls of the README: its blocks with curl, a call each.
func readmeScripts(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var scripts []string
	for i, block := range strings.Split(string(text), "```") {
		block, isShell := strings.CutPrefix(block, "sh\n")
		if i%2 == 0 || !isShell || !strings.Contains(block, "curl") {
			continue
		}
		var script string
		for line := range strings.Lines(block) {
			if strings.HasPrefix(line, "curl") && script != "" {
				scripts = append(scripts, script)
				script = ""
			}
			script += line
		}
		scripts = append(scripts, script)
	}
	if len(scripts) < 4 {
		t.Fatalf("only %d calls are in the README", len(scripts))
	}
	return scripts
}
