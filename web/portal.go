package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell"
)

// Path is where the portal is, below the API's base.
const Path = "/portal"

// System is one system that the end user may connect.
type System struct {
	ID        string
	Name      string   // what the page calls it
	Host      string   // of its url; may be empty
	Keys      []string // the credentials that it asks for, in order
	Connected bool
	ChangedAt time.Time // when the end user last gave credentials; zero without
	OAuth     bool      // it is connected at its own sign-in page, not by a form
}

// Portal is what the pages need. Its errors are *stepwell.Error with public messages;
// any other is an internal error. Tokens and sessions are secrets.
type Portal interface {
	// Look says whom a link is for, without using it. Errors have the codes of links.
	Look(ctx context.Context, token string) (*stepwell.Guest, error)
	// Open exchanges a link's token for a session.
	Open(ctx context.Context, token string) (session string, expires time.Time, err error)
	// Session finds the end user of a session; stepwell.CodeSessionEnded when it is over.
	Session(ctx context.Context, session string) (*stepwell.Guest, error)
	// Close ends a session.
	Close(ctx context.Context, session string) error
	// Systems lists what the end user may connect, by name.
	Systems(ctx context.Context, g *stepwell.Guest) ([]System, error)
	// Save stores credentials of the end user for a system, one for each of its keys.
	Save(ctx context.Context, g *stepwell.Guest, system string, values map[string]string, trace string) error
	// Remove deletes them.
	Remove(ctx context.Context, g *stepwell.Guest, system, trace string) error
	// Authorize begins the sign-in at a system: it gives the address to send the browser
	// to. The way back is redirect, an address of this portal.
	Authorize(ctx context.Context, g *stepwell.Guest, session, system, redirect string) (address string, err error)
	// Authorized ends it: it checks that state belongs to the session, and exchanges the
	// code, which is empty when the system refused. KindInvalid says why nothing came of it.
	Authorized(ctx context.Context, g *stepwell.Guest, session, state, code, redirect, trace string) (system string, err error)
}

// Config is what the pages are made of. Portal is required.
type Config struct {
	Portal    Portal
	PublicURL string // public address of the API with /v1; default: made of the request's Host
	Brands    Brands // how organizations want their pages to look; nil: all alike
	Contact   string // whom to ask, as the pages say it; default: whoever sent the link
	Log       *zap.Logger
}

// Limits of the pages.
const (
	maxForm      = 256 << 10 // bytes of a form
	maxValue     = 16 << 10  // bytes of one credential
	pageTimeout  = 30 * time.Second
	atWork       = 128 // requests at a time; more are told to come back
	triesPerHour = 60  // of one address with links that are none, of one session to save
)

// Handler serves the portal's pages below a base address's Path.
type Handler struct {
	Config
	tries *tries
	slots chan struct{}
}

// New makes the handler.
func New(c Config) *Handler {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Contact == "" {
		c.Contact = "the person or team that sent you the link"
	}
	return &Handler{Config: c, tries: newTries(), slots: make(chan struct{}, atWork)}
}

// visit is one request with what is known of it.
type visit struct {
	w       http.ResponseWriter
	r       *http.Request
	root    string // path of the portal
	base    string // public address of the portal
	trace   string
	status  int // of the answer, once there is one
	session string
	guest   *stepwell.Guest // of the session, or of the link
}

