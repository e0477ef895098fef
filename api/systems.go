package api

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/uuid"

	"stepwell"
	"stepwell/api/v1"
	"stepwell/internal/oauth"
)

var tenancyModes = []string{stepwell.TenancyDisabled, stepwell.TenancyEnabled}

func wireSystem(y *stepwell.System) v1.System {
	keys := y.CredentialKeys
	if keys == nil {
		keys = slices.Sorted(maps.Keys(y.Credentials))
	}
	shown := map[string]string{}
	for key := range y.Credentials {
		shown[key] = v1.CredentialSet
	}
	return v1.System{
		ID: y.ID, Name: y.Name, URL: y.URL, Credentials: shown, CredentialKeys: append([]string{}, keys...),
		MultiTenancyMode: y.MultiTenancyMode, Environment: y.Environment, Metadata: y.Metadata,
		CreatedAt: wireTime(y.CreatedAt), UpdatedAt: wireTime(y.UpdatedAt),
	}
}

func (a *API) listSystems(ctx context.Context, req *request, in pageQuery) (*response, error) {
	l, err := a.Systems.List(ctx, req.caller.OrgID, in.page, in.limit)
	if err != nil {
		return nil, err
	}
	return &response{body: wireList(l, in.page, in.limit, wireSystem)}, nil
}

func parseSystemCreate(req *request) (*stepwell.System, error) {
	o := req.body
	y := &stepwell.System{
		ID: o.text("id"), Environment: o.text("environment"), Name: o.text("name"), URL: readAddress(o, "url"),
		MultiTenancyMode: readTenancy(o, "multiTenancyMode"), CredentialKeys: readCredentialKeys(o, "credentialKeys"),
		Metadata: o.rawObject("metadata"), Credentials: map[string]string{},
	}
	if o.get("id") != nil && !validToolID(y.ID) {
		o.fail("id", toolIDRule)
	}
	if o.get("environment") != nil && !slices.Contains(stepwell.Environments, y.Environment) {
		o.fail("environment", "one of prod, dev")
	}
	given := readCredentials(o, "credentials")
	if req.fields.err != nil {
		return nil, req.fields.err
	}
	fill(&y.Environment, stepwell.ModeProd)
	if y.ID == "" {
		y.ID = uuid.NewString()
	}
	return y, mergeCredentials(y.Credentials, given)
}

// readAddress reads an http or https URL.
func readAddress(o object, name string) string {
	text := o.text(name)
	if o.get(name) != nil && !oauth.ValidURL(text) {
		o.fail(name, "an http or https URL")
	}
	return text
}

func readTenancy(o object, name string) string {
	mode := o.text(name)
	if o.get(name) != nil && !slices.Contains(tenancyModes, mode) {
		o.fail(name, "one of disabled, enabled")
	}
	fill(&mode, stepwell.TenancyDisabled)
	return mode
}

func readCredentialKeys(o object, name string) []string {
	keys := o.texts(name)
	if slices.Contains(keys, "") {
		o.fail(name, "an array of names that are not empty")
	}
	return keys
}

// readCredentials reads an object of texts; a null is one to be removed.
func readCredentials(o object, name string) map[string]*string {
	inner, ok := o.object(name)
	if !ok {
		return nil
	}
	given := map[string]*string{}
	for _, m := range inner.members {
		if m.key == "" {
			o.fail(name, "an object whose names are not empty")
		}
		if string(m.value) == "null" {
			given[m.key] = nil
			continue
		}
		text := inner.text(m.key)
		given[m.key] = &text
	}
	return given
}

// mergeCredentials changes stored credentials as they are given: null removes one, "[set]"
// keeps the stored one. It checks what comes of it.
func mergeCredentials(stored map[string]string, given map[string]*string) error {
	if at := given[oauth.AccessToken]; at != nil && *at != v1.CredentialSet {
		delete(stored, oauth.ExpiresAt) // it was the old token's
	}
	for key, value := range given {
		switch {
		case value == nil:
			delete(stored, key)
		case *value != v1.CredentialSet:
			stored[key] = *value
		case key == oauth.ExpiresAt: // stays, or went with its token
		default:
			if _, ok := stored[key]; !ok {
				return stepwell.Invalid("invalid_field", "'%s' must be the credential itself: \"%s\" keeps a stored one, and there is none", "credentials."+key, v1.CredentialSet)
			}
		}
	}
	return oauth.Check(stored)
}

func (a *API) createSystem(ctx context.Context, req *request, y *stepwell.System) (*response, error) {
	y.OrgID = req.caller.OrgID
	if err := a.Systems.Create(ctx, y); err != nil {
		return nil, err
	}
	return &response{body: wireSystem(y), made: y.ID}, nil
}

// readEnvironment reads which of the systems of an id is meant: empty for prod if there is
// one, else dev.
func readEnvironment(req *request) (string, error) {
	q := queryReader{values: req.query}
	return q.oneOf("environment", stepwell.Environments...), q.err
}

func (a *API) getSystem(ctx context.Context, req *request, environment string) (*response, error) {
	y, err := a.Systems.Get(ctx, req.caller.OrgID, req.vars["systemId"], environment)
	if err != nil {
		return nil, err
	}
	return &response{body: wireSystem(y)}, nil
}

// systemChange is a checked PATCH of a system.
type systemChange struct {
	v1.SystemUpdate
	environment string
}

func parseSystemUpdate(req *request) (u systemChange, err error) {
	if u.environment, err = readEnvironment(req); err != nil {
		return u, err
	}
	o := req.body
	u.SystemUpdate = v1.SystemUpdate{
		Name:             optional(o, "name", o.text),
		URL:              optional(o, "url", func(n string) string { return readAddress(o, n) }),
		Credentials:      optional(o, "credentials", func(n string) map[string]*string { return readCredentials(o, n) }),
		CredentialKeys:   optional(o, "credentialKeys", func(n string) []string { return readCredentialKeys(o, n) }),
		MultiTenancyMode: optional(o, "multiTenancyMode", func(n string) string { return readTenancy(o, n) }),
		Metadata:         optional(o, "metadata", func(n string) json.RawMessage { return o.rawObject(n) }),
	}
	return u, req.fields.err
}

func (a *API) updateSystem(ctx context.Context, req *request, u systemChange) (*response, error) {
	y, err := a.Systems.Update(ctx, req.caller.OrgID, req.vars["systemId"], u.environment, func(y *stepwell.System) error {
		set(&y.Name, u.Name)
		set(&y.URL, u.URL)
		set(&y.CredentialKeys, u.CredentialKeys)
		set(&y.Metadata, u.Metadata)
		set(&y.MultiTenancyMode, u.MultiTenancyMode)
		fill(&y.MultiTenancyMode, stepwell.TenancyDisabled)
		if u.Credentials.Null {
			clear(y.Credentials)
		}
		return mergeCredentials(y.Credentials, u.Credentials.Value)
	})
	if err != nil {
		return nil, err
	}
	return &response{body: wireSystem(y)}, nil
}

func (a *API) deleteSystem(ctx context.Context, req *request, environment string) (*response, error) {
	if err := a.Systems.Delete(ctx, req.caller.OrgID, req.vars["systemId"], environment); err != nil {
		return nil, err
	}
	return &response{body: v1.Deleted{Success: true}}, nil
}
