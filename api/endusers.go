package api

import (
	"context"
	"encoding/json"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"stepwell"
	"stepwell/api/v1"
)

// EndUsers keeps the end users. A missing one is KindNotFound, "End user not found"; ids
// are uuids in lower case.
type EndUsers interface {
	// Create saves u under a new id, with a key that may run the tools (nil: all), and
	// gives the key's text, which is shown once. KindConflict when the ExternalID is taken.
	Create(ctx context.Context, u *stepwell.EndUser, tools []string) (created *stepwell.EndUser, key string, err error)
	// Get gives an end user with the systems that it connected or may be asked to.
	Get(ctx context.Context, orgID, id string) (*stepwell.EndUser, []stepwell.Connection, error)
	// List gives the end users of an organization.
	List(ctx context.Context, orgID string, page, limit int) (Listed[*stepwell.EndUser], error)
	// Update lets change alter an end user and saves it. KindConflict when the ExternalID
	// is taken. An error of change is returned as it is.
	Update(ctx context.Context, orgID, id string, change func(*stepwell.EndUser) error) (*stepwell.EndUser, error)
	// Delete deletes an end user with its keys, credentials and portal links: from its
	// return on, Authenticate refuses its key. Its runs stay.
	Delete(ctx context.Context, orgID, id string) error
	// Connect replaces what an end user connected to a system. A missing system is
	// KindNotFound, "System not found".
	Connect(ctx context.Context, orgID, id, systemID string, values map[string]string) error
	// Disconnect removes what an end user connected to a system, if anything.
	Disconnect(ctx context.Context, orgID, id, systemID string) error
	// Access says what stands against a run of a tool in a mode for an end user.
	Access(ctx context.Context, orgID, id string, t *stepwell.Tool, mode string) (stepwell.SystemAccess, error)
	// PortalLink makes the token of a portal link, which is good until it expires or the
	// next one is made.
	PortalLink(ctx context.Context, orgID, id string) (token string, expires time.Time, err error)
}

// Limits of an end user's fields.
const (
	maxEndUserText = 500      // characters of externalId and name
	maxEmail       = 254      // octets of an address: RFC 5321
	maxMetadata    = 64 << 10 // bytes, as of a value of a tool's state
)

// endUserID gives the id in the path in lower case. A text that is no uuid is not found.
func endUserID(req *request) (string, error) {
	id, ok := canonicalUUID(req.vars["endUserId"])
	if !ok {
		return "", stepwell.NotFound("End user")
	}
	req.vars["endUserId"] = id // as the audit log has it
	return id, nil
}

func canonicalUUID(text string) (string, bool) {
	id, err := uuid.Parse(text)
	return id.String(), err == nil && len(text) == len(id.String()) // not its other spellings
}

func (o object) shortText(name string) string {
	s := o.text(name)
	if len([]rune(s)) > maxEndUserText {
		o.fail(name, "text of at most 500 characters")
	}
	return s
}

func (o object) email(name string) string {
	s := o.text(name)
	if s == "" && o.get(name) == nil {
		return ""
	}
	if a, err := mail.ParseAddress(s); err != nil || a.Address != s || len(s) > maxEmail {
		o.fail(name, "an email address")
	}
	return s
}

func (o object) metadata(name string) json.RawMessage {
	raw := o.rawObject(name)
	if len(raw) > maxMetadata {
		o.fail(name, "an object of at most 64 KiB")
	}
	return raw
}

// allowedSystems reads ids of systems, or the one element * that means all.
func (o object) allowedSystems(name string) []string {
	ids := o.texts(name)
	if slices.Equal(ids, []string{stepwell.AllSystems}) {
		return ids
	}
	if slices.ContainsFunc(ids, func(id string) bool { return !validToolID(id) }) {
		o.fail(name, "an array of system ids, or [\"*\"] for all")
	}
	return ids
}

func parseEndUserCreate(req *request) (*stepwell.EndUser, error) {
	o := req.body
	u := &stepwell.EndUser{ExternalID: o.shortText("externalId"), Email: o.email("email"), Name: o.shortText("name"),
		Metadata: o.metadata("metadata"), AllowedSystems: o.allowedSystems("allowedSystems")}
	return u, req.fields.err
}

// createEndUser makes an end user with a key. The key may run what the key may that made
// it: else a key with a list of tools could make itself one without.
func (a *API) createEndUser(ctx context.Context, req *request, u *stepwell.EndUser) (*response, error) {
	u.OrgID = req.caller.OrgID
	created, key, err := a.EndUsers.Create(ctx, u, req.caller.Tools)
	if err != nil {
		return nil, err
	}
	out := wireEndUser(created)
	out.APIKey = key
	return &response{body: v1.EndUserAnswer{Success: true, Data: out}, made: created.ID}, nil
}

func (a *API) listEndUsers(ctx context.Context, req *request, in pageQuery) (*response, error) {
	l, err := a.EndUsers.List(ctx, req.caller.OrgID, in.page, in.limit)
	if err != nil {
		return nil, err
	}
	return &response{body: wireList(l, in.page, in.limit, wireEndUser)}, nil
}

func (a *API) getEndUser(ctx context.Context, req *request, _ none) (*response, error) {
	id, err := endUserID(req)
	if err != nil {
		return nil, err
	}
	u, connections, err := a.EndUsers.Get(ctx, req.caller.OrgID, id)
	if err != nil {
		return nil, err
	}
	out := wireEndUser(u)
	all := make([]v1.Connection, 0, len(connections))
	for _, c := range connections {
		all = append(all, v1.Connection(c))
	}
	out.Credentials = &all
	return &response{body: v1.EndUserAnswer{Data: out}}, nil
}