// ServePortal answers a request whose path begins with the API's prefix and Path, and
// says with which status. Its trace id is shown where something went wrong.
func (h *Handler) ServePortal(w http.ResponseWriter, r *http.Request, trace string) (status int) {
	prefix, rest, _ := strings.Cut(r.URL.Path, Path)
	v := &visit{w: w, r: r, root: prefix + Path, base: h.base(r, prefix+Path), trace: trace}
	defer func() { status = v.status }()
	w.Header().Set("X-Trace-Id", trace)
	if h.asset(v, rest) {
		return 0
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		h.fail(v, stepwell.Errorf(stepwell.KindUnavailable, "overloaded", "Too many people are here at the moment"))
		return 0
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	v.r = r.WithContext(ctx)
	defer func() {
		if p := recover(); p != nil {
			h.Log.Error("panic in the portal", zap.String("trace", v.trace), zap.Any("panic", p), zap.Stack("stack"))
			h.fail(v, errors.New("panic"))
		}
	}()
	if err := h.serve(v, strings.Split(strings.Trim(rest, "/"), "/")); err != nil {
		h.fail(v, err)
	}
	return 0
}

// base is the public address of the portal: what the browser knows it by.
func (h *Handler) base(r *http.Request, root string) string {
	if h.PublicURL != "" {
		return strings.TrimSuffix(h.PublicURL, "/") + Path
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host + root
}

// serve finds the page of a path. A page that changes something wants a POST that comes
// from a page of this portal.
func (h *Handler) serve(v *visit, path []string) error {
	page, ok := h.page(path)
	if !ok {
		return errNoPage
	}
	act := page[v.r.Method]
	if act == nil {
		return h.notAllowed(v, page)
	}
	if v.r.Method == http.MethodPost {
		if err := v.own(); err != nil {
			return err
		}
		if err := v.parse(); err != nil {
			return err
		}
	}
	if path[0] != "" { // all but the link's page are for who has a session
		if err := h.enter(v); err != nil {
			return err
		}
	}
	return act(v)
}

type acts map[string]func(*visit) error

// page gives what a path can do, by method.
func (h *Handler) page(path []string) (acts, bool) {
	on := func(act func(*visit, string) error) func(*visit) error {
		return func(v *visit) error { return act(v, path[1]) }
	}
	switch {
	case len(path) == 1 && path[0] == "":
		return acts{"GET": h.link, "POST": h.open}, true
	case len(path) == 1 && path[0] == "systems":
		return acts{"GET": h.systems}, true
	case len(path) == 1 && path[0] == "sign-out":
		return acts{"POST": h.signOut}, true
	case len(path) == 2 && path[0] == "systems":
		return acts{"POST": on(h.save)}, true
	case len(path) == 3 && path[0] == "systems" && path[2] == "remove":
		return acts{"GET": on(h.confirm), "POST": on(h.remove)}, true
	case len(path) == 3 && path[0] == "systems" && path[2] == "connect":
		return acts{"POST": on(h.authorize)}, true
	case len(path) == 2 && path[0] == "oauth" && path[1] == "callback":
		return acts{"GET": h.authorized}, true
	}
	return nil, false
}

// link is the page behind a link: one form that carries the token on.
func (h *Handler) link(v *visit) (err error) {
	token := v.r.URL.Query().Get("token")
	if v.guest, err = h.look(v, token); err != nil {
		return err
	}
	return h.render(v, http.StatusOK, "link", linkPage{Token: token})
}

// look is Portal.Look, but for who tries too many links that are none. A good link is
// never refused for what others try.
func (h *Handler) look(v *visit, token string) (*stepwell.Guest, error) {
	guest, err := h.Portal.Look(v.r.Context(), token)
	if stepwell.KindOf(err) == stepwell.KindNotFound && !h.tries.may("link "+address(v.r)) {
		return nil, errTooMany
	}
	return guest, err
}

// open exchanges the token for a session, and leads to an address without it.
func (h *Handler) open(v *visit) error {
	token := v.r.PostForm.Get("token")
	if _, err := h.look(v, token); err != nil {
		return err
	}
	session, expires, err := h.Portal.Open(v.r.Context(), token)
	if err != nil {
		return err
	}
	v.setCookie(session, expires)
	return v.to("/systems", nil)
}

// systems is the list with a form for each system.
func (h *Handler) systems(v *visit) error {
	return h.list(v, http.StatusOK, "", "")
}

// list shows the systems; wrong is what is wrong with the form of one of them.
func (h *Handler) list(v *visit, status int, id, wrong string) error {
	systems, err := h.Portal.Systems(v.r.Context(), v.guest)
	if err != nil {
		return err
	}
	page := systemsPage{Wrong: wrong}
	for _, s := range systems {
		row := systemRow{System: s, Open: s.ID == id}
		if s.ID == id {
			row.Wrong = wrong
			page.WrongIn = s.Name
		}
		page.Systems = append(page.Systems, row)
		if s.Connected {
			page.Connected++
		}
	}
	page.Done = done(v.r.URL.Query(), systems)
	return h.render(v, status, "systems", page)
}

// done is what the page says has just happened: one of its own sentences.
func done(q url.Values, systems []System) string {
	for _, s := range systems {
		if s.ID != q.Get("system") {
			continue
		}
		switch q.Get("done") {
		case "connected":
			return s.Name + " is connected."
		case "removed":
			return "Your credentials for " + s.Name + " were removed."
		}
	}
	return ""
}

// find gives one of the end user's systems.
func (h *Handler) find(v *visit, id string) (*System, error) {
	systems, err := h.Portal.Systems(v.r.Context(), v.guest)
	if err != nil {
		return nil, err
	}
	for i := range systems {
		if systems[i].ID == id {
			return &systems[i], nil
		}
	}
	return nil, stepwell.NotFound("System")
}

// save stores what the form of a system holds.
func (h *Handler) save(v *visit, id string) error {
	s, err := h.find(v, id)
	if err != nil {
		return err
	}
	if s.OAuth {
		return stepwell.Invalid("oauth_system", "%s is connected at its own sign-in page", s.Name)
	}
	if !h.tries.may("save " + v.session) {
		return errTooMany
	}
	values := map[string]string{}
	for i, key := range s.Keys {
		value := v.r.PostForm.Get(inputName(i))
		switch {
		case value == "":
			return h.list(v, http.StatusBadRequest, id, "Enter a value for “"+label(key)+"”. For your safety, what you typed was not kept: please enter all of them.")
		case len(value) > maxValue:
			return h.list(v, http.StatusBadRequest, id, "The value for “"+label(key)+"” is too long.")
		}
		values[key] = value
	}
	err = h.Portal.Save(v.r.Context(), v.guest, id, values, v.trace)
	if stepwell.KindOf(err) == stepwell.KindInvalid {
		return h.list(v, http.StatusBadRequest, id, stepwell.MessageOf(err))
	}
	if err != nil {
		return err
	}
	return v.to("/systems", url.Values{"done": {"connected"}, "system": {id}})
}

// confirm asks whether credentials shall be removed.
func (h *Handler) confirm(v *visit, id string) error {
	s, err := h.find(v, id)
	if err != nil {
		return err
	}
	if !s.Connected {
		return v.to("/systems", nil)
	}
	return h.render(v, http.StatusOK, "remove", *s)
}

func (h *Handler) remove(v *visit, id string) error {
	if _, err := h.find(v, id); err != nil {
		return err
	}
	if err := h.Portal.Remove(v.r.Context(), v.guest, id, v.trace); err != nil && stepwell.KindOf(err) != stepwell.KindNotFound {
		return err
	}
	return v.to("/systems", url.Values{"done": {"removed"}, "system": {id}})
}

// callback is the address to which a system's sign-in leads back.
func (v *visit) callback() string { return v.base + "/oauth/callback" }

// authorize shows where the sign-in is: a link, since a form must not lead elsewhere.
func (h *Handler) authorize(v *visit, id string) error {
	s, err := h.find(v, id)
	if err != nil {
		return err
	}
	if !s.OAuth {
		return stepwell.Invalid("no_oauth_system", "%s has no sign-in page of its own", s.Name)
	}
	if !h.tries.may("save " + v.session) {
		return errTooMany
	}
	target, err := h.Portal.Authorize(v.r.Context(), v.guest, v.session, id, v.callback())
	if err != nil {
		return err
	}
	u, err := url.Parse(target)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return errors.New("a sign-in address that is none")
	}
	return h.render(v, http.StatusOK, "connect", connectPage{System: *s, Address: target, Host: u.Host})
}

// authorized is the way back from a system's sign-in.
func (h *Handler) authorized(v *visit) error {
	q := v.r.URL.Query()
	if !h.tries.may("save " + v.session) {
		return errTooMany
	}
	id, err := h.Portal.Authorized(v.r.Context(), v.guest, v.session, q.Get("state"), q.Get("code"), v.callback(), v.trace)
	if err != nil {
		return err
	}
	return v.to("/systems", url.Values{"done": {"connected"}, "system": {id}})
}

func (h *Handler) signOut(v *visit) error {
	if err := h.Portal.Close(v.r.Context(), v.session); err != nil {
		return err
	}
	v.setCookie("", time.Unix(1, 0))
	return h.render(v, http.StatusOK, "left", nil)
}
