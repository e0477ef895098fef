package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"stepwell"
	"stepwell/engine"
)

// TestValidateTool holds each message of a tool that must not be saved; "" is a
// tool that may be.
func TestValidateTool(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 101)
	fetch := func(more string) string {
		return `{"steps":[{"id":"fetch","config":{"url":"https://a.test"` + more + `}}]}`
	}
	for name, c := range map[string]struct{ tool, want string }{
		"plain":                 {fetch(``), ``},
		"nothing":               {`{}`, `A tool needs at least one step or an 'outputTransform'`},
		"only output":           {`{"outputTransform":"() => 1"}`, ``},
		"id":                    {`{"id":"a/b","outputTransform":"1"}`, `'id' must be 1 to 200 characters of A-Z a-z 0-9 . _ ~ - and not . or ..`},
		"dots":                  {`{"id":"..","outputTransform":"1"}`, `'id' must be`},
		"no step id":            {`{"steps":[{"config":{"url":"x"}}]}`, `Step 1: missing 'id'`},
		"no url":                {`{"steps":[{"id":"a","config":{"url":"x"}},{"id":"fetch","config":{"method":"GET"}}]}`, `Step 2 (fetch): missing 'url'`},
		"no code":               {`{"steps":[{"id":"t","config":{"type":"transform"}}]}`, `Step 1 (t): missing 'transformCode'`},
		"transform":             {`{"steps":[{"id":"t","config":{"type":"transform","transformCode":"(s) => 1"}}]}`, ``},
		"step id":               {`{"steps":[{"id":"a b","config":{"url":"x"}}]}`, `Step 1 (a b): 'id' must be 1 to 100 characters of A-Z a-z 0-9 _ . -`},
		"long step id":          {`{"steps":[{"id":"` + long + `","config":{"url":"x"}}]}`, `'id' must be 1 to 100`},
		"same ids":              {`{"steps":[{"id":"a","config":{"url":"x"}},{"id":"a","config":{"url":"x"}}]}`, `Step 2 (a): step 1 has the same id 'a'`},
		"reserved id":           {`{"steps":[{"id":"credentials","config":{"url":"x"}}]}`, `Step 1 (credentials): the id 'credentials' is reserved`},
		"pagination id":         {`{"steps":[{"id":"offset","config":{"url":"x"}}]}`, `the id 'offset' is reserved`},
		"id of an input":        {`{"inputSchema":{"properties":{"a":{}}},"steps":[{"id":"a","config":{"url":"x"}}]}`, `Step 1 (a): an input has the same name 'a'`},
		"reserved input":        {`{"inputSchema":{"properties":{"__rawBody__":{}}},"outputTransform":"1"}`, `'inputSchema': the input '__rawBody__' has a reserved name`},
		"type":                  {fetch(`,"type":"sql"`), `Step 1 (fetch): unknown 'type' 'sql': use request or transform`},
		"method":                {fetch(`,"method":"FETCH"`), `Step 1 (fetch): unknown 'method' 'FETCH': use one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS`},
		"body on HEAD":          {fetch(`,"method":"HEAD","body":"x"`), `Step 1 (fetch): a HEAD request has no 'body'`},
		"failureBehavior":       {`{"steps":[{"id":"a","failureBehavior":"retry","config":{"url":"x"}}]}`, `unknown 'failureBehavior' 'retry': use fail or continue`},
		"concurrency":           {`{"steps":[{"id":"a","concurrency":51,"config":{"url":"x"}}]}`, `Step 1 (a): 'concurrency' must be 1 to 50`},
		"no pagination type":    {fetch(`,"pagination":{"pageSize":5}`), `Step 1 (fetch): missing 'pagination.type'`},
		"pagination type":       {fetch(`,"pagination":{"type":"cursor"}`), `unknown 'pagination.type' 'cursor'`},
		"pageSize":              {fetch(`,"pagination":{"type":"pageBased","pageSize":"many"}`), `Step 1 (fetch): pagination.pageSize: must be a positive whole number`},
		"zero pageSize":         {fetch(`,"pagination":{"type":"pageBased","pageSize":0}`), `must be a positive whole number`},
		"pageSize template":     {fetch(`,"pagination":{"type":"pageBased","pageSize":"<<size>>"}`), ``},
		"maxPages":              {fetch(`,"pagination":{"type":"pageBased","maxPages":-1}`), `'pagination.maxPages' must be`},
		"filter":                {`{"outputTransform":"1","responseFilters":[{"name":"n","target":"KEYS","action":"MASK","pattern":"("}]}`, `responseFilters: filter 'n': 'pattern' is no valid RE2 expression`},
		"schema":                {`{"outputTransform":"1","outputSchema":{"type":"objekt"}}`, `'outputSchema': is no JSON Schema: type: `},
		"schema pattern":        {`{"outputTransform":"1","inputSchema":{"pattern":"("}}`, `'inputSchema': is no JSON Schema`},
		"remote ref":            {`{"outputTransform":"1","inputSchema":{"$ref":"https://x.test/s.json"}}`, `'inputSchema': a $ref or $schema outside the schema is not supported`},
		"file ref":              {`{"outputTransform":"1","inputSchema":{"$ref":"file:///etc/passwd"}}`, `outside the schema`},
		"dangling ref":          {`{"outputTransform":"1","inputSchema":{"$ref":"#/$defs/a"}}`, `a $ref names nothing in it`},
		"inner ref":             {`{"outputTransform":"1","inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{}}}}`, ``},
		"draft 7":               {`{"outputTransform":"1","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}}`, ``},
		"url template":          {`{"steps":[{"id":"a","config":{"url":"https://x/<<(s) => s.>>"}}]}`, `Step 1 (a): url: the template at 1:11 does not parse`},
		"header template":       {fetch(`,"headers":{"X-A":"<<(>>"}`), `Step 1 (fetch): headers.X-A: the template at 1:1 does not parse`},
		"query template":        {fetch(`,"queryParams":{"q":["a","b <<(s) => {>>"]}`), `Step 1 (fetch): queryParams.q: the template at 1:3`},
		"body template":         {fetch(`,"body":"{\"a\":\n<<1 +>>}"`), `Step 1 (fetch): body: the template at 2:1`},
		"pageSize expression":   {fetch(`,"pagination":{"type":"pageBased","pageSize":"<<(>>"}`), `Step 1 (fetch): pagination.pageSize: the template`},
		"header name":           {fetch(`,"headers":{"X A":"1"}`), `Step 1 (fetch): headers.X A: "X A" is no name of a header`},
		"selector":              {`{"steps":[{"id":"a","dataSelector":"(s) => [","config":{"url":"x"}}]}`, `Step 1 (a): dataSelector: SyntaxError`},
		"stopCondition":         {fetch(`,"pagination":{"type":"pageBased","stopCondition":"(a, b => 1"}`), `Step 1 (fetch): pagination.stopCondition: SyntaxError`},
		"transformCode":         {`{"steps":[{"id":"a","config":{"type":"transform","transformCode":"function ("}}]}`, `Step 1 (a): transformCode: SyntaxError`},
		"outputTransform":       {`{"outputTransform":"(s) => }"}`, `outputTransform: SyntaxError`},
		"shift":                 {`{"steps":[{"id":"a","config":{"url":"<<(s) => s.a >> 2>>/<<(s) => s.b << 2>>"}}]}`, ``},
		"lone opening is text":  {fetch(`,"body":"a << b"`), ``},
		"condition without end": {fetch(`,"pagination":{"type":"pageBased","stopCondition":"response.data.done"}`), ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tool stepwell.Tool
			unmarshal(t, []byte(c.tool), &tool)
			asked := &counter{}
			err := engine.ValidateTool(t.Context(), asked, &tool)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if stepwell.KindOf(err) != stepwell.KindInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (kind %d), want %s", err, stepwell.KindOf(err), c.want)
			}
			if name != "shift" && asked.checked > 1 {
				t.Errorf("asked the evaluator %d times", asked.checked)
			}
			if c.want == "" {
				if _, err := engine.CompileTool(t.Context(), asked, &tool); err != nil {
					t.Errorf("valid, but does not compile: %v", err)
				}
			}
		})
	}
}

