package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"stepwell"
)

// Sources are the parts of sourceData.
type Sources struct {
	// Inputs is the run's payload, an object; nil counts as {}.
	Inputs json.RawMessage
	// Results gives each finished step's envelope, or a loop's array of them,
	// under the step's id. It may load them when they are asked for. Nil is none.
	Results Scope
	// Stored are the credentials bound at the top level, `<systemId>_<key>` and
	// `<systemId>_url`: what BindCredentials gave.
	Stored MapScope
	// Credentials is the `credentials` object that BindCredentials gave; nil counts as {}.
	Credentials json.RawMessage
	// CurrentItem is the item that a loop is at; nil counts as {}.
	CurrentItem json.RawMessage
	// State gives persistedState when it is asked for; nil counts as {}.
	State func(context.Context) (json.RawMessage, error)
	// Hook holds `__headers__` and `__rawBody__` or `__rawBodyBase64__` of a run
	// that a hook started; nil otherwise. It may load the body when it is asked for.
	Hook Scope
}

// SourceData layers the parts of sourceData. Reserved names come first, then the
// results of steps, then credentials, then inputs: an input hides nothing.
// Build and Interpret put the pagination variables before the inputs themselves.
func SourceData(src Sources) Scope {
	reserved := MapScope{
		"currentItem": orEmpty(src.CurrentItem),
		"credentials": orEmpty(src.Credentials),
	}
	inputs := objectMap(src.Inputs)
	for _, name := range stepwell.ReservedNames {
		delete(inputs, name)
	}
	l := layers{reserved, stateScope(src.State)}
	if src.Hook != nil {
		l = append(l, src.Hook)
	}
	if src.Results != nil {
		l = append(l, src.Results)
	}
	return append(l, src.Stored, inputs)
}

// stateScope is persistedState alone.
type stateScope func(context.Context) (json.RawMessage, error)

// Keys lists its one key.
func (s stateScope) Keys() []string { return []string{stateKey} }

// Get gives the state.
func (s stateScope) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	if key != stateKey {
		return nil, false, nil
	}
	if s == nil {
		return emptyObj, true, nil
	}
	state, err := s(ctx)
	return orEmpty(state), err == nil, err
}

func orEmpty(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return emptyObj
	}
	return v
}

// layers is a Scope of several: the first that has a key gives it.
type layers []Scope

// Keys lists the keys of all layers, each once.
func (l layers) Keys() []string {
	var keys []string
	seen := map[string]bool{}
	for _, s := range l {
		for _, k := range s.Keys() {
			if !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Get gives the value of the first layer that has the key.
func (l layers) Get(ctx context.Context, key string) (json.RawMessage, bool, error) {
	for _, s := range l {
		if v, ok, err := s.Get(ctx, key); ok || err != nil {
			return v, ok, err
		}
	}
	return nil, false, nil
}

// pageScope puts the pagination variables before everything else. They are
// disjoint from step ids and reserved names (ValidateTool sees to it), so only
// inputs and credentials can be hidden by them.
func pageScope(scope Scope, st *PageState) Scope {
	if st == nil {
		return scope
	}
	size := itoa(st.PageSize)
	cursor := st.Cursor
	if cursor == nil {
		cursor = jsonNull
	}
	return layers{MapScope{
		"page":     itoa(int64(st.page())),
		"offset":   itoa(st.Offset),
		"cursor":   cursor,
		"limit":    size,
		"pageSize": size,
	}, scope}
}

func (st *PageState) page() int { return max(1, st.Page) }

func itoa(n int64) json.RawMessage { return strconv.AppendInt(nil, n, 10) }

// SystemCredentials are the stored values of one system, already those of the
// run's mode and end user.
type SystemCredentials struct {
	ID     string
	URL    string
	Values map[string]string
}

// BindCredentials says under which names credentials are read. stored are the
// top-level keys of sourceData; credentials is the object of that name. A run-time
// `<systemId>_<key>` beats the stored key under both its names, a run-time bare
// `<key>` only `credentials.<key>`. stepSystem is the id of the step's own system,
// whose keys are bound bare; it may be empty. Values of runtime are JSON.
func BindCredentials(systems []SystemCredentials, stepSystem string, runtime map[string]json.RawMessage) (stored MapScope, credentials json.RawMessage) {
	stored = MapScope{}
	all, own := MapScope{}, MapScope{}
	for _, sys := range systems {
		bound := MapScope{}
		for key, value := range sys.Values {
			bound[key] = quote(value)
		}
		prefix := sys.ID + "_"
		for name, value := range runtime {
			if key, ok := strings.CutPrefix(name, prefix); ok && key != "" && key != "url" {
				bound[key] = value
			}
		}
		if sys.URL != "" {
			stored[prefix+"url"] = quote(sys.URL)
			if v, ok := runtime[prefix+"url"]; ok {
				stored[prefix+"url"] = v
			}
		}
		for key, value := range bound {
			stored[prefix+key] = value
			all[prefix+key] = value
			if sys.ID == stepSystem {
				own[key] = value
			}
		}
	}
	for key, value := range own {
		all[key] = value
	}
	for name, value := range runtime {
		all[name] = value
	}
	return stored, objectOf(all)
}

// objectOf writes an object with its keys in order.
func objectOf(m MapScope) json.RawMessage {
	keys := m.Keys()
	slices.Sort(keys)
	out := []byte{'{'}
	for i, k := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(appendQuoted(out, k), ':'), m[k]...)
	}
	return append(out, '}')
}
