package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"stepwell"
	"stepwell/api/v1"
)

// want is a success: a request, and texts that the answer has and has not.
type want struct {
	name, method, path, key, body string
	header                        map[string]string
	status                        int
	has, hasNot                   []string
}

var successes = []want{
	{name: "health", method: "GET", path: "/health", key: "-", status: 200, has: []string{`"status":"ok"`}},
	{name: "ready", method: "GET", path: "/health/ready", key: "-", status: 200, has: []string{`"status":"ok"`, `"checks":{}`}},
	{name: "openapi", method: "GET", path: "/openapi.yaml", key: "-", status: 200, has: []string{"openapi: 3.0.3"}},
	{name: "me", method: "GET", path: "/me", status: 200, has: []string{`{"userId":"ann","orgId":"acme","orgName":"Acme","role":"admin"}`}},
	{name: "me of a runner", method: "GET", path: "/me", key: "runner-key", status: 200, has: []string{`"tools":["orders"]`}},
	{name: "me without tools", method: "GET", path: "/me/", key: "no-tools-key", status: 200, has: []string{`"tools":[]`}},
	{name: "key in the query", method: "GET", path: "/me?token=admin-key", key: "-", status: 200, has: []string{`"ann"`}},
	{name: "the same key twice", method: "GET", path: "/me?token=admin-key&token=admin-key", status: 200, has: []string{`"ann"`}},
	{name: "scheme in lower case", method: "GET", path: "/me", key: "-", header: map[string]string{"Authorization": "bearer  admin-key"}, status: 200, has: []string{`"ann"`}},
	{name: "another scheme and a token", method: "GET", path: "/me?token=admin-key", key: "-", header: map[string]string{"Authorization": "Basic eA=="}, status: 200, has: []string{`"ann"`}},
	{name: "trace id taken", method: "GET", path: "/me", header: map[string]string{"X-Trace-Id": "abc-1"}, status: 200},

	{name: "tools", method: "GET", path: "/tools", status: 200, has: []string{`"page":1,"limit":50,"total":3,"hasMore":true`, `"orders"`, `"refunds"`}, hasNot: []string{`"id":"archived"`, "null"}},
	{name: "tools with archived", method: "GET", path: "/tools/?includeArchived=true&page=2&limit=1000", status: 200, has: []string{`"id":"archived"`, `"page":2,"limit":1000`}},
	{name: "tools of a runner", method: "GET", path: "/tools", key: "runner-key", status: 200, has: []string{`"orders"`}, hasNot: []string{`"refunds"`}},
	{name: "no tools", method: "GET", path: "/tools", key: "no-tools-key", status: 200, has: []string{`{"data":[],`}},
	{name: "tool", method: "GET", path: "/tools/orders", status: 200, has: []string{`"createdAt":"2030-01-02T02:04:05.678Z"`, `<<(s) => s.id>>`, `"modify":true`}, hasNot: []string{"null"}},
	{name: "tool by an escaped path", method: "GET", path: "/t%6fols/order%73/", status: 200, has: []string{`"id":"orders"`}},
	{name: "create", method: "POST", path: "/tools", body: `{"id":"new","name":null,"version":7,"createdAt":{},"unknown":[],"steps":[{"id":"a","config":{"url":"http://a","headers":{"A":1,"B":null,"C":["x",true]},"pagination":{"type":"pageBased","pageSize":"10"}}}]}`,
		status: 201, has: []string{`"id":"new"`, `"version":"1.0.0"`, `"headers":{"A":1,"C":["x",true]}`, `"pageSize":"10"`}, hasNot: []string{"unknown", "null"}},
	{name: "create without an id, as a form type", method: "POST", path: "/tools", header: map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, body: `{"id":null,"outputTransform":"(s) => s"}`,
		status: 201, has: []string{`"steps":[]`, `"archived":false`}},
	{name: "update", method: "PUT", path: "/tools/orders", body: `{"name":null,"archived":true,"folder":"a/b"}`, status: 200, has: []string{`"archived":true`, `"folder":"a/b"`, `"fetch"`}, hasNot: []string{"Tool orders"}},
	{name: "update of steps", method: "PUT", path: "/tools/orders", body: `{"steps":[{"id":"b","config":{"url":"http://b"}}]}`, status: 200, has: []string{`"id":"b"`, `"name":"Tool orders"`}, hasNot: []string{"fetch"}},
	{name: "delete", method: "DELETE", path: "/tools/orders", status: 200, has: []string{`{"success":true}`}},
	{name: "versions", method: "GET", path: "/tools/orders/versions", status: 200, has: []string{`{"data":[{"id":"orders"`}},
	{name: "version", method: "GET", path: "/tools/orders/versions/1.0.0", status: 200, has: []string{`"version":"1.0.0"`}},
	{name: "state", method: "GET", path: "/tools/orders/state", key: "runner-key", status: 200, has: []string{`{"toolId":"orders","state":{"n":1}}`}},
	{name: "state replaced", method: "PUT", path: "/tools/orders/state", body: `{"state":{"x":null,"n":12345678901234567890}}`, status: 200, has: []string{`{"toolId":"orders","warnings":[]}`}},
	{name: "state reset", method: "DELETE", path: "/tools/orders/state", status: 200, has: []string{`{"toolId":"orders","deletedKeys":1}`}},
	{name: "restore", method: "POST", path: "/tools/orders/versions/1.0.0/restore", status: 200, has: []string{`"id":"orders"`}},

	{name: "systems", method: "GET", path: "/systems?page=1&limit=100", key: "member-key", status: 200, has: []string{`"page":1,"limit":100,"total":2,"hasMore":false`, `"environment":"dev"`, `"token":"[set]"`}, hasNot: []string{"very-secret", "null"}},
	{name: "system", method: "GET", path: "/systems/crm/", status: 200, has: []string{`"environment":"prod"`, `"credentialKeys":["access_token","client_id"`, `"metadata":{"team":"sales"}`, `"multiTenancyMode":"disabled"`}, hasNot: []string{"very-secret"}},
	{name: "system of dev", method: "GET", path: "/systems/crm?environment=dev", key: "limited-key", status: 200, has: []string{`"environment":"dev"`}},
	{name: "create a system", method: "POST", path: "/systems", body: `{"id":"a.b","name":null,"url":"http://x","credentials":{"b":"two-secret","a":"one-secret","n":null},"environment":"dev","multiTenancyMode":"enabled","metadata":{"a":null},"createdAt":1}`,
		status: 201, has: []string{`"id":"a.b"`, `"credentials":{"a":"[set]","b":"[set]"}`, `"credentialKeys":["a","b"]`, `"environment":"dev"`, `"multiTenancyMode":"enabled"`, `"metadata":{"a":null}`}, hasNot: []string{"secret"}},
	{name: "create a system of nothing", method: "POST", path: "/systems", body: `{}`, status: 201, has: []string{`"credentials":{}`, `"credentialKeys":[]`, `"environment":"prod"`, `"multiTenancyMode":"disabled"`}, hasNot: []string{"null", `"url"`}},
	{name: "credential keys given", method: "POST", path: "/systems", body: `{"credentials":{"a":"x"},"credentialKeys":["user","password"]}`, status: 201, has: []string{`"credentialKeys":["user","password"]`, `{"a":"[set]"}`}},
	{name: "no credential keys", method: "POST", path: "/systems", body: `{"credentials":{"a":"x"},"credentialKeys":[]}`, status: 201, has: []string{`"credentialKeys":[]`}},
	{name: "update a system", method: "PATCH", path: "/systems/crm?environment=dev", body: `{"id":"other","environment":"prod","name":null,"credentials":{"token":null,"client_id":"[set]","new":"very-secret"}}`,
		status: 200, has: []string{`"id":"crm"`, `"environment":"dev"`, `"new":"[set]"`, `"client_id":"[set]"`}, hasNot: []string{"very-secret", `"token":`, `"name"`}},
	{name: "a new access token has another end", method: "PATCH", path: "/systems/crm", body: `{"credentials":{"access_token":"x"}}`, status: 200, has: []string{`"access_token":"[set]"`}, hasNot: []string{`"expires_at"`}},
	{name: "clear a system", method: "PATCH", path: "/systems/crm", body: `{"url":null,"credentials":null,"credentialKeys":null,"multiTenancyMode":null,"metadata":null}`,
		status: 200, has: []string{`"credentials":{}`, `"credentialKeys":[]`, `"multiTenancyMode":"disabled"`}, hasNot: []string{`"url"`, `"metadata"`}},
	{name: "change nothing of a system", method: "PATCH", path: "/systems/crm", body: `{}`, status: 200, has: []string{`"token":"[set]"`}},
	{name: "delete a system", method: "DELETE", path: "/systems/crm", key: "member-key", status: 200, has: []string{`{"success":true}`}},

	{name: "run", method: "POST", path: "/tools/orders/run", status: 200, has: []string{`"status":"success"`, `"data":{"n":12345678901234567890}`, `"stepResults":[{"stepId":"fetch","success":true,"data":null}]`,
		`"toolPayload":{}`, `"important_notice":"soon"`, `"tool":{"id":"orders"`, `"requestSource":"api"`, `"executionMode":"prod"`, `"durationMs":1000`}},
	{name: "run with everything", method: "POST", path: "/tools/orders/run", key: "runner-key", body: `{"runId":"a.~:-","inputs":{"n":12345678901234567890.10,"x":null,"a":1,"a":2},"credentials":{"k":"very-secret"},
		"options":{"timeout":5e3,"mode":"dev","requestSource":"cli","traceId":"T.1","maxPages":7,"webhookUrl":"https://u:p@h/p?Token=abc&x=1"}}`,
		status: 200, has: []string{`"runId":"a.~:-"`, `"n":12345678901234567890.10`, `"x":null`, `"a":2`, `"timeout":5000`, `"mode":"dev"`, `"requestSource":"cli"`, `"traceId":"T.1"`, `"maxPages":7`, `Token=…&x=1`}, hasNot: []string{"very-secret", "abc", `"a":1`, "u:p"}},
	{name: "run with nulls", method: "POST", path: "/tools/orders/run", body: `{"runId":null,"inputs":null,"credentials":null,"options":null}`, status: 200, has: []string{`"toolPayload":{}`}},
	{name: "async run", method: "POST", path: "/tools/orders/run", body: `{"options":{"async":true,"webhookUrl":"tool:refunds"}}`, status: 202, has: []string{`"status":"running"`, `"async":true`, `"webhookUrl":"tool:refunds"`}, hasNot: []string{`"data"`, "completedAt"}},
	{name: "hook", method: "POST", path: "/hooks/orders?token=runner-key", key: "-", body: `{"a":1}`, status: 202, has: []string{`"runId":"`, `"status":"accepted","toolId":"orders"}`}},
	{name: "hook without a body", method: "POST", path: "/hooks/orders/?mode=dev", status: 202, has: []string{`"status":"accepted"`}},
	{name: "hook's challenge", method: "POST", path: "/hooks/orders", body: `{"challenge":"a\u003cb"}`, status: 200, has: []string{`{"challenge":"a`}},
	{name: "hook's challenge beside other fields", method: "POST", path: "/hooks/orders", body: `{"token":"t","challenge":"c","type":"url_verification"}`, status: 200, has: []string{`{"challenge":"c"}`}},
	{name: "hook's challenge in an event", method: "POST", path: "/hooks/orders", body: `{"challenge":"c","type":"event"}`, status: 202},
	{name: "hook's challenge that is no text", method: "POST", path: "/hooks/orders", body: `{"challenge":1}`, status: 202},
	{name: "runs", method: "GET", path: "/runs?status=success&requestSources=api,%20cli&startedAfter=2030-01-01T00:00:00%2B01:00&toolId=orders", status: 200, has: []string{`"run-3"`, `"run-1"`, `"important_notice":"soon"`, `token=…`}, hasNot: []string{`"run-2"`, `"data":{`, `"tool":`, "s3cret", "progress"}},
	{name: "runs of a runner", method: "GET", path: "/runs", key: "runner-key", status: 200, has: []string{`"run-1"`}, hasNot: []string{`"run-2"`}},
	{name: "finished run", method: "GET", path: "/runs/run-1", status: 200, has: []string{`"data":{"n":9007199254740993}`, `"durationMs":1500`, `"completedAt":"2030-01-02T02:04:07.178Z"`, `"tool":{`}, hasNot: []string{"s3cret", "stepResults", "resultStorageUri"}},
	{name: "failed run", method: "GET", path: "/runs/run-2", status: 200, has: []string{`"status":"failed"`, `"error":"Step 1 (fetch): HTTP 500"`}, hasNot: []string{`"data"`}},
	{name: "running run", method: "GET", path: "/runs/run-3/", status: 200, has: []string{`"progress":{"step":"fetch","page":3,"items":150,"bytes":4096,"waitingFor":{"reason":"Retry-After","until":"2030-01-02T02:04:05.678Z"}}`}, hasNot: []string{"completedAt", "durationMs"}},
	{name: "large run", method: "GET", path: "/runs/large", status: 200, has: []string{`"resultStorageUri":"http://example.com/v1/runs/large/results"`}, hasNot: []string{`"data"`}},
	{name: "results", method: "GET", path: "/runs/run-1/results", status: 200, has: []string{`{"success":true,"data":{"runId":"run-1","success":true,"toolPayload":{"a":null},"storedAt":"2030-01-02T02:04:05.678Z","fileArtifacts":[{"fileKey":"fetch.0.1.0",`, `"}],"data":{"n":9007199254740993},"stepResults":[{"stepId":"fetch","success":true,"pages":1,"items":0,"endedBy":"shortPage","data":[1,null]},{"stepId":"send","success":false,"error":"HTTP 500"}]}}`}},
	{name: "results while running", method: "GET", path: "/runs/run-3/results", status: 200, has: []string{`{"success":true,"message":"The run is still running`}},
	{name: "no results", method: "GET", path: "/runs/run-2/results", status: 200, has: []string{`{"success":true,"message":"No results`}},
	{name: "files", method: "GET", path: "/runs/run-1/files", status: 200, has: []string{`{"fileArtifacts":[{"fileKey":"fetch.0.1.0","filename":"Übersicht \"1\".png","contentType":"image/png","size":4,"downloadUrl":"http://example.com/v1/files/`}},
	{name: "no files", method: "GET", path: "/runs/run-3/files", status: 200, has: []string{`{"fileArtifacts":[]}`}},
	{name: "file", method: "GET", path: "/files/" + testLink(time.Hour), key: "-", status: 200, has: []string{"\x89PNG"}},
	{name: "events", method: "GET", path: "/runs/run-3/events", status: 200, has: []string{"event: status\nid: running\ndata: {\"runId\":\"run-3\"", "\n\nevent: progress\nid: running/fetch.0.3.150.4096.020405.678\ndata: {\"step\":\"fetch\",\"page\":3", "\n\nevent: status\nid: aborted\ndata: {"}, hasNot: []string{`"data":`}},
	{name: "events resumed", method: "GET", path: "/runs/run-3/events", header: map[string]string{"Last-Event-ID": "running/fetch.0.2.100.4000"}, status: 200, has: []string{"event: progress", "id: aborted"}, hasNot: []string{"id: running\n"}},
	{name: "events of an ended run", method: "GET", path: "/runs/run-1/events", header: map[string]string{"Last-Event-ID": "running"}, status: 200, has: []string{"event: status\nid: success"}, hasNot: []string{"progress", "9007199254740993"}},
	{name: "events seen", method: "GET", path: "/runs/run-1/events", header: map[string]string{"Last-Event-ID": "success"}, status: 204},
	{name: "cancel many", method: "POST", path: "/runs/cancel", body: `{"toolId":"orders","userId":"abc","status":"running","requestSources":"api,cli","startedAfter":"2030-01-02T03:04:05Z"}`, status: 202, has: []string{`"kind":"cancel","status":"running","total":3,"done":0`, `"errors":[]`}},
	{name: "cancel many, only counted", method: "POST", path: "/runs/cancel", body: `{"userId":"many","dryRun":true}`, status: 200, has: []string{`"status":"dry_run","total":12345`}, hasNot: []string{`"id"`}},
	{name: "rerun many of a runner", method: "POST", path: "/runs/rerun", key: "runner-key", body: `{"all":true,"id":"` + testBulk + `"}`, status: 202, has: []string{`"id":"` + testBulk + `","kind":"rerun"`, `"total":1,`}},
	{name: "bulk operation", method: "GET", path: "/runs/bulk/" + testBulk, status: 200, has: []string{`"status":"finished","total":3,"done":1,"skipped":1,"failed":1`, `"runId":"r1"`}},
	{name: "rerun", method: "POST", path: "/runs/run-1/rerun", body: `{"runId":"again","fromStep":"fetch","inputs":{"b":1},"options":{"maxPages":3,"webhookUrl":null}}`, status: 200,
		has: []string{`"runId":"again"`, `"toolPayload":{"b":1}`, `"maxPages":3`, `"timeout":1000`, `token=…`, `"status":"success"`}, hasNot: []string{"s3cret"}},
	{name: "rerun of a failed run", method: "POST", path: "/runs/run-2/rerun", body: `{"options":{"async":true},"toolVersion":"1.0.0","inputs":{"a":null}}`, status: 202, has: []string{`"toolId":"refunds"`, `"toolPayload":{"a":null}`}},
	{name: "cancel", method: "POST", path: "/runs/run-3/cancel", body: "ignored", status: 200, has: []string{`"status":"aborted"`, `"error":"Run cancelled by user"`}},

	{name: "audit", method: "GET", path: "/audit", status: 200, has: []string{`{"id":"a2","createdAt":"2030-01-02T02:04:05.678Z","userId":"ann","action":"tool.update","targetType":"tool","target":"orders","traceId":"t"}`, `"total":2`}, hasNot: []string{`"traceId":""`}},
	{name: "end users", method: "GET", path: "/end-users", status: 200, has: []string{`"externalId":"u-1"`, `"hasMore":false`}, hasNot: []string{"credentials", "apiKey"}},
	{name: "end user made", method: "POST", path: "/end-users", body: `{"externalId":"u-2","email":"b@example.com","name":"B","metadata":{"a":null},"allowedSystems":["*"]}`, status: 201, has: []string{`{"success":true,"data":{"id":"` + testEndUser + `","externalId":"u-2"`, `"metadata":{"a":null}`, `"allowedSystems":["*"]`, `"apiKey":"sw_secret of "`}},
	{name: "end user made with a limited key", method: "POST", path: "/end-users", key: "limited-key", body: `{"email":null}`, status: 201, has: []string{`"allowedSystems":[]`, `"apiKey":"sw_secret of orders"`}},
	{name: "end user", method: "GET", path: "/end-users/" + strings.ToUpper(testEndUser), status: 200, has: []string{`{"data":{"id":"` + testEndUser, `"credentials":[{"systemId":"crm","systemName":"CRM","hasCredentials":true}]`}, hasNot: []string{"success", "apiKey"}},
	{name: "end user changed", method: "PATCH", path: "/end-users/" + testEndUser, body: `{"externalId":"u-3","email":null,"allowedSystems":null}`, status: 200, has: []string{`"success":true`, `"externalId":"u-3"`, `"name":"Ann"`, `"allowedSystems":[]`}, hasNot: []string{"email"}},
	{name: "end user removed", method: "DELETE", path: "/end-users/" + testEndUser, status: 200, has: []string{`{"success":true}`}},
	{name: "end user connected", method: "PUT", path: "/end-users/" + testEndUser + "/credentials/crm", key: "user-key", body: `{"credentials":{"token":"very-secret","old":null}}`, status: 200, has: []string{`{"success":true}`}, hasNot: []string{"very-secret"}},
	{name: "end user disconnected", method: "DELETE", path: "/end-users/" + testEndUser + "/credentials/crm", key: "user-key", status: 200, has: []string{`{"success":true}`}},
	{name: "portal link", method: "POST", path: "/end-users/" + testEndUser + "/portal-token", status: 200, has: []string{`{"success":true,"data":{"portalUrl":"http://example.com/v1/portal?token=TOKEN","expiresAt":"2030-01-02T02:04:05.678Z"}}`}},
	{name: "runs of an end user", method: "GET", path: "/runs", key: "user-key", status: 200, has: []string{`"theirs"`, `"total":1`}, hasNot: []string{`"run-1"`}},
	{name: "me of an end user", method: "GET", path: "/me", key: "user-key", status: 200, has: []string{`"role":"end_user"`}, hasNot: []string{"tools"}},
	{name: "deliveries", method: "GET", path: "/runs/run-1/deliveries", key: "runner-key", status: 200, has: []string{`{"data":[{"id":"d1","runId":"run-1","webhookId":"msg_d1","url":"https://…@h/p?token=…","status":"pending","createdAt":"2030-01-02T02:04:05.678Z","nextAttemptAt":"2030-01-02T02:04:05.678Z","attempts":[{"startedAt":"2030-01-02T02:04:05.678Z","durationMs":5,"responseStatus":500,"error":"no"}]}]}`}},
	{name: "no deliveries", method: "GET", path: "/runs/run-3/deliveries", status: 200, has: []string{`{"data":[]}`}},
	{name: "redeliver", method: "POST", path: "/deliveries/d1/redeliver", key: "limited-key", body: "ignored", status: 202, has: []string{`"webhookId":"msg_d1"`}},
	{name: "webhook secrets", method: "GET", path: "/webhook-secrets", status: 200, has: []string{`{"data":[{"id":"w2","secret":"whsec_bmV3","createdAt":"2030-01-02T02:04:05.678Z"},{"id":"w1","secret":"whsec_b2xk",`, `"expiresAt":"2030-01-02T02:04:05.678Z"}]}`}},
	{name: "webhook secret made", method: "POST", path: "/webhook-secrets/", status: 201, has: []string{`{"id":"w3","secret":"whsec_bmV3ZXI=",`}, hasNot: []string{"expiresAt"}},

	{name: "keys", method: "GET", path: "/api-keys", status: 200, has: []string{`"id":"k1"`, `"tools":[]`, `"hasMore":false`}, hasNot: []string{`"key"`}},
	{name: "key made", method: "POST", path: "/api-keys", body: `{"name":"ci","role":"runner","tools":["orders"],"expiresAt":"2999-01-01T00:00:00+01:00"}`, status: 201, has: []string{`"key":"sw_secret"`, `"userId":"k9"`, `"role":"runner"`, `"tools":["orders"]`, `"expiresAt":"2998-12-31T23:00:00.000Z"`}},
	{name: "key changed", method: "PATCH", path: "/api-keys/k3", body: `{"tools":null,"expiresAt":null,"name":"n"}`, status: 200, has: []string{`"name":"n"`, `"role":"runner"`}, hasNot: []string{"tools", "expiresAt"}},
	{name: "key unchanged", method: "PATCH", path: "/api-keys/k3", body: `{}`, status: 200, has: []string{`"tools":[]`, "expiresAt"}},
	{name: "key removed", method: "DELETE", path: "/api-keys/k3", status: 200, has: []string{`{"success":true}`}},
}

