package app_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	v1 "stepwell/api/v1"
	"stepwell/client"
	"stepwell/internal/app"
	"stepwell/internal/config"
	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
	"stepwell/workflows"
)

// receiver is an address that callbacks go to. It checks every signature.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []received
	answer func(n int, w http.ResponseWriter) // of the n-th call, from 1; nil answers 204
}

type received struct {
	at   time.Time
	id   string
	body []byte
	head http.Header
	v1.Callback
}

func startReceiver(t *testing.T, answer func(n int, w http.ResponseWriter)) *receiver {
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		got := received{at: time.Now(), id: req.Header.Get("webhook-id"), body: body, head: req.Header}
		if err = errors.Join(err, json.Unmarshal(body, &got.Callback)); err != nil || req.Method != "POST" || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("a callback is %s %s: %v", req.Method, body, err)
		}
		r.mu.Lock()
		r.calls = append(r.calls, got)
		n := len(r.calls)
		r.mu.Unlock()
		if r.answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		r.answer(n, w)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// wait waits for so many calls and gives them.
func (r *receiver) wait(t *testing.T, calls int) []received {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if n := len(r.got()); n < calls {
			return fmt.Errorf("%d calls, want %d", n, calls)
		}
		return nil
	})
	return r.got()
}

// delivery waits until the callback of a run has a status.
func (n *node) delivery(t *testing.T, run, status string) v1.Delivery {
	t.Helper()
	var d v1.Delivery
	eventually(t, 30*time.Second, func() error {
		all, err := n.api.Deliveries(t.Context(), run)
		if err != nil || len(all) != 1 {
			return fmt.Errorf("%d deliveries: %w", len(all), err)
		}
		if d = all[0]; d.Status != status {
			return fmt.Errorf("the delivery is %s: %+v", d.Status, d.Attempts)
		}
		return nil
	})
	return d
}

func calls(webhook string) v1.RunRequest {
	return v1.RunRequest{Options: &v1.RunOptions{WebhookURL: webhook}}
}

const one = `{"id":"one","outputTransform":"(s) => ({n: 1})"}`

// scaled are settings whose callbacks are repeated sooner.
func scaled(scale float64) *workflows.Settings {
	s := workflows.DefaultSettings()
	s.DeliveryScale = scale
	return &s
}

// startScaled starts a node whose callbacks are repeated soon.
func startScaled(t *testing.T, scale float64, change func(*config.Config)) *node {
	t.Helper()
	stack := stacktest.Start(t, devstack.Options{})
	cfg := configFor(t, stack)
	if change != nil {
		change(&cfg)
	}
	n := startParts(t, cfg, app.Parts{Server: true, Worker: true, Settings: scaled(scale)})
	n.stack = stack
	return n
}

