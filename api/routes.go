package api

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"stepwell"
)

// prefix stands before every path.
const prefix = "/v1"

// portalPath is where the pages for people begin; they are no part of the interface.
const portalPath = prefix + "/portal"

// bodyUse says what a route does with a request body.
type bodyUse int

const (
	noBody       bodyUse = iota // one that comes is read and dropped
	optionalBody                // absent means an empty object
	requiredBody
	anyBody // of any type, as it comes
)

// route is one row of the interface. A path with {toolId} or {runId} is about that
// tool or run: it is loaded first (404), then the permission is checked on it (403).
type route struct {
	method  string
	path    string
	needs   permission
	success int
	body    bodyUse
	long    bool // may wait or stream for long, so it counts apart from the others
	do      action
}

// routes is the whole interface. openapi.yaml describes the same, and a test
// compares them.
func (a *API) routes() []route {
	const (
		ok       = http.StatusOK
		created  = http.StatusCreated
		tool     = "/tools/{toolId}"
		versions = tool + "/versions"
		state    = tool + "/state"
		run      = "/runs/{runId}"
		key      = "/api-keys/{keyId}"
		system   = "/systems/{systemId}"
		endUser  = "/end-users/{endUserId}"
	)
	return []route{
		{"POST", tool + "/run", execute, ok, optionalBody, true, on(parseRunRequest, a.startRun)},
		{"POST", "/hooks/{toolId}", execute, http.StatusAccepted, anyBody, false, on(parseHook, a.hook)},
		{"GET", run, readRun, ok, noBody, false, on(nothing, a.getRun)},
		{"GET", run + "/results", readRun, ok, noBody, true, on(nothing, a.getResults)},
		{"GET", run + "/files", readRun, ok, noBody, false, on(nothing, a.getFiles)},
		{"GET", "/files/{link}", open, ok, noBody, true, on(nothing, a.download)},
		{"GET", run + "/events", readRun, ok, noBody, true, on(nothing, a.events)},
		{"GET", run + "/deliveries", read, ok, noBody, false, on(nothing, a.listDeliveries)},
		{"POST", "/deliveries/{deliveryId}/redeliver", edit, http.StatusAccepted, noBody, false, on(nothing, a.redeliver)},
		{"GET", "/webhook-secrets", administer, ok, noBody, false, on(nothing, a.listWebhookSecrets)},
		{"POST", "/webhook-secrets", administer, created, noBody, false, on(nothing, a.createWebhookSecret)},
		{"POST", run + "/rerun", steer, ok, optionalBody, true, on(parseRerunRequest, a.rerun)},
		{"POST", run + "/cancel", steer, ok, noBody, false, on(nothing, a.cancelRun)},
		{"POST", "/runs/cancel", steer, http.StatusAccepted, requiredBody, false, on(parseBulk(stepwell.BulkCancel), a.beginBulk)},
		{"POST", "/runs/rerun", steer, http.StatusAccepted, requiredBody, false, on(parseBulk(stepwell.BulkRerun), a.beginBulk)},
		{"GET", "/runs", readRun, ok, noBody, false, on(parseRunQuery, a.listRuns)},
		{"GET", "/runs/bulk/{bulkId}", steer, ok, noBody, false, on(nothing, a.getBulk)}, // after those of {runId}: a run's id may be bulk

		{"GET", tool, read, ok, noBody, false, on(nothing, a.getTool)},
		{"PUT", tool, edit, ok, requiredBody, false, on(parseToolUpdate, a.updateTool)},
		{"DELETE", tool, edit, ok, noBody, false, on(nothing, a.deleteTool)},
		{"GET", "/tools", read, ok, noBody, false, on(parseToolQuery, a.listTools)},
		{"POST", "/tools", edit, created, requiredBody, false, on(parseToolCreate, a.createTool)},
		{"GET", versions, read, ok, noBody, false, on(nothing, a.listVersions)},
		{"GET", versions + "/{version}", read, ok, noBody, false, on(nothing, a.getVersion)},
		{"POST", versions + "/{version}/restore", edit, ok, noBody, false, on(nothing, a.restoreVersion)},

		{"GET", "/systems", manage, ok, noBody, false, on(parsePageQuery, a.listSystems)},
		{"POST", "/systems", manage, created, requiredBody, false, on(parseSystemCreate, a.createSystem)},
		{"GET", system, manage, ok, noBody, false, on(readEnvironment, a.getSystem)},
		{"PATCH", system, manage, ok, requiredBody, false, on(parseSystemUpdate, a.updateSystem)},
		{"DELETE", system, manage, ok, noBody, false, on(readEnvironment, a.deleteSystem)},

		{"GET", state, read, ok, noBody, false, on(nothing, a.getState)},
		{"PUT", state, edit, ok, requiredBody, false, on(parseState, a.putState)},
		{"DELETE", state, edit, ok, noBody, false, on(nothing, a.resetState)},

		{"GET", "/me", known, ok, noBody, false, on(nothing, a.me)},
		{"GET", "/api-keys", administer, ok, noBody, false, on(parsePageQuery, a.listKeys)},
		{"POST", "/api-keys", administer, created, requiredBody, false, on(parseKeyCreate, a.createKey)},
		{"PATCH", key, administer, ok, requiredBody, false, on(parseKeyUpdate, a.updateKey)},
		{"DELETE", key, administer, ok, noBody, false, on(nothing, a.deleteKey)},
		{"GET", "/audit", administer, ok, noBody, false, on(parsePageQuery, a.listAudit)},

		{"GET", "/end-users", manage, ok, noBody, false, on(parsePageQuery, a.listEndUsers)},
		{"POST", "/end-users", manage, created, requiredBody, false, on(parseEndUserCreate, a.createEndUser)},
		{"GET", endUser, manage, ok, noBody, false, on(nothing, a.getEndUser)},
		{"PATCH", endUser, manage, ok, requiredBody, false, on(parseEndUserUpdate, a.updateEndUser)},
		{"DELETE", endUser, manage, ok, noBody, false, on(nothing, a.deleteEndUser)},
		{"POST", endUser + "/portal-token", manage, ok, noBody, false, on(nothing, a.portalLink)},
		{"PUT", endUser + "/credentials/{systemId}", connect, ok, requiredBody, false, on(parseEndUserCredentials, a.connectEndUser)},
		{"DELETE", endUser + "/credentials/{systemId}", connect, ok, noBody, false, on(nothing, a.disconnectEndUser)},

		{"GET", "/health", open, ok, noBody, false, on(nothing, a.health)},
		{"GET", "/health/ready", open, ok, noBody, false, on(nothing, a.ready)},
		{"GET", "/openapi.yaml", open, ok, noBody, false, on(nothing, a.openAPI)},
	}
}