// testLink is a link to the file of run-1 that expires after some time.
func testLink(after time.Duration) string {
	sealed, err := testRing.Seal(fmt.Appendf(nil, `{"o":"acme","r":"run-1","k":"fetch.0.1.0","e":%d}`, time.Now().Add(after).Unix()), linkPlace)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// TestFileLinks downloads by a link that an answer gave, and not by another.
func TestFileLinks(t *testing.T) {
	t.Parallel()
	h := newTestAPI(newMemory(), nil)
	_, body := adminAsks(t, h, "GET", "/runs/run-1", "")
	var run v1.Run
	if err := json.Unmarshal([]byte(body), &run); err != nil || len(run.FileArtifacts) != 1 {
		t.Fatal(err, body)
	}
	link := strings.TrimPrefix(run.FileArtifacts[0].DownloadURL, "http://example.com")
	res, content := ask(h, newRequest(t, "GET", link, nil))
	if res.StatusCode != 200 || string(content) != "\x89PNG" || res.Header.Get("Content-Type") != "image/png" || res.Header.Get("Content-Length") != "4" ||
		res.Header.Get("Content-Disposition") != "attachment; filename*=utf-8''%C3%9Cbersicht%20%221%22.png" {
		t.Errorf("%d %v %q", res.StatusCode, res.Header, content)
	}
	_, list := adminAsks(t, h, "GET", "/runs", "")
	if !strings.Contains(list, "fetch.0.1.0") || strings.Contains(list, "downloadUrl") {
		t.Error("a list shows links, or no files: ", list)
	}
	for name, bad := range map[string]string{"expired": testLink(-time.Second), "changed": strings.Replace(link[len("/v1/files/"):], link[100:110], "AAAAAAAAAA", 1), "cut": "abc", "no base64": "%21"} {
		if res, body := ask(h, newRequest(t, "GET", "/v1/files/"+bad, nil)); res.StatusCode != 404 || !strings.Contains(string(body), "File not found") {
			t.Errorf("%s link: %d %s", name, res.StatusCode, body)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	doc := loadDocument(t)
	for _, c := range successes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			m.finish = func(_ NewRun, r *stepwell.Run) {
				r.Data, r.DataSize = json.RawMessage(`{"n":12345678901234567890}`), 26
				r.StepResults = []stepwell.StepResult{{StepID: "fetch", Success: true, Data: json.RawMessage("null")}}
			}
			large := m.ended("large", "orders", stepwell.RunSuccess, "")
			large.Error, large.DataSize = "", stepwell.MaxInlineData+1
			m.runs["acme/large"] = large
			h := newTestAPI(m, func(c *Config) { c.Notice = "soon" })
			req := newRequest(t, c.method, prefix+c.path, strings.NewReader(c.body))
			if c.key == "" {
				c.key = "admin-key"
			}
			if c.key != "-" {
				req.Header.Set("Authorization", "Bearer "+c.key)
			}
			for name, v := range c.header {
				req.Header.Set(name, v)
			}
			res, body := ask(h, req)
			if res.StatusCode != c.status {
				t.Fatalf("status %d %s", res.StatusCode, body)
			}
			for _, s := range c.has {
				if !strings.Contains(string(body), s) {
					t.Errorf("no %s in %s", s, body)
				}
			}
			for _, s := range c.hasNot {
				if strings.Contains(string(body), s) {
					t.Errorf("%s in %s", s, body)
				}
			}
			if want := c.header["X-Trace-Id"]; want != "" && res.Header.Get("X-Trace-Id") != want {
				t.Errorf("trace id %q", res.Header.Get("X-Trace-Id"))
			}
			path := strings.NewReplacer("/t%6fols/order%73", "/tools/orders").Replace(prefix + c.path)
			doc.check(t, c.method, path, res, body)
		})
	}
}

