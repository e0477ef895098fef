package app_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app/dev"
	"stepwell/internal/config"
	"stepwell/internal/secret"
	"stepwell/store"
)

// TestKeysRotateUnderRequests changes the key ring of a running installation and seals
// everything again, while 50 requests a second use and change secrets.
func TestKeysRotateUnderRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	first, second := "first:"+secret.NewKey(), "second:"+secret.NewKey()
	write(first)
	n := startNode(t, func(c *config.Config) { c.EncryptionKeys, c.KeysFile = "", file })
	n.system(t, v1.SystemCreate{ID: "crm", URL: echo(t), Credentials: map[string]string{"token": "crm-token"}})
	tool := n.tool(t, `{"steps":[{"id":"a","config":{"url":"<<crm_url>>","systemId":"crm","headers":{"A":"<<crm_token>>","B":"<<(s) => s.credentials.own>>"}}}]}`)

	var wg sync.WaitGroup
	var requests atomic.Int64
	stop := make(chan struct{})
	for i := range 5 {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				requests.Add(1)
				if i == 0 {
					if _, err := n.api.UpdateSystem(t.Context(), "crm", "", v1.SystemUpdate{Name: v1.Some("CRM")}); err != nil {
						t.Error(err)
					}
					continue
				}
				run, err := n.api.Run(t.Context(), tool, v1.RunRequest{Credentials: json.RawMessage(`{"own":"run-time"}`)})
				if err != nil || run.Status != "success" || !strings.Contains(string(run.Data), `"a":"crm-token"`) || !strings.Contains(string(run.Data), `"b":"run-time"`) {
					t.Errorf("%+v %v", run, err)
				}
			}
		})
	}
	cfg := n.cfg
	rotate := func(newest string) (string, error) {
		var out bytes.Buffer
		err := dev.RotateKeys(t.Context(), cfg, newest, t.TempDir(), &out, zap.NewNop())
		return out.String(), err
	}
	if _, err := rotate("second"); err == nil || !strings.Contains(err.Error(), `the first key of the ring is "first"`) {
		t.Errorf("a key that is not in the ring: %v", err)
	}
	if _, err := rotate(""); err == nil || !strings.Contains(err.Error(), "name the new key") {
		t.Errorf("no key named: %v", err)
	}
	write(second + "," + first)
	out, err := rotate("second")
	if err != nil || !strings.Contains(out, "done: every secret is sealed under second") {
		t.Errorf("%v\n%s", err, out)
	}
	rows := must[v1.List[v1.AuditEntry]](t)(n.api.ListAudit(t.Context(), client.Page{Limit: 100})) // the requests beside it write theirs, too
	if !slices.ContainsFunc(rows.Data, func(e v1.AuditEntry) bool {
		return e.Action == "encryption_key.rotate" && e.Target == "second" && e.UserID == "command line"
	}) {
		t.Errorf("the audit log has %+v", rows)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d requests beside it", requests.Load())

	ring, err := secret.ParseRing(second)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{URL: cfg.DatabaseURL, Sealer: ring, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if left, err := s.Reseal(t.Context(), func(store.Resealed) {}); left != 0 || err != nil {
		t.Errorf("%d values were not sealed again, %v", left, err)
	}
}
