package app_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

var stateOps = flag.Int("state.ops", 60, "operations of each of the 8 clients of TestStateIsLinearizable; 1,000 in the long form")

const stateClients = 8

// absent is the value of a key that is not there. Values of keys are their JSON.
const absent = ""

// onKey is what one operation did to one key: write it, read it, or, a run, write it if it
// is still what the run read.
type onKey struct {
	key   string
	read  bool
	write bool
	now   string // written
}

// stateModel is one key: a register with a compare-and-set.
var stateModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(onKey).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return absent },
	Step: func(state, input, output any) (bool, any) {
		in := input.(onKey)
		if in.read && state != output {
			return false, state
		}
		if in.write {
			state = in.now
		}
		return true, state
	},
}

// stateHistory collects what clients did.
type stateHistory struct {
	began           time.Time
	mu              sync.Mutex
	ops             []porcupine.Operation
	runs, discarded int
}

// did notes an operation on some keys.
func (h *stateHistory) did(clientID int, call time.Duration, reads map[string]string, ops ...onKey) {
	end := time.Since(h.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range ops {
		h.ops = append(h.ops, porcupine.Operation{ClientId: clientID, Input: op, Output: reads[op.key], Call: int64(call), Return: int64(end)})
	}
}

var stateKeys = []string{"a", "b", "c", "d"}

// TestStateIsLinearizable lets clients replace, reset and read one state while runs read
// and write it. Each key must behave as if everything had happened at one moment each: a
// run that wrote saw the value that stood there until then, one that was discarded says so.
func TestStateIsLinearizable(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.tool(t, `{"id":"shared","outputTransform":"(s) => { const p = s.persistedState, was = p[s.key]; if (s.value) p[s.key] = s.value; else delete p[s.key]; return was === undefined ? null : was }"}`)
	h := &stateHistory{began: time.Now()}
	var clients sync.WaitGroup
	for id := range stateClients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(id)))
			for op := range *stateOps {
				if err := n.stateOperation(t, h, id, op, random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d operations on keys in %s, %d runs, %d of them discarded", len(h.ops), time.Since(h.began).Round(time.Millisecond), h.runs, h.discarded)
	if h.runs == 0 || h.discarded == 0 || h.discarded == h.runs {
		t.Errorf("of %d runs %d were discarded: this shows nothing", h.runs, h.discarded)
	}
	switch porcupine.CheckOperationsTimeout(stateModel, h.ops, time.Minute) {
	case porcupine.Illegal:
		t.Error("the history is not linearizable")
	case porcupine.Unknown:
		t.Error("the check took too long")
	}
}

// stateOperation does one operation of a client.
func (n *node) stateOperation(t *testing.T, h *stateHistory, id, op int, random *rand.Rand) error {
	api := client.New(n.url, adminKey)
	value := fmt.Sprintf(`"%d.%d"`, id, op)
	call := time.Since(h.began)
	all := make([]onKey, len(stateKeys))
	for i, key := range stateKeys {
		all[i] = onKey{key: key, write: true}
	}
	switch dice := random.IntN(100); {
	case dice < 30: // some keys with a value of their own, the others gone
		values := map[string]json.RawMessage{}
		for i := range all {
			if random.IntN(3) > 0 {
				all[i].now = value
				values[all[i].key] = json.RawMessage(value)
			}
		}
		document, err := json.Marshal(values)
		if err == nil {
			_, err = api.PutToolState(t.Context(), "shared", document, "")
		}
		h.did(id, call, nil, all...)
		return err
	case dice < 35:
		_, err := api.ResetToolState(t.Context(), "shared")
		h.did(id, call, nil, all...)
		return err
	case dice < 60:
		state, _, err := api.ToolState(t.Context(), "shared")
		if err != nil {
			return err
		}
		var values map[string]json.RawMessage
		reads := map[string]string{}
		err = json.Unmarshal(state.State, &values)
		for i, key := range stateKeys {
			all[i] = onKey{key: key, read: true}
			reads[key] = string(values[key])
		}
		h.did(id, call, reads, all...)
		return err
	}
	key := stateKeys[random.IntN(len(stateKeys))]
	if random.IntN(5) == 0 {
		value = absent
	}
	inputs := fmt.Sprintf(`{"key":%q,"value":%s}`, key, map[bool]string{true: "null", false: value}[value == absent])
	run, err := api.Run(t.Context(), "shared", v1.RunRequest{Inputs: json.RawMessage(inputs)})
	if err != nil || run.Status != "success" {
		return fmt.Errorf("run: %+v %w", run, err)
	}
	was := string(run.Data)
	if was == "null" {
		was = absent
	}
	discarded := false
	for _, w := range run.Metadata.Warnings {
		discarded = discarded || strings.Contains(w, "'"+key+"'")
	}
	h.did(id, call, map[string]string{key: was}, onKey{key: key, read: true, write: !discarded, now: value})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs++
	if discarded {
		h.discarded++
	}
	return nil
}