// TestEveryRouteAnswers makes sure that a new route comes with a success above.
func TestEveryRouteAnswers(t *testing.T) {
	t.Parallel()
	for _, rt := range newTestAPI(newMemory(), nil).routes() {
		pattern := strings.Split(prefix+rt.path, "/")
		found := false
		for _, c := range successes {
			path, _, _ := strings.Cut(c.path, "?")
			parts := strings.Split(prefix+strings.TrimSuffix(path, "/"), "/")
			same := c.method == rt.method && len(parts) == len(pattern)
			for i := 0; same && i < len(parts); i++ {
				same = parts[i] == pattern[i] || strings.HasPrefix(pattern[i], "{")
			}
			found = found || same
		}
		if !found {
			t.Errorf("no success of %s %s is tested", rt.method, rt.path)
		}
	}
}

// adminAsks sends a request with the admin key.
func adminAsks(t *testing.T, h http.Handler, method, path, body string) (*http.Response, string) {
	t.Helper()
	req := newRequest(t, method, prefix+path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer admin-key")
	res, b := ask(h, req)
	return res, string(b)
}

// TestChainsDoNotWidenAKey: a key that may run one tool does not reach others through its
// chain, however long; a chain without an end stops the check, too.
func TestChainsDoNotWidenAKey(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.addCaller("two-key", stepwell.Caller{OrgID: "acme", KeyID: "k9", UserID: "two", Role: stepwell.RoleRunner, Tools: []string{"orders", "second"}})
	second := *m.tools["acme/refunds"][0]
	second.ID = "second"
	m.tools["acme/second"] = []*stepwell.Tool{&second}
	m.tools["acme/orders"][0].WebhookURL = "tool:second"
	h := newTestAPI(m, nil)
	for target, want := range map[string]int{"tool:refunds": 403, "tool:orders": 202, "tool:gone": 202, "": 202, "https://example.com/": 202} {
		second.WebhookURL = target
		req := newRequest(t, "POST", prefix+"/tools/orders/run", strings.NewReader(`{"options":{"async":true}}`))
		req.Header.Set("Authorization", "Bearer two-key")
		if res, body := ask(h, req); res.StatusCode != want {
			t.Errorf("a chain on to %q: %d %s", target, res.StatusCode, body)
		}
	}
}

func TestRunReachesRunner(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.tools["acme/orders"][0].WebhookURL = "tool:refunds"
	h := newTestAPI(m, nil)
	res, body := adminAsks(t, h, "POST", "/tools/orders/run", `{"inputs":{"a":1.0},"credentials":{"k":"v"},"options":{"async":true}}`)
	if res.StatusCode != 202 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	n := m.last
	if len(n.ID) != 36 || string(n.Inputs) != `{"a":1.0}` || string(n.Credentials) != `{"k":"v"}` || n.Tool.ID != "orders" || n.Caller.UserID != "ann" {
		t.Errorf("run is %+v", n)
	}
	if o := n.Options; o.WebhookURL != "tool:refunds" || o.Mode != "prod" || o.RequestSource != "api" || o.TraceID != res.Header.Get("X-Trace-Id") || !o.Async {
		t.Errorf("options are %+v", o)
	}
	m.tools["acme/refunds"][0].WebhookURL = "nonsense"
	if res, body := adminAsks(t, h, "POST", "/tools/refunds/run", ""); res.StatusCode != 400 || !strings.Contains(body, "The tool's 'webhookUrl'") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	res, _ = adminAsks(t, h, "POST", "/tools/orders/run", `{"options":{"traceId":"mine"}}`)
	if got := res.Header.Get("X-Trace-Id"); got != "mine" || m.last.Options.TraceID != "mine" {
		t.Errorf("trace id %q", got)
	}
}

func TestSyncRun(t *testing.T) {
	t.Parallel()
	t.Run("waits no longer than its limit", func(t *testing.T) {
		t.Parallel()
		m := newMemory()
		m.hold = make(chan struct{})
		res, body := adminAsks(t, newTestAPI(m, func(c *Config) { c.SyncWait = time.Millisecond }), "POST", "/tools/orders/run", "")
		if res.StatusCode != 202 || !strings.Contains(body, `"status":"running"`) {
			t.Errorf("%d %s", res.StatusCode, body)
		}
	})
	t.Run("failed is 200", func(t *testing.T) {
		t.Parallel()
		m := newMemory()
		m.finish = func(_ NewRun, r *stepwell.Run) { r.Status, r.Error = stepwell.RunFailed, "Step 1 (fetch): no" }
		res, body := adminAsks(t, newTestAPI(m, nil), "POST", "/tools/orders/run", "")
		if res.StatusCode != 200 || !strings.Contains(body, `"status":"failed"`) {
			t.Errorf("%d %s", res.StatusCode, body)
		}
	})
	t.Run("large data is whole, large step data is left out", func(t *testing.T) {
		t.Parallel()
		m := newMemory()
		data := `"` + strings.Repeat("d", 3<<20) + `"`
		m.finish = func(_ NewRun, r *stepwell.Run) {
			r.Data, r.DataSize = json.RawMessage(data), int64(len(data))
			r.StepResults = []stepwell.StepResult{{StepID: "big", Success: true, Data: json.RawMessage(data)}, {StepID: "small", Success: true, Data: json.RawMessage(`1`)}}
		}
		_, body := adminAsks(t, newTestAPI(m, nil), "POST", "/tools/orders/run", "")
		var run struct {
			Data             string
			ResultStorageURI string `json:"resultStorageUri"`
			StepResults      []map[string]any
		}
		if err := json.Unmarshal([]byte(body), &run); err != nil {
			t.Fatal(err)
		}
		if len(run.Data) != 3<<20 || run.ResultStorageURI == "" || len(run.StepResults) != 2 || run.StepResults[0]["data"] != nil || run.StepResults[1]["data"] != 1.0 {
			t.Errorf("%d bytes, uri %q, steps %d", len(run.Data), run.ResultStorageURI, len(run.StepResults))
		}
	})
	t.Run("data of any size is streamed, and cut off where it breaks", func(t *testing.T) {
		t.Parallel()
		m := newMemory()
		m.finish = func(_ NewRun, r *stepwell.Run) {
			r.DataSize = 3 << 20
			r.StepResults = []stepwell.StepResult{{StepID: "big", Success: true}}
		}
		m.large = writes(`"` + strings.Repeat("d", 3<<20) + `"`)
		res, body := adminAsks(t, newTestAPI(m, nil), "POST", "/tools/orders/run", "")
		var run v1.Run
		if err := json.Unmarshal([]byte(body), &run); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != 200 || len(run.Data) != 3<<20+2 || run.Status != "success" || len(run.StepResults) != 1 || run.ResultStorageURI == "" {
			t.Errorf("%d: %d bytes, %s, steps %d", res.StatusCode, len(run.Data), run.Status, len(run.StepResults))
		}
		m.large = func(context.Context, io.Writer) error { return errors.New("no memory") }
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				t.Errorf("a run whose data cannot be read was answered as a whole: %v", v)
			}
		}()
		adminAsks(t, newTestAPI(m, nil), "POST", "/tools/orders/run", "")
	})
}

