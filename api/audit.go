package api

import (
	"context"
	"strings"
	"time"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/api/v1"
)

// Audit keeps who changed what.
type Audit interface {
	// Add adds a row, whose ID and CreatedAt it makes.
	Add(ctx context.Context, e stepwell.AuditEntry) error
	// List gives the rows of an organization.
	List(ctx context.Context, orgID string, page, limit int) (Listed[*stepwell.AuditEntry], error)
}

// audited is what the audit log says of a route.
type audited struct {
	action string // `<target type>.<verb>`; clients know it, so it never changes. Empty: nothing
	// target names what was changed, made of the path's variables; empty means what the
	// answer says that was made.
	target string
	why    string // with an empty action: why the log has nothing to say
}

const runsAreRows = "the run's own row says who started it"

// auditLog is what the log says of every route that can change something. A test asks
// each such route for its row here.
var auditLog = map[[2]string]audited{
	{"POST", "/tools"}:                                     {action: "tool.create"},
	{"PUT", "/tools/{toolId}"}:                             {action: "tool.update", target: "{toolId}"},
	{"DELETE", "/tools/{toolId}"}:                          {action: "tool.delete", target: "{toolId}"},
	{"POST", "/tools/{toolId}/versions/{version}/restore"}: {action: "tool.restore", target: "{toolId}"},

	{"POST", "/tools/{toolId}/run"}:  {why: runsAreRows},
	{"POST", "/runs/{runId}/rerun"}:  {why: runsAreRows},
	{"POST", "/runs/{runId}/cancel"}: {action: "run.cancel", target: "{runId}"},

	{"POST", "/runs/cancel"}: {action: "bulk.cancel"},
	{"POST", "/runs/rerun"}:  {action: "bulk.rerun"},

	{"POST", "/hooks/{toolId}"}: {why: runsAreRows},

	{"POST", "/deliveries/{deliveryId}/redeliver"}: {action: "delivery.redeliver", target: "{deliveryId}"},
	{"POST", "/webhook-secrets"}:                   {action: "webhook_secret.create"},

	{"PUT", "/tools/{toolId}/state"}:    {action: "state.update", target: "{toolId}"},
	{"DELETE", "/tools/{toolId}/state"}: {action: "state.reset", target: "{toolId}"},

	{"POST", "/systems"}:              {action: "system.create"},
	{"PATCH", "/systems/{systemId}"}:  {action: "system.update", target: "{systemId}"},
	{"DELETE", "/systems/{systemId}"}: {action: "system.delete", target: "{systemId}"},

	{"POST", "/api-keys"}:           {action: "key.create"},
	{"PATCH", "/api-keys/{keyId}"}:  {action: "key.update", target: "{keyId}"},
	{"DELETE", "/api-keys/{keyId}"}: {action: "key.delete", target: "{keyId}"},

	{"POST", "/end-users"}:                                      {action: "end_user.create"},
	{"PATCH", "/end-users/{endUserId}"}:                         {action: "end_user.update", target: "{endUserId}"},
	{"DELETE", "/end-users/{endUserId}"}:                        {action: "end_user.delete", target: "{endUserId}"},
	{"POST", "/end-users/{endUserId}/portal-token"}:             {action: "portal_link.create", target: "{endUserId}"},
	{"PUT", "/end-users/{endUserId}/credentials/{systemId}"}:    {action: "end_user_credentials.update", target: "{endUserId}/{systemId}"},
	{"DELETE", "/end-users/{endUserId}/credentials/{systemId}"}: {action: "end_user_credentials.delete", target: "{endUserId}/{systemId}"},
}

// auditTimeout bounds the writing of a row.
const auditTimeout = 5 * time.Second

// record writes the audit row of a change that was made, before its answer: who has seen
// the answer finds the row. It is a statement of its own, after the change, so that a
// process that dies, or loses Postgres, between the two leaves a change without a row; the
// latter is logged in its place. A caller who hangs up does not stop it.
func (a *API) record(ctx context.Context, req *request, rt *route, res *response) {
	log := auditLog[[2]string{rt.method, rt.path}]
	if log.action == "" || log.target == "" && res.made == "" { // a dry run makes nothing
		return
	}
	e := stepwell.AuditEntry{OrgID: req.caller.OrgID, UserID: req.caller.UserID, Action: log.action, Target: res.made, TraceID: req.trace}
	e.TargetType, _, _ = strings.Cut(log.action, ".")
	if log.target != "" {
		e.Target = log.target
		for name, value := range req.vars {
			e.Target = strings.ReplaceAll(e.Target, "{"+name+"}", value)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	if err := a.Audit.Add(ctx, e); err != nil {
		a.Log.Error("a change is not in the audit log", zap.String("org", e.OrgID), zap.String("user", e.UserID), zap.String("action", e.Action),
			zap.String("target", e.Target), zap.String("trace", e.TraceID), zap.Error(err))
	}
}

func (a *API) listAudit(ctx context.Context, req *request, in pageQuery) (*response, error) {
	l, err := a.Audit.List(ctx, req.caller.OrgID, in.page, in.limit)
	if err != nil {
		return nil, err
	}
	wire := func(e *stepwell.AuditEntry) v1.AuditEntry {
		return v1.AuditEntry{ID: e.ID, CreatedAt: wireTime(e.CreatedAt), UserID: e.UserID, Action: e.Action, TargetType: e.TargetType, Target: e.Target, TraceID: e.TraceID}
	}
	return &response{body: wireList(l, in.page, in.limit, wire)}, nil
}
