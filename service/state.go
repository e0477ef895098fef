package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"stepwell"
	"stepwell/api"
	"stepwell/engine"
	"stepwell/internal/secret"
	"stepwell/store"
)

// States implements api.States.
type States struct{ s *Service }

// States gives the state of the service's tools.
func (s *Service) States() *States { return &States{s} }

// Get reads the state of a tool as it may be shown: known credentials are masked.
func (t *States) Get(ctx context.Context, org string, tool *stepwell.Tool) (*stepwell.State, error) {
	state, err := t.s.Store.State(ctx, org, tool.ID)
	if err != nil || string(state.Values) == "{}" {
		return state, err
	}
	known, err := t.known(ctx, org, tool)
	if err != nil {
		return nil, err
	}
	state.Values = engine.MaskState(state.Values, known, secret.Masked)
	return state, nil
}

// known are the credentials of the systems that a tool's steps name.
func (t *States) known(ctx context.Context, org string, tool *stepwell.Tool) (map[string]bool, error) {
	var systems []string
	for i := range tool.Steps {
		if id := tool.Steps[i].Config.SystemID; id != "" {
			systems = append(systems, id)
		}
	}
	if systems == nil {
		return nil, nil
	}
	values, err := t.s.Store.SystemSecrets(ctx, org, systems)
	known := make(map[string]bool, len(values))
	for _, v := range values {
		known[v] = true
	}
	return known, err
}

// Put replaces the state of a tool.
func (t *States) Put(ctx context.Context, org string, tool *stepwell.Tool, since *int64, state json.RawMessage) (api.StatePut, error) {
	var out api.StatePut
	// What is masked is looked up, which can only make it larger: what is too large now is refused at once.
	if _, problem := engine.StateValues(state); problem != "" {
		return out, overLimit(problem)
	}
	res, err := t.s.Store.PutState(ctx, org, tool.ID, store.StatePut{
		Since: since,
		Equal: engine.EqualJSON,
		Replace: func(stored json.RawMessage) (map[string]json.RawMessage, error) {
			values, problem := engine.StateValues(engine.KeepMasked(state, stored, secret.Masked))
			if problem != "" {
				return nil, overLimit(problem)
			}
			return values, nil
		},
	})
	if err != nil {
		return out, err
	}
	out.Seq = res.Seq
	for _, key := range res.Changed {
		out.Warnings = append(out.Warnings, fmt.Sprintf("The key '%s' was changed by another since the state was read; this write replaced it", key))
	}
	if res.Forgot {
		out.Warnings = append(out.Warnings, "The state was read so long ago that keys removed since may be missing in these warnings")
	}
	return out, nil
}

func overLimit(problem string) error {
	return stepwell.Invalid("state_over_limit", "The state is over a limit: %s", strings.ToValidUTF8(problem, "\uFFFD"))
}

// Reset removes all keys and gives their number.
func (t *States) Reset(ctx context.Context, org string, tool *stepwell.Tool) (deleted int, err error) {
	return t.s.Store.ResetState(ctx, org, tool.ID)
}