// newRouter puts the routes behind gorilla/mux, one entry for each path. The router
// neither cleans paths nor redirects, and methods are looked up here, because a 405
// names those that exist.
func (a *API) newRouter() http.Handler {
	byPath := map[string]map[string]*route{}
	var order []string
	for _, rt := range a.routes() {
		if byPath[rt.path] == nil {
			byPath[rt.path] = map[string]*route{}
			order = append(order, rt.path)
		}
		byPath[rt.path][rt.method] = &rt
	}
	m := mux.NewRouter().SkipClean(true).UseEncodedPath()
	for _, path := range order {
		if slices.ContainsFunc(order, func(pattern string) bool { return covers(pattern, path) }) {
			// POST /runs/cancel is no run, GET /runs/cancel is one with this id.
			m.Handle(prefix+path, a.atPath(path, byPath[path])).Methods(slices.Collect(maps.Keys(byPath[path]))...)
		}
	}
	for _, path := range order {
		m.Handle(prefix+path, a.atPath(path, byPath[path]))
	}
	m.NotFoundHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, errNoPath, nil)
	})
	return m
}

// covers reports whether a pattern with variables matches a path without any.
func covers(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	if pattern == path || strings.Contains(path, "{") || len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !strings.HasPrefix(a[i], "{") {
			return false
		}
	}
	return true
}

// atPath serves one path by method.
func (a *API) atPath(path string, methods map[string]*route) http.Handler {
	var allow []string
	for method := range methods {
		allow = append(allow, method)
	}
	sort.Strings(allow)
	allowed := http.Header{"Allow": {strings.Join(allow, ", ")}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt := methods[r.Method]
		if rt == nil {
			a.refuse(w, r, errMethod, allowed)
			return
		}
		a.serve(w, r, rt, mux.Vars(r))
	})
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := canonicalPath(r.URL)
	if !ok {
		a.refuse(w, r, errNoPath, nil)
		return
	}
	if a.Portal != nil && (path == portalPath || strings.HasPrefix(path, portalPath+"/")) {
		started := time.Now()
		status := a.Portal.ServePortal(w, r, traceOf(r, ""))
		a.Measure(r.Method, "/portal", status, time.Since(started))
		return
	}
	u := *r.URL
	u.RawPath = path
	u.Path, _ = url.PathUnescape(path) // made of escapes just now
	routed := *r
	routed.URL = &u
	a.router.ServeHTTP(w, &routed)
}

// canonicalPath gives the path in the one spelling that the router matches: each
// segment decoded once and encoded again, without one slash at the end. Nothing is
// cleaned. ok is false when the path is no text that an id or a route could be.
func canonicalPath(u *url.URL) (path string, ok bool) {
	if strings.IndexByte(u.Path, 0) >= 0 || !utf8.ValidString(u.Path) {
		return "", false
	}
	path = strings.TrimSuffix(u.EscapedPath(), "/")
	if strings.IndexByte(path, '%') < 0 {
		return path, true
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return "", false
		}
		segments[i] = url.PathEscape(decoded)
	}
	return strings.Join(segments, "/"), true
}
