package store

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"stepwell"
)

// called records a run with a callback and ends it; the id is of the callback.
func (ts *testStore) called(id string, status stepwell.RunStatus) string {
	ts.t.Helper()
	ts.run(id, "", func(r *stepwell.Run) { r.Options.WebhookURL = "HTTPS://receiver/?token=x" })
	f := stepwell.Finish{Org: ts.org, Run: id, Status: status}
	if status != stepwell.RunSuccess {
		f.Error = "why"
	} else {
		f.Result = &stepwell.Result{Body: json.RawMessage(`1`), Bytes: 1}
	}
	ended := must[stepwell.Ended](ts.t)(ts.FinishRun(ts.t.Context(), f))
	if len(ended.Deliveries) != 1 {
		ts.t.Fatalf("%s has %d callbacks", id, len(ended.Deliveries))
	}
	again := must[stepwell.Ended](ts.t)(ts.FinishRun(ts.t.Context(), f))
	if again.Finished || len(again.Deliveries) != 0 {
		ts.t.Fatalf("%s ended twice: %+v", id, again)
	}
	return ended.Deliveries[0]
}

// TestDeliveryStates walks a callback through attempts of the schedule and redeliveries.
func TestDeliveryStates(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	soon := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	type attempt struct {
		round, number, status int
		error                 string
		ends, again           bool // again: the redelivery of the round is asked for first
		next                  time.Time
	}
	for name, test := range map[string]struct {
		attempts  []attempt
		status    stepwell.DeliveryStatus
		scheduled bool
		next      time.Time
	}{
		"none":               {nil, "pending", true, time.Time{}},
		"delivered":          {[]attempt{{round: 1, number: 1, status: 200}}, "delivered", false, time.Time{}},
		"waits":              {[]attempt{{round: 1, number: 1, error: "no", next: soon}}, "pending", true, soon},
		"recorded twice":     {[]attempt{{round: 1, number: 1, error: "no", next: soon}, {round: 1, number: 1, status: 200}}, "pending", true, soon},
		"given up":           {[]attempt{{round: 1, number: 1, status: 410, error: "gone", ends: true}}, "failed", false, time.Time{}},
		"asked again":        {[]attempt{{round: 1, number: 1, error: "no", ends: true}, {round: 2, number: 1, status: 200, again: true}}, "delivered", false, time.Time{}},
		"failed again":       {[]attempt{{round: 1, number: 1, error: "no", ends: true}, {round: 2, number: 1, error: "no", again: true}}, "failed", false, time.Time{}},
		"again meanwhile":    {[]attempt{{round: 1, number: 1, error: "no", next: soon}, {round: 2, number: 1, error: "no", again: true}}, "pending", true, soon},
		"taken meanwhile":    {[]attempt{{round: 1, number: 1, error: "no", next: soon}, {round: 2, number: 1, status: 204, again: true}}, "delivered", false, time.Time{}},
		"gone meanwhile":     {[]attempt{{round: 1, number: 1, error: "no", next: soon}, {round: 2, number: 1, status: 410, error: "gone", ends: true, again: true}}, "failed", false, time.Time{}},
		"once more, in vain": {[]attempt{{round: 1, number: 1, status: 200}, {round: 2, number: 1, error: "no", again: true}}, "delivered", false, time.Time{}},
	} {
		id := ts.called(name, stepwell.RunSuccess)
		for _, a := range test.attempts {
			if a.again {
				d := must[*stepwell.Delivery](t)(ts.Redeliver(t.Context(), ts.org, id))
				if d.Rounds != a.round || d.Status == stepwell.DeliveryFailed {
					t.Errorf("%s: asked for again it is %+v", name, d)
				}
			}
			ts.noError(ts.RecordAttempt(t.Context(), ts.org, id, stepwell.DeliveryAttempt{Round: a.round, Number: a.number,
				StartedAt: time.Now(), Duration: time.Millisecond, Status: a.status, Error: a.error}, a.ends, a.next))
		}
		d := must[*stepwell.Delivery](t)(ts.RunDelivery(t.Context(), ts.org, name))
		if d.ID != id || d.Status != test.status || d.Scheduled != test.scheduled || test.status != "pending" && !d.NextAttemptAt.IsZero() ||
			!test.next.IsZero() && !d.NextAttemptAt.Equal(test.next) || d.URL != "HTTPS://receiver/?token=x" {
			t.Errorf("%s: the callback is %+v", name, d)
		}
	}
	_, err := ts.Delivery(t.Context(), "another organization", ts.called("mine", stepwell.RunAborted))
	if stepwell.KindOf(err) != stepwell.KindNotFound {
		t.Errorf("another organization's callback: %v", err)
	}
}