func TestFailures(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		err    error
		status int
		code   string
		retry  string
		logged bool
	}{
		{"any error says nothing", errors.New("dial tcp 10.0.0.1: refused"), 500, "internal", "", true},
		{"an internal error says nothing", stepwell.Errorf(stepwell.KindInternal, "x", "10.0.0.1"), 500, "internal", "", true},
		{"unavailable", stepwell.Errorf(stepwell.KindUnavailable, "unavailable", "The database is away"), 503, "unavailable", "2", true},
		{"cancelled by our own limit", context.Canceled, 503, "unavailable", "2", true},
		{"deadline", context.DeadlineExceeded, 503, "unavailable", "2", true},
		{"rate limited", stepwell.Errorf(stepwell.KindRateLimited, "too_many_runs", "Too many unfinished runs"), 429, "too_many_runs", "10", false},
		{"a kind without a code", stepwell.Errorf(stepwell.KindConflict, "", "Taken"), 409, "conflict", "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			m.fail = c.err
			core, logs := observer.New(zapcore.WarnLevel)
			res, body := adminAsks(t, newTestAPI(m, func(c *Config) { c.Log = zap.New(core) }), "GET", "/tools?token=admin-key", "")
			if res.StatusCode != c.status || !strings.Contains(body, `"code":"`+c.code+`"`) || strings.Contains(body, "10.0.0.1") || res.Header.Get("Retry-After") != c.retry {
				t.Errorf("%d %s, Retry-After %q", res.StatusCode, body, res.Header.Get("Retry-After"))
			}
			if (logs.Len() == 1) != c.logged {
				t.Errorf("%d log lines", logs.Len())
			}
			for _, e := range logs.All() {
				if b, _ := json.Marshal(e.ContextMap()); strings.Contains(string(b), "admin-key") || !strings.Contains(string(b), res.Header.Get("X-Trace-Id")) {
					t.Errorf("log line %s", b)
				}
			}
		})
	}
}