func parseEndUserUpdate(req *request) (v1.EndUserUpdate, error) {
	o := req.body
	u := v1.EndUserUpdate{
		ExternalID: optional(o, "externalId", o.shortText), Email: optional(o, "email", o.email), Name: optional(o, "name", o.shortText),
		Metadata: optional(o, "metadata", o.metadata), AllowedSystems: optional(o, "allowedSystems", o.allowedSystems),
	}
	return u, req.fields.err
}

func (a *API) updateEndUser(ctx context.Context, req *request, in v1.EndUserUpdate) (*response, error) {
	id, err := endUserID(req)
	if err != nil {
		return nil, err
	}
	u, err := a.EndUsers.Update(ctx, req.caller.OrgID, id, func(u *stepwell.EndUser) error {
		set(&u.ExternalID, in.ExternalID)
		set(&u.Email, in.Email)
		set(&u.Name, in.Name)
		set(&u.Metadata, in.Metadata)
		set(&u.AllowedSystems, in.AllowedSystems)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &response{body: v1.EndUserAnswer{Success: true, Data: wireEndUser(u)}}, nil
}

func (a *API) deleteEndUser(ctx context.Context, req *request, _ none) (*response, error) {
	id, err := endUserID(req)
	if err == nil {
		err = a.EndUsers.Delete(ctx, req.caller.OrgID, id)
	}
	return succeeded(err)
}

// succeeded answers what has nothing else to say.
func succeeded(err error) (*response, error) {
	if err != nil {
		return nil, err
	}
	return &response{body: v1.Deleted{Success: true}}, nil
}

func parseEndUserCredentials(req *request) (map[string]string, error) {
	values := map[string]string{}
	for key, value := range readCredentials(req.body, "credentials") {
		if value != nil {
			values[key] = *value
		}
	}
	if len(values) == 0 {
		req.body.fail("credentials", "an object with at least one text")
	}
	return values, req.fields.err
}

func (a *API) connectEndUser(ctx context.Context, req *request, values map[string]string) (*response, error) {
	id, err := endUserID(req)
	if err == nil {
		err = a.EndUsers.Connect(ctx, req.caller.OrgID, id, req.vars["systemId"], values)
	}
	return succeeded(err)
}

func (a *API) disconnectEndUser(ctx context.Context, req *request, _ none) (*response, error) {
	id, err := endUserID(req)
	if err == nil {
		err = a.EndUsers.Disconnect(ctx, req.caller.OrgID, id, req.vars["systemId"])
	}
	return succeeded(err)
}

func (a *API) portalLink(ctx context.Context, req *request, _ none) (*response, error) {
	id, err := endUserID(req)
	if err != nil {
		return nil, err
	}
	token, expires, err := a.EndUsers.PortalLink(ctx, req.caller.OrgID, id)
	if err != nil {
		return nil, err
	}
	link := req.base + "/portal?token=" + url.QueryEscape(token)
	return &response{body: v1.PortalLink{Success: true, Data: v1.PortalLinkData{PortalURL: link, ExpiresAt: wireTime(expires)}}}, nil
}

func wireEndUser(u *stepwell.EndUser) v1.EndUser {
	allowed := u.AllowedSystems
	if allowed == nil {
		allowed = []string{}
	}
	return v1.EndUser{ID: u.ID, ExternalID: u.ExternalID, Email: u.Email, Name: u.Name, Metadata: u.Metadata, AllowedSystems: allowed,
		CreatedAt: wireTime(u.CreatedAt), UpdatedAt: wireTime(u.UpdatedAt)}
}

// bindEndUser settles for which end user a run is, and refuses it when that one may not
// use, or has not connected, a system of the tool. An end user's key runs for that one,
// members for any, runners for none, but a rerun stays with the end user of its original.
func (a *API) bindEndUser(ctx context.Context, caller *stepwell.Caller, n *NewRun) error {
	id := &n.Options.EndUserID
	inherited := n.Rerun != nil && *id == n.Rerun.Of.Options.EndUserID
	switch {
	case caller.Role == stepwell.RoleEndUser:
		if named, _ := canonicalUUID(*id); *id != "" && named != caller.EndUserID {
			return notAllowed("an end user's key runs for that end user only")
		}
		*id = caller.EndUserID
	case *id == "":
		return nil
	case !inherited && !manage.allows(caller, subject{}):
		return notAllowed("this API key (role %s) cannot run for an end user", caller.Role)
	default:
		named, ok := canonicalUUID(*id)
		if !ok {
			return errNoEndUser
		}
		*id = named
	}
	access, err := a.EndUsers.Access(ctx, caller.OrgID, *id, n.Tool, n.Options.Mode)
	switch {
	case stepwell.KindOf(err) == stepwell.KindNotFound && err != nil:
		return errNoEndUser
	case err != nil:
		return err
	case len(access.Forbidden) > 0:
		return notAllowed("the end user may not use: %s", strings.Join(access.Forbidden, ", "))
	case len(access.Missing) > 0:
		return notAllowed("the end user must connect: %s", strings.Join(access.Missing, ", "))
	}
	return nil
}

var errNoEndUser = stepwell.Invalid("invalid_field", "'options.endUserId' must be the id of an end user")

// notAllowed refuses a run; clients match its first words.
func notAllowed(why string, args ...any) error {
	return stepwell.Errorf(stepwell.KindForbidden, "forbidden", "Run not allowed: "+why, args...)
}
