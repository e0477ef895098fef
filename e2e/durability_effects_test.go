package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"stepwell/api/v1"
)

// TestEffectsAreNotRepeated: what is not repeatable is sent once, or again under the
// same key when the step says that the upstream honours it.
func TestEffectsAreNotRepeated(t *testing.T) {
	t.Parallel()
	t.Run("push", func(t *testing.T) {
		t.Parallel()
		in := startDev(t, 0)
		outcomes, kills := in.push("push", 60)
		for key, n := range in.keys("push") {
			if n > 1 {
				t.Errorf("the request with the key %s was sent %d times", key, n)
			}
		}
		unknown := 0
		for _, o := range outcomes {
			if !o.Success && !strings.Contains(o.Error, "outcome unknown") {
				t.Errorf("an item failed otherwise: %s", o.Error)
			}
			if !o.Success {
				unknown++
			}
		}
		t.Logf("%d outcomes unknown after %d kills", unknown, kills)
		if unknown > kills {
			t.Errorf("%d outcomes are unknown after %d kills of dev", unknown, kills)
		}
	})
	t.Run("push-idempotent", func(t *testing.T) {
		t.Parallel()
		in := startDev(t, 0)
		outcomes, _ := in.push("push-idempotent", 60)
		for _, o := range outcomes {
			if !o.Success {
				t.Errorf("an item failed: %s", o.Error)
			}
		}
		if made := in.upstream.demo.Stats().Created; made != 60 {
			t.Errorf("%d orders were made, not 60", made)
		}
	})
}

// outcome is the envelope of one item.
type outcome struct {
	Success bool   `json:"success"`
	Error   string `json:"error"`
}

// push runs a tool that makes orders, kills dev twice and temporald and Postgres once
// meanwhile, and gives what became of the items, and how often dev was killed.
func (in *installation) push(tool string, items int) (outcomes []outcome, kills int) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r := random(in.t)
	p := pull{id: tool, pages: items}
	inputs := fmt.Appendf(nil, `{"run": %q, "items": %d, "delay": "40ms"}`, tool, items)
	if _, err := in.client.Run(ctx, tool, v1.RunRequest{RunID: p.id, Inputs: inputs, Options: &v1.RunOptions{Async: true}}); err != nil {
		in.t.Fatal("start a run: ", err)
	}
	for i, victim := range []part{partDev, partTemporald, partPostgres, partDev} {
		at := 1 + i*items/4 + r.IntN(items/4)
		if !in.upstream.awaitCount(ctx, p.id, at) {
			in.ended(p, 0)
			in.t.Fatalf("%d requests did not come", at)
		}
		time.Sleep(time.Duration(r.Int64N(int64(60 * time.Millisecond)))) // a random moment of the request
		in.kill(victim, r)
		if victim == partDev {
			kills++
		}
	}
	if run := in.ended(p, time.Minute); run.Status != "success" {
		in.t.Fatalf("run %s ended as %s: %s", p.id, run.Status, run.Error)
	}
	res, err := in.client.Results(ctx, p.id)
	if err != nil || res.Data == nil {
		in.t.Fatalf("results of run %s: %v", p.id, err)
	}
	if err := json.Unmarshal(res.Data.Data, &outcomes); err != nil || len(outcomes) != items {
		in.t.Fatalf("run %s has %d outcomes of %d (%v)", p.id, len(outcomes), items, err)
	}
	return outcomes, kills
}

// keys counts the requests of a run by their Idempotency-Key.
func (in *installation) keys(run string) map[string]int {
	keys := map[string]int{}
	for _, r := range in.upstream.requests(run) {
		keys[r.key]++
	}
	return keys
}
