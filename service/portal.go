package service

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/oauth2"

	"stepwell"
	"stepwell/internal/oauth"
	"stepwell/internal/secret"
	"stepwell/web"
)

const (
	portalSessionLife = time.Hour        // of a visit: the interface's decisions
	signInLife        = 10 * time.Minute // for a person to sign in at a system's own page
	auditPatience     = 5 * time.Second  // for the audit row of a change that was made
)

// Portal implements web.Portal.
type Portal struct {
	s      *Service
	sender oauth.Sender
}

// Portal gives the service's portal; sender reaches token endpoints.
func (s *Service) Portal(sender oauth.Sender) *Portal { return &Portal{s, sender} }

// Look says whom a link is for.
func (p *Portal) Look(ctx context.Context, token string) (*stepwell.Guest, error) {
	g, err := p.s.Store.PortalLink(ctx, portalHash(token))
	return known(g), err
}

// known leaves out a name that nobody gave: an organization that was made at the first
// start is called something, but its end users do not know it by that.
func known(g *stepwell.Guest) *stepwell.Guest {
	if g != nil && g.OrgName == firstOrganization {
		g.OrgName = ""
	}
	return g
}

// Open exchanges the token of a link for a session, which goes on for an hour whatever
// becomes of the link.
func (p *Portal) Open(ctx context.Context, token string) (session string, expires time.Time, err error) {
	session, expires = rand.Text(), time.Now().Add(portalSessionLife)
	return session, expires, p.s.Store.OpenPortalSession(ctx, portalHash(token), portalHash(session), expires)
}

// Session finds the end user of a session.
func (p *Portal) Session(ctx context.Context, session string) (*stepwell.Guest, error) {
	g, err := p.s.Store.PortalSession(ctx, portalHash(session))
	return known(g), err
}

// Close ends a session.
func (p *Portal) Close(ctx context.Context, session string) error {
	return p.s.Store.ClosePortalSession(ctx, portalHash(session))
}

// Systems lists what an end user may connect, by name.
func (p *Portal) Systems(ctx context.Context, g *stepwell.Guest) ([]web.System, error) {
	tenants, err := p.s.Store.TenantSystems(ctx, g.OrgID, g.EndUserID)
	if err != nil {
		return nil, err
	}
	systems := make([]web.System, len(tenants))
	for i, t := range tenants {
		y := t.System
		systems[i] = web.System{ID: y.ID, Name: y.Name, Keys: asked(y), Connected: !t.ConnectedAt.IsZero(), ChangedAt: t.ConnectedAt,
			OAuth: y.Credentials[oauth.GrantType] == oauth.GrantAuthorizationCode}
		if y.Name == "" {
			systems[i].Name = y.ID
		}
		if u, err := url.Parse(y.URL); err == nil {
			systems[i].Host = u.Host
		}
	}
	slices.SortStableFunc(systems, func(a, b web.System) int { return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) })
	return systems, nil
}