// One call of the evaluator checks a tool with many expressions.
func TestValidateAsksOnce(t *testing.T) {
	t.Parallel()
	tool := &stepwell.Tool{OutputTransform: "(s) => s.a + 1"}
	for i := range 20 {
		tool.Steps = append(tool.Steps, stepwell.Step{ID: "s" + string(rune('a'+i)), DataSelector: "(s) => s.x.map(y => y)", Config: stepwell.StepConfig{
			URL: "https://x/<<(s) => s.a + 1>>/<<(s) => s.b + 2>>", Headers: map[string]json.RawMessage{"A": json.RawMessage(`"<<(s) => s.c + 3>>"`)},
		}})
	}
	asked := &counter{}
	if err := engine.ValidateTool(t.Context(), asked, tool); err != nil || asked.checked != 1 {
		t.Errorf("%d calls, %v", asked.checked, err)
	}
}

// An evaluator that cannot work is no fault of the tool.
func TestValidateWithoutEvaluator(t *testing.T) {
	t.Parallel()
	tool := &stepwell.Tool{OutputTransform: "(s) => s.a + 1"}
	err := engine.ValidateTool(t.Context(), brokenEvaluator{}, tool)
	if !errors.Is(err, errBroken) || stepwell.KindOf(err) != stepwell.KindInternal {
		t.Error(err)
	}
}

// A source over a limit is no syntax error: the tool is saved, and its runs fail.
func TestValidateLeavesLimitsToRuns(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000)
	tool := &stepwell.Tool{OutputTransform: deep, Steps: []stepwell.Step{{ID: "a", Config: stepwell.StepConfig{URL: "https://x/<<" + deep + ">>"}}}}
	if err := engine.ValidateTool(t.Context(), &counter{}, tool); err != nil {
		t.Error(err)
	}
	var broken *engine.StepError
	if _, err := engine.CompileTool(t.Context(), &counter{}, tool); !errors.As(err, &broken) || !strings.Contains(err.Error(), "limit") {
		t.Errorf("compiling gave %v", err)
	}
	tool.Steps[0].Config.URL += "<<(s) => >>"
	if err := engine.ValidateTool(t.Context(), &counter{}, tool); stepwell.KindOf(err) != stepwell.KindInvalid {
		t.Errorf("a syntax error beside it gave %v", err)
	}
}