// TestDueRounds finds what nobody started, and callbacks whose workflow seems to be gone.
func TestDueRounds(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	due := func() []Round {
		return must[[]Round](t)(ts.DueRounds(t.Context(), 10*time.Second, time.Minute, 100))
	}
	id := ts.called("r", stepwell.RunFailed)
	if got := due(); len(got) != 0 {
		t.Errorf("a new one is due: %v", got)
	}
	must[*stepwell.Delivery](t)(ts.Redeliver(t.Context(), ts.org, id))
	ts.exec(`UPDATE deliveries SET asked_at = asked_at - interval '11 seconds'`)
	first, second := Round{ts.org, id, 1}, Round{ts.org, id, 2}
	if got := due(); !reflect.DeepEqual(got, []Round{first, second}) {
		t.Errorf("due are %v", got)
	}
	ts.noError(ts.MarkRounds(t.Context(), []Round{second})) // not before the first
	if got := due(); len(got) != 2 {
		t.Errorf("due are %v", got)
	}
	ts.noError(ts.MarkRounds(t.Context(), []Round{first, second}))
	if got := due(); len(got) != 0 {
		t.Errorf("started ones are due: %v", got)
	}
	ts.exec(`UPDATE deliveries SET next_attempt_at = next_attempt_at - interval '2 minutes'`)
	if got := due(); !reflect.DeepEqual(got, []Round{first, second}) {
		t.Errorf("late are %v", got)
	}
	if age := must[time.Duration](t)(ts.OldestDelivery(t.Context())); age <= 0 || age > time.Minute {
		t.Errorf("the oldest is %s old", age)
	}
}

// TestRetentionOfCallbacks keeps a run while its callback is pending; they go together.
func TestRetentionOfCallbacks(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	id := ts.called("r", stepwell.RunSuccess)
	ts.age(2*month, "r")
	if n := ts.deleteExpired(); n != 0 {
		t.Fatal("a run went whose callback is pending")
	}
	ts.noError(ts.RecordAttempt(t.Context(), ts.org, id, stepwell.DeliveryAttempt{Round: 1, Number: 1, StartedAt: time.Now(), Status: 200}, false, time.Time{}))
	ts.noError(ts.MarkRounds(t.Context(), []Round{{ts.org, id, 1}}))
	must[*stepwell.Delivery](t)(ts.Redeliver(t.Context(), ts.org, id))
	if n := ts.deleteExpired(); n != 0 {
		t.Fatal("a run went whose callback is to be sent again")
	}
	ts.noError(ts.MarkRounds(t.Context(), []Round{{ts.org, id, 2}}))
	if n := ts.deleteExpired(); n != 1 {
		t.Fatalf("%d runs went", n)
	}
	if _, err := ts.Redeliver(t.Context(), ts.org, id); stepwell.KindOf(err) != stepwell.KindNotFound {
		t.Errorf("a callback that went is sent again: %v", err)
	}
	if _, err := ts.Delivery(t.Context(), ts.org, id); stepwell.KindOf(err) != stepwell.KindNotFound {
		t.Errorf("the callback stayed: %v", err)
	}
	// An attempt that was on its way meanwhile is not stored, and no error.
	ts.noError(ts.RecordAttempt(t.Context(), ts.org, id, stepwell.DeliveryAttempt{Round: 1, Number: 2, StartedAt: time.Now(), Status: 200}, false, time.Time{}))
}