// asked are the credentials that an end user is asked for: those that the system names,
// else those that it has itself, but for what OAuth keeps there.
func asked(y *stepwell.System) []string {
	if y.CredentialKeys != nil {
		return y.CredentialKeys
	}
	var keys []string
	_, uses := y.Credentials[oauth.GrantType]
	for key := range y.Credentials {
		if !uses || !oauth.Keeps(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Save stores what an end user entered for a system.
func (p *Portal) Save(ctx context.Context, g *stepwell.Guest, system string, values map[string]string, trace string) error {
	if err := p.s.Store.PutEndUserCredentials(ctx, g.OrgID, g.EndUserID, system, values); err != nil {
		return err
	}
	p.audit(ctx, g, "update", system, trace)
	return nil
}

// Remove deletes what an end user connected to a system.
func (p *Portal) Remove(ctx context.Context, g *stepwell.Guest, system, trace string) error {
	if err := p.s.Store.DeleteEndUserCredentials(ctx, g.OrgID, g.EndUserID, system); err != nil {
		return err
	}
	p.audit(ctx, g, "delete", system, trace)
	return nil
}

// audit writes what an end user changed, as the API does when a key changes the same.
func (p *Portal) audit(ctx context.Context, g *stepwell.Guest, verb, system, trace string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	e := stepwell.AuditEntry{OrgID: g.OrgID, UserID: g.EndUserID, Action: "end_user_credentials." + verb, TargetType: "end_user_credentials",
		Target: g.EndUserID + "/" + system, TraceID: trace}
	if err := p.s.Store.AddAudit(ctx, e); err != nil {
		p.s.Log.Error("a change is not in the audit log", zap.String("org", e.OrgID), zap.String("user", e.UserID), zap.String("action", e.Action),
			zap.String("target", e.Target), zap.String("trace", trace), zap.Error(err))
	}
}

// Authorize begins the sign-in at a system: with PKCE, and with a state that is good once,
// in this session, for ten minutes.
func (p *Portal) Authorize(ctx context.Context, g *stepwell.Guest, session, system, redirect string) (string, error) {
	y, settings, err := p.signInAt(ctx, g, system)
	if err != nil {
		return "", err
	}
	state, in := rand.Text(), stepwell.SignIn{System: y.ID, Environment: y.Environment, Verifier: oauth2.GenerateVerifier()}
	if err := p.s.Store.PutSignIn(ctx, portalHash(session), portalHash(state), in, time.Now().Add(signInLife)); err != nil {
		return "", err
	}
	c := oauth2.Config{ClientID: settings.ClientID, Endpoint: oauth2.Endpoint{AuthURL: settings.AuthURL}, RedirectURL: redirect, Scopes: strings.Fields(settings.Scopes)}
	return c.AuthCodeURL(state, oauth2.S256ChallengeOption(in.Verifier)), nil
}

// signInAt gives the settings of a system that is connected by signing in there.
func (p *Portal) signInAt(ctx context.Context, g *stepwell.Guest, system string) (*stepwell.System, oauth.Settings, error) {
	tenants, err := p.s.Store.TenantSystems(ctx, g.OrgID, g.EndUserID)
	if err != nil {
		return nil, oauth.Settings{}, err
	}
	for _, t := range tenants {
		if t.System.ID != system {
			continue
		}
		settings, ok := oauth.Read(&stepwell.BoundSystem{Values: t.System.Credentials})
		if !ok || settings.GrantType != oauth.GrantAuthorizationCode || settings.AuthURL == "" || settings.ClientID == "" {
			return nil, settings, stepwell.Invalid("no_sign_in", "Signing in at this system is not set up completely")
		}
		return t.System, settings, nil
	}
	return nil, oauth.Settings{}, stepwell.NotFound("System")
}

// Authorized exchanges the code of a sign-in for tokens and stores them as the end user's.
func (p *Portal) Authorized(ctx context.Context, g *stepwell.Guest, session, state, code, redirect, trace string) (string, error) {
	in, err := p.s.Store.TakeSignIn(ctx, portalHash(session), portalHash(state))
	if err != nil {
		return "", err
	}
	if code == "" {
		return "", stepwell.Invalid("sign_in_denied", "The sign-in was not completed, so nothing was connected")
	}
	y, settings, err := p.signInAt(ctx, g, in.System)
	if err != nil {
		return "", err
	}
	token, err := oauth.Ask(ctx, p.sender, &settings, url.Values{"grant_type": {oauth.GrantAuthorizationCode}, "code": {code},
		"redirect_uri": {redirect}, "code_verifier": {in.Verifier}})
	if err != nil {
		return "", p.notExchanged(y, code, &settings, trace, err)
	}
	values := map[string]string{}
	token.Into(values)
	if err := p.s.Store.PutEndUserToken(ctx, g.OrgID, g.EndUserID, y.ID, values); err != nil {
		return "", err
	}
	p.audit(ctx, g, "update", y.ID, trace)
	return y.ID, nil
}

// notExchanged logs why a token endpoint gave no token: that is the organization's to
// mend, and nothing that the end user could.
func (p *Portal) notExchanged(y *stepwell.System, code string, settings *oauth.Settings, trace string, err error) error {
	mask := secret.NewMasker([]string{code, settings.ClientSecret})
	p.s.Log.Warn("a sign-in was not exchanged for a token", zap.String("org", y.OrgID), zap.String("system", y.ID), zap.String("trace", trace),
		zap.String("reason", mask.Mask(err.Error())))
	var away *oauth.Unavailable
	if errors.As(err, &away) {
		return stepwell.Errorf(stepwell.KindUnavailable, "token_endpoint_away", "The system did not answer")
	}
	return stepwell.Invalid("sign_in_refused", "The system did not accept the sign-in, so nothing was connected")
}