func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.finish = func(NewRun, *stepwell.Run) { panic("boom") }
	core, logs := observer.New(zapcore.ErrorLevel)
	h := newTestAPI(m, func(c *Config) { c.Log = zap.New(core) })
	res, body := adminAsks(t, h, "POST", "/tools/orders/run", "")
	if res.StatusCode != 500 || !strings.Contains(body, `"code":"internal"`) || strings.Contains(body, "boom") || res.Header.Get("X-Trace-Id") == "" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if logs.FilterMessage("panic in a handler").Len() != 1 {
		t.Error("the panic is not logged")
	}
	if h.waiting.Load() != 0 {
		t.Error("the place is still taken")
	}
}

func TestOverload(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.hold = make(chan struct{})
	h := newTestAPI(m, func(c *Config) { c.MaxWaiting, c.MaxInFlight, c.BodyMemory = 1, 1, 8<<10 })
	first := make(chan int)
	go func() {
		res, _ := adminAsks(t, h, "POST", "/tools/orders/run", "{}")
		first <- res.StatusCode
	}()
	waitFor(t, func() bool { return h.waiting.Load() == 1 })
	res, body := adminAsks(t, h, "POST", "/tools/orders/run", "")
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "overloaded") {
		t.Errorf("second run: %d %s", res.StatusCode, body)
	}
	if res, _ := adminAsks(t, h, "GET", "/runs/run-1", ""); res.StatusCode != 200 {
		t.Errorf("a read beside a waiting run: %d", res.StatusCode)
	}
	if res, _ := adminAsks(t, h, "PUT", "/tools/orders", `{"name":"`+strings.Repeat("n", 16<<10)+`"}`); res.StatusCode != 503 {
		t.Errorf("body beyond the memory for bodies: %d", res.StatusCode)
	}
	h.inFlight.Add(1)
	if res, _ := adminAsks(t, h, "GET", "/runs/run-1", ""); res.StatusCode != 503 {
		t.Errorf("second request: %d", res.StatusCode)
	}
	if res, _ := adminAsks(t, h, "GET", "/health", ""); res.StatusCode != 200 {
		t.Errorf("health when full: %d", res.StatusCode)
	}
	close(m.hold)
	if status := <-first; status != 202 {
		t.Errorf("first run: %d", status)
	}
}