// TestCallback reports the ends of runs, each once, with signatures that the public
// library takes, by each valid secret.
func TestCallback(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	r := startReceiver(t, nil)
	n.tool(t, one)
	n.tool(t, `{"id":"bad","outputTransform":"(s) => { throw new Error('no') }"}`)
	n.tool(t, `{"id":"big","webhookUrl":"`+r.URL+`/own?token=s3cret","outputTransform":"(s) => 'x'.repeat(300000)"}`)
	n.tool(t, `{"id":"hidden","responseFilters":[{"target":"KEYS","pattern":"password","action":"REMOVE"}],"outputTransform":"(s) => ({a: 1, password: 2})"}`)
	old, err := n.api.WebhookSecrets(t.Context())
	if err != nil || len(old) != 1 || !old[0].ExpiresAt.IsZero() {
		t.Fatalf("an organization starts with %+v (%v)", old, err)
	}
	newer, err := n.api.CreateWebhookSecret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := n.api.WebhookSecrets(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != newer.ID || all[1].Secret != old[0].Secret {
		t.Fatalf("the secrets are %+v (%v)", all, err)
	}
	if left := time.Until(all[1].ExpiresAt.Time); left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("the older secret expires in %s", left)
	}
	want := map[string]string{
		n.run(t, "one", calls(r.URL)).RunID:            `"success":true,"data":{"n":1}}`,
		n.run(t, "bad", calls(r.URL)).RunID:            `"success":false}`,
		n.run(t, "big", v1.RunRequest{}).RunID:         `/results"`,
		n.run(t, "hidden", calls(r.URL+"/?x=1")).RunID: `"data":{"a":1}}`,
	}
	got := r.wait(t, len(want))
	for _, call := range got {
		if !strings.Contains(string(call.body), want[call.RunID]) || want[call.RunID] == "" {
			t.Errorf("the callback of %s is %.500s", call.RunID, call.body)
		}
		delete(want, call.RunID)
		for _, secret := range []string{old[0].Secret, newer.Secret} {
			hook, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				t.Fatal(err)
			}
			if err := hook.Verify(call.body, call.head); err != nil {
				t.Errorf("the signature of %s: %v", call.RunID, err)
			}
		}
		d := n.delivery(t, call.RunID, "delivered")
		if d.WebhookID != call.id || len(d.Attempts) != 1 || d.Attempts[0].ResponseStatus != 204 || d.Attempts[0].Error != "" || !d.NextAttemptAt.IsZero() || strings.Contains(d.URL, "s3cret") {
			t.Errorf("the delivery is %+v", d)
		}
		if run, err := n.api.GetRun(t.Context(), call.RunID); err != nil || run.Metadata.CompletedAt != call.Metadata.CompletedAt || run.Status != call.Status {
			t.Errorf("the callback says %s, and the run %s (%v)", call.Status, run.Status, err)
		}
	}
	if _, err := n.api.Deliveries(t.Context(), n.run(t, "one", v1.RunRequest{}).RunID); err != nil {
		t.Fatal(err)
	}
	if n := len(r.got()); n != 4 {
		t.Errorf("%d callbacks of 4 runs", n)
	}
}

// TestCallbackOfCancel reports a cancelled run without data.
func TestCallbackOfCancel(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	r := startReceiver(t, nil)
	up := startUpstream(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			<-req.Context().Done()
			return
		}
		fmt.Fprint(w, `{}`)
	})
	n.tool(t, fmt.Sprintf(`{"id":"slow","steps":[{"id":"a","config":{"url":"%[1]s/"}},{"id":"b","config":{"url":"%[1]s/slow?run=slow"}}]}`, up.URL))
	req := calls(r.URL)
	req.Options.Async = true
	run := n.run(t, "slow", req)
	eventually(t, 10*time.Second, func() error {
		if len(up.of("slow")) == 0 {
			return errors.New("the slow request has not begun")
		}
		return nil
	})
	if _, err := n.api.Cancel(t.Context(), run.RunID); err != nil {
		t.Fatal(err)
	}
	got := r.wait(t, 1)[0]
	if got.Status != "aborted" || got.Success || got.Data != nil || got.Error != "Run cancelled by user" {
		t.Errorf("the callback is %s", got.body)
	}
	n.delivery(t, run.RunID, "delivered")
}