// TestWebhookSecrets makes the first secret once, whoever asks, and expires the others.
func TestWebhookSecrets(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	parallel(10, func(int) {
		if all, err := ts.WebhookSecrets(t.Context(), ts.org); err != nil || len(all) != 1 || len(all[0].Key) != 32 {
			t.Errorf("%d secrets (%v)", len(all), err)
		}
	})
	first := must[[]stepwell.WebhookSecret](t)(ts.WebhookSecrets(t.Context(), ts.org))[0]
	made := must[*stepwell.WebhookSecret](t)(ts.RotateWebhookSecret(t.Context(), ts.org))
	all := must[[]stepwell.WebhookSecret](t)(ts.WebhookSecrets(t.Context(), ts.org))
	if len(all) != 2 || all[0].ID != made.ID || all[1].ID != first.ID || !all[0].ExpiresAt.IsZero() || all[1].ExpiresAt.IsZero() || string(all[1].Key) != string(first.Key) {
		t.Fatalf("the secrets are %+v", all)
	}
	ts.exec(`UPDATE webhook_secrets SET expires_at = expires_at - interval '1 day'`)
	if all = must[[]stepwell.WebhookSecret](t)(ts.WebhookSecrets(t.Context(), ts.org)); len(all) != 1 {
		t.Errorf("an expired secret is valid: %+v", all)
	}
}

// TestChainInStore records the next run with the end of the one before, once, and says so
// when its id is taken.
func TestChainInStore(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	next := ts.tool("next")
	finish := func(parent string, change func(*stepwell.Chain)) stepwell.Ended {
		ts.run(parent, `{"token":"secret"}`, func(r *stepwell.Run) { r.Options.WebhookURL = "tool:next" })
		c := &stepwell.Chain{Run: stepwell.Run{OrgID: ts.org, ID: stepwell.ChainedRunID(parent), ToolID: "next", ToolVersion: next.VersionKey, Inputs: json.RawMessage(`{}`),
			RequestSource: stepwell.SourceChain, Mode: stepwell.ModeProd, TraceID: "trace", UserID: "user", ParentRunID: parent, Link: 2}, Credentials: json.RawMessage(`{"token":"secret"}`)}
		if change != nil {
			change(c)
		}
		f := stepwell.Finish{Org: ts.org, Run: parent, Status: stepwell.RunSuccess, Result: &stepwell.Result{Body: json.RawMessage(`1`), Bytes: 1}, Chain: c}
		ended := must[stepwell.Ended](t)(ts.FinishRun(t.Context(), f))
		if again := must[stepwell.Ended](t)(ts.FinishRun(t.Context(), f)); again.Finished || again.Chained {
			t.Errorf("%s ended twice", parent)
		}
		return ended
	}
	if ended := finish("a", nil); !ended.Chained || len(ended.Warnings) != 0 {
		t.Errorf("%+v", ended)
	}
	child := must[*stepwell.Run](t)(ts.ChainedRun(t.Context(), ts.org, "a"))
	if child == nil || child.ParentRunID != "a" || child.Link != 2 || child.Status != stepwell.RunRunning {
		t.Fatalf("the next run is %+v", child)
	}
	if o := must[*stepwell.OpenRun](t)(ts.OpenRun(t.Context(), ts.org, child.ID)); string(o.Credentials) != `{"token":"secret"}` {
		t.Errorf("the next run has the credentials %s", o.Credentials)
	}
	ts.run(stepwell.ChainedRunID("b"), "")
	if ended := finish("b", nil); ended.Chained || len(ended.Warnings) != 1 || !ended.Finished {
		t.Errorf("with a taken id: %+v", ended)
	}
	ended := finish("c", func(c *stepwell.Chain) {
		c.Run.ToolID, c.Run.ToolVersion, c.Failed, c.Run.Options.WebhookURL = "never-was", 0, "Tool not found", "http://receiver/"
	})
	child = must[*stepwell.Run](t)(ts.ChainedRun(t.Context(), ts.org, "c"))
	if ended.Chained || len(ended.Deliveries) != 1 || child.Status != stepwell.RunFailed || child.Error != "Tool not found" || child.ToolID != "never-was" {
		t.Errorf("%+v, and the next run is %+v", ended, child)
	}
	shown := must[*stepwell.Tool](t)(ts.ToolByKey(t.Context(), ts.org, child.ToolVersion))
	if shown.ID != "never-was" || len(shown.Steps) != 0 {
		t.Errorf("the run of a tool that never was shows %+v", shown)
	}
	if _, err := ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: "never-was", OutputTransform: "x"}); err != nil {
		t.Errorf("its id is not free: %v", err)
	}
}
