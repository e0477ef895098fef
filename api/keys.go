package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"stepwell"
	"stepwell/api/v1"
)

var roles = []string{stepwell.RoleAdmin, stepwell.RoleMember, stepwell.RoleRunner}

// pageQuery asks for a page of a list without filters.
type pageQuery struct{ page, limit int }

func parsePageQuery(req *request) (pageQuery, error) {
	q := queryReader{values: req.query}
	page, limit := q.page(50, 100)
	return pageQuery{page, limit}, q.err
}

func (a *API) listKeys(ctx context.Context, req *request, in pageQuery) (*response, error) {
	l, err := a.Keys.List(ctx, req.caller.OrgID, in.page, in.limit)
	if err != nil {
		return nil, err
	}
	return &response{body: wireList(l, in.page, in.limit, wireKey)}, nil
}

func parseKeyCreate(req *request) (*stepwell.APIKey, error) {
	o := req.body
	k := &stepwell.APIKey{Name: o.text("name"), Role: o.text("role"), UserID: o.text("userId"), Tools: readToolIDs(o, "tools"), ExpiresAt: readExpiry(o, "expiresAt").Time}
	checkRole(o, k.Role)
	return k, req.fields.err
}

func checkRole(o object, role string) {
	if !slices.Contains(roles, role) {
		o.fail("role", "one of "+strings.Join(roles, ", "))
	}
}

func readToolIDs(o object, name string) []string {
	ids := o.texts(name)
	if slices.ContainsFunc(ids, func(id string) bool { return !validToolID(id) }) {
		o.fail(name, "an array of tool ids")
	}
	return ids
}

func readExpiry(o object, name string) v1.Time {
	t := o.time(name)
	if !t.IsZero() && !t.After(time.Now()) {
		o.fail(name, "in the future")
	}
	return t
}

func (a *API) createKey(ctx context.Context, req *request, k *stepwell.APIKey) (*response, error) {
	created, text, err := a.Keys.Create(ctx, req.caller.OrgID, k)
	if err != nil {
		return nil, err
	}
	out := wireKey(created)
	out.Key = text
	return &response{body: out, made: created.ID}, nil
}

func parseKeyUpdate(req *request) (v1.APIKeyUpdate, error) {
	o := req.body
	u := v1.APIKeyUpdate{
		Name:      optional(o, "name", o.text),
		Role:      optional(o, "role", o.text),
		Tools:     optional(o, "tools", func(n string) []string { return readToolIDs(o, n) }),
		ExpiresAt: optional(o, "expiresAt", func(n string) v1.Time { return readExpiry(o, n) }),
	}
	if u.Role.Set {
		checkRole(o, u.Role.Value)
	}
	return u, req.fields.err
}

func (a *API) updateKey(ctx context.Context, req *request, in v1.APIKeyUpdate) (*response, error) {
	k, err := a.Keys.Update(ctx, req.caller.OrgID, req.vars["keyId"], func(k *stepwell.APIKey) error {
		set(&k.Name, in.Name)
		set(&k.Role, in.Role)
		set(&k.Tools, in.Tools)
		if in.ExpiresAt.Set {
			k.ExpiresAt = in.ExpiresAt.Value.Time
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &response{body: wireKey(k)}, nil
}

func (a *API) deleteKey(ctx context.Context, req *request, _ none) (*response, error) {
	if err := a.Keys.Delete(ctx, req.caller.OrgID, req.vars["keyId"]); err != nil {
		return nil, err
	}
	return &response{body: v1.Deleted{Success: true}}, nil
}

func (a *API) me(_ context.Context, req *request, _ none) (*response, error) {
	c := req.caller
	return &response{body: v1.Me{UserID: c.UserID, OrgID: c.OrgID, OrgName: c.OrgName, Role: c.Role, Tools: wireTools(c.Tools)}}, nil
}