// TestCallbackRetries walks through the schedule, a Retry-After, the ends that there are
// and redeliveries: always one webhook-id.
func TestCallbackRetries(t *testing.T) {
	t.Parallel()
	n := startScaled(t, 0.0001, nil)
	n.tool(t, one)
	t.Run("gives up", func(t *testing.T) {
		t.Parallel()
		r := startReceiver(t, func(call int, w http.ResponseWriter) {
			switch call {
			case 1:
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(http.StatusFound)
			case 2:
				w.WriteHeader(http.StatusBadRequest)
			case 9:
			default:
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		run := n.run(t, "one", calls(r.URL+"/?password=hidden"))
		d := n.delivery(t, run.RunID, "failed")
		got := r.got()
		if len(got) != 8 || len(d.Attempts) != 8 || d.Attempts[0].ResponseStatus != 302 || d.Attempts[1].ResponseStatus != 400 || d.Attempts[7].Error == "" {
			t.Fatalf("%d calls, the delivery is %+v", len(got), d)
		}
		for i, wait := range []time.Duration{0, 500 * time.Microsecond, 30 * time.Millisecond, 180 * time.Millisecond, 720 * time.Millisecond, 1800 * time.Millisecond, 3600 * time.Millisecond, 3600 * time.Millisecond} {
			if got[i].id != d.WebhookID {
				t.Errorf("attempt %d has the id %s, not %s", i+1, got[i].id, d.WebhookID)
			}
			if i > 0 && got[i].at.Sub(got[i-1].at) < wait {
				t.Errorf("attempt %d came %s after the one before, too soon", i+1, got[i].at.Sub(got[i-1].at))
			}
		}
		again, err := n.api.Redeliver(t.Context(), d.ID)
		if err != nil || again.ID != d.ID || again.Status != "pending" {
			t.Fatalf("%+v (%v)", again, err)
		}
		d = n.delivery(t, run.RunID, "delivered")
		if last := r.got()[8]; last.id != d.WebhookID || len(d.Attempts) != 9 {
			t.Errorf("the redelivery has the id %s, the delivery is %+v", last.id, d)
		}
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		r := startReceiver(t, func(call int, w http.ResponseWriter) { w.WriteHeader(http.StatusGone) })
		d := n.delivery(t, n.run(t, "one", calls(r.URL)).RunID, "failed")
		if len(r.got()) != 1 || len(d.Attempts) != 1 {
			t.Errorf("%d calls after a 410", len(r.got()))
		}
		if _, err := n.api.Redeliver(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		r.wait(t, 2)
		n.delivery(t, d.RunID, "failed")
	})
	t.Run("waits", func(t *testing.T) {
		t.Parallel()
		r := startReceiver(t, func(call int, w http.ResponseWriter) {
			switch call {
			case 1:
				w.Header().Set("Retry-After", "2")
				w.WriteHeader(http.StatusTooManyRequests)
			case 2:
				w.Header().Set("Retry-After", time.Now().Add(3*time.Second).UTC().Format(http.TimeFormat))
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		run := n.run(t, "one", calls(r.URL))
		n.delivery(t, run.RunID, "delivered")
		got := r.got()
		if len(got) != 3 || got[1].at.Sub(got[0].at) < 2*time.Second || got[2].at.Sub(got[1].at) < 1900*time.Millisecond {
			t.Errorf("%d calls, the second after %s, the third after %s", len(got), got[1].at.Sub(got[0].at), got[2].at.Sub(got[1].at))
		}
	})
	t.Run("redelivered while pending", func(t *testing.T) {
		t.Parallel()
		r := startReceiver(t, func(call int, w http.ResponseWriter) {
			if call == 1 {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		run := n.run(t, "one", calls(r.URL))
		r.wait(t, 1)
		d := n.delivery(t, run.RunID, "pending")
		if _, err := n.api.Redeliver(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		n.delivery(t, run.RunID, "delivered")
		if got := r.got(); len(got) != 2 || got[1].id != d.WebhookID {
			t.Errorf("%d calls", len(got))
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		run := n.run(t, "one", calls("http://user:pass@127.0.0.1:1/x?token=s3cret"))
		d := n.delivery(t, run.RunID, "failed")
		text, err := json.Marshal(d)
		if err != nil || strings.Contains(string(text), "s3cret") || strings.Contains(string(text), "pass") || !strings.Contains(d.Attempts[0].Error, "refused") {
			t.Errorf("the delivery is %s", text)
		}
	})
	if _, err := n.api.Redeliver(t.Context(), "none"); client.Status(err) != http.StatusNotFound {
		t.Errorf("a redelivery of nothing: %v", err)
	}
}