// hangs is a store that never answers.
type hangs struct{ memoryRuns }

func (hangs) List(ctx context.Context, _ string, _ RunQuery) (l Listed[*stepwell.Run], err error) {
	<-ctx.Done()
	return l, fmt.Errorf("list: %w", ctx.Err())
}

func (hangs) Results(context.Context, string, string) (*Results, error) {
	return &Results{Data: func(ctx context.Context, _ io.Writer) error {
		<-ctx.Done()
		return ctx.Err()
	}}, nil
}

func TestHangingPortIsGivenUp(t *testing.T) {
	t.Parallel()
	m := newMemory()
	h := newTestAPI(m, func(c *Config) { c.Runs, c.SyncWait = hangs{memoryRuns{m}}, time.Millisecond })
	h.patience = 20 * time.Millisecond
	for _, path := range []string{"/runs", "/runs/run-1/results"} {
		if res, body := adminAsks(t, h, "GET", path, ""); res.StatusCode != 503 || !strings.Contains(body, "took too long") {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

func TestListsLeaveLargeInputsOut(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.runs["acme/run-1"].Inputs = json.RawMessage(`{"a":"` + strings.Repeat("a", stepwell.MaxInlineData) + `"}`)
	h := newTestAPI(m, nil)
	if _, body := adminAsks(t, h, "GET", "/runs", ""); strings.Contains(body, "aaaa") || strings.Count(body, "toolPayload") != 3 {
		t.Errorf("%.200s", body)
	}
	if _, body := adminAsks(t, h, "GET", "/runs/run-1", ""); !strings.Contains(body, "aaaa") {
		t.Errorf("%.200s", body)
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	away := errors.New("dial tcp 10.1.2.3:5432: no")
	for _, test := range []struct {
		name   string
		checks []Check
		status int
		want   string
	}{
		{"all is there", []Check{{"postgres", true, nil}, {"temporal", false, nil}}, 200, `"status":"ok","checks":{"postgres":"ok","temporal":"ok"}`},
		{"one that can wait", []Check{{"postgres", true, nil}, {"temporal", false, away}}, 200, `"status":"degraded","checks":{"postgres":"ok","temporal":"down"}`},
		{"one that is needed", []Check{{"postgres", true, away}, {"temporal", false, away}}, 503, `it lacks: postgres. Try`},
	} {
		h := newTestAPI(newMemory(), func(c *Config) { c.Ready = func(context.Context) []Check { return test.checks } })
		res, body := adminAsks(t, h, "GET", "/health/ready", "")
		if res.StatusCode != test.status || !strings.Contains(body, test.want) || strings.Contains(body, "10.1.2.3") {
			t.Errorf("%s: %d %s", test.name, res.StatusCode, body)
		}
		if test.status == 503 && res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", test.name)
		}
		loadDocument(t).check(t, "GET", "/v1/health/ready", res, []byte(body))
		if res, body := adminAsks(t, h, "GET", "/health", ""); res.StatusCode != 200 {
			t.Errorf("%s: the server lives, and says %d %s", test.name, res.StatusCode, body)
		}
	}
}

// TestMeasure checks what is counted of each answer: routes, not paths, and nothing of a
// caller's invention.
func TestMeasure(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	h := newTestAPI(newMemory(), func(c *Config) {
		c.Measure = func(method, route string, status int, took time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprint(method, " ", route, " ", status))
			if took <= 0 {
				t.Errorf("%s took %s", route, took)
			}
		}
	})
	adminAsks(t, h, "GET", "/tools/none", "")
	adminAsks(t, h, "GET", "/health", "")
	adminAsks(t, h, "GET", "/wp-login.php", "")
	if want := "GET /tools/{toolId} 404, GET /health 200, GET  404"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", strings.Join(got, ", "), want)
	}
}

func TestLinksUsePublicAddress(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.runs["acme/run-1"].DataSize = stepwell.MaxInlineData + 1
	_, body := adminAsks(t, newTestAPI(m, func(c *Config) { c.PublicURL = "https://tools.example.com/v1/" }), "GET", "/runs/run-1", "")
	if !strings.Contains(body, `"resultStorageUri":"https://tools.example.com/v1/runs/run-1/results"`) {
		t.Error(body)
	}
}

// waitFor polls until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func TestResultsStream(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("x", 10_000)
	many := func(parts int, end error) JSONWriter {
		return func(_ context.Context, w io.Writer) error {
			io.WriteString(w, `"`)
			for range parts {
				if _, err := io.WriteString(w, part); err != nil {
					return err
				}
			}
			if end != nil {
				return end
			}
			_, err := io.WriteString(w, `"`)
			return err
		}
	}
	get := func(t *testing.T, data JSONWriter) (*http.Response, []byte, error) {
		t.Helper()
		m := newMemory()
		m.results["acme/run-1"].Data = data
		srv := httptest.NewServer(newTestAPI(m, nil))
		t.Cleanup(srv.Close)
		res, err := http.Get(srv.URL + "/v1/runs/run-1/results?token=admin-key")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return res, body, err
	}
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		res, body, err := get(t, many(1000, nil))
		var out struct{ Data struct{ Data string } }
		if err != nil || json.Unmarshal(body, &out) != nil || len(out.Data.Data) != 10_000_000 || res.ContentLength >= 0 {
			t.Errorf("%v, %d bytes", err, len(body))
		}
	})
	t.Run("an early error is an answer", func(t *testing.T) {
		t.Parallel()
		res, body, err := get(t, many(1, errors.New("blob is away")))
		if err != nil || res.StatusCode != 500 || !strings.Contains(string(body), `"code":"internal"`) {
			t.Errorf("%v %d %s", err, res.StatusCode, body)
		}
	})
	t.Run("a late error cuts off", func(t *testing.T) {
		t.Parallel()
		res, body, err := get(t, many(100, errors.New("blob is away")))
		if err == nil || res.StatusCode != 200 {
			t.Errorf("%v %d, %d bytes", err, res.StatusCode, len(body))
		}
	})
}
