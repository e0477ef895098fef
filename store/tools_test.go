package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"stepwell"
)

func TestToolIDs(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, test := range []struct{ asked, want string }{
		{"orders", "orders"},
		{"orders", "orders-1"},
		{"orders", "orders-2"},
		{"orders-2", "orders-3"}, // not orders-2-1
		{"list-9", "list-9"},
		{"list-9", "list-10"},
		{"list", "list"},
		{"a-", "a-"},
		{"a-", "a--1"},
	} {
		if got := ts.tool(test.asked).ID; got != test.want {
			t.Errorf("%s became %s, want %s", test.asked, got, test.want)
		}
	}
	if id := ts.tool("").ID; len(id) != 36 {
		t.Errorf("a tool without an id got %q", id)
	}
	long := strings.Repeat("x", stepwell.MaxToolID)
	ts.tool(long)
	_, err := ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: long})
	wantKind(t, "a taken id that has no room for a suffix", err, stepwell.KindConflict)
	for i := range idTries {
		ts.tool(fmt.Sprintf("full-%d", i+1))
	}
	ts.tool("full")
	_, err = ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: "full"})
	wantKind(t, "the 102nd of a name", err, stepwell.KindConflict)
	other := must[string](t)(ts.CreateOrganization(t.Context(), "two"))
	if tool := must[*stepwell.Tool](t)(ts.CreateTool(t.Context(), other, &stepwell.Tool{ID: "orders"})); tool.ID != "orders" {
		t.Errorf("another organization got %s", tool.ID)
	}
}

func TestToolIDRace(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	var mu sync.Mutex
	ids := map[string]bool{}
	parallel(30, func(int) {
		tool, err := ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{ID: "same"})
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		ids[tool.ID] = true
	})
	if len(ids) != 30 || !ids["same"] || !ids["same-29"] {
		t.Errorf("30 tools have %d ids: %v", len(ids), ids)
	}
}

// rename is a change of a tool that no run notices.
func rename(name string) func(*stepwell.Tool) error {
	return func(t *stepwell.Tool) error { t.Name = name; return nil }
}

func TestToolVersions(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	first := ts.tool("orders")
	if first.Version != "1.0.0" || first.VersionKey == 0 || first.CreatedAt.IsZero() {
		t.Errorf("a new tool is %+v", first)
	}
	update := func(change func(*stepwell.Tool) error) *stepwell.Tool {
		t.Helper()
		return must[*stepwell.Tool](t)(ts.UpdateTool(t.Context(), ts.org, "orders", change, stepwell.NextVersion))
	}
	if same := update(rename("")); same.VersionKey != first.VersionKey {
		t.Error("an update that changes nothing made a version")
	}
	if v := update(rename("Orders")).Version; v != "1.0.1" {
		t.Errorf("a new name made version %s", v)
	}
	second := update(func(t *stepwell.Tool) error { t.Steps[0].Config.URL += "?x"; return nil })
	if second.Version != "1.1.0" {
		t.Errorf("a new URL made version %s", second.Version)
	}
	archived := update(func(t *stepwell.Tool) error { t.Archived = true; return nil })
	if listed, total, err := ts.ListTools(t.Context(), ts.org, false, nil, 1, 10); err != nil || len(listed) != 0 || total != 0 {
		t.Errorf("an archived tool is listed: %d of %d (%v)", len(listed), total, err)
	}
	if got := must[*stepwell.Tool](t)(ts.Tool(t.Context(), ts.org, "orders")); !got.Archived || got.Version != archived.Version || !got.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("the tool reads as %+v", got)
	}
	// What ran before is not touched by what came later.
	if old := must[*stepwell.Tool](t)(ts.ToolByKey(t.Context(), ts.org, first.VersionKey)); old.Name != "" || old.Archived || old.Steps[0].Config.URL != first.Steps[0].Config.URL {
		t.Errorf("the first version now is %+v", old)
	}
	versions := must[[]*stepwell.Tool](t)(ts.ToolVersions(t.Context(), ts.org, "orders"))
	if len(versions) != 4 || versions[0].Version != archived.Version || versions[3].Version != "1.0.0" {
		t.Errorf("%d versions", len(versions))
	}
	if v := must[*stepwell.Tool](t)(ts.ToolVersion(t.Context(), ts.org, "orders", "1.1.0")); v.VersionKey != second.VersionKey {
		t.Error("a version reads as another")
	}
	_, err := ts.ToolVersion(t.Context(), ts.org, "orders", "9.9.9")
	wantKind(t, "a missing version", err, stepwell.KindNotFound)
	refused := errors.New("refused")
	if _, err := ts.UpdateTool(t.Context(), ts.org, "orders", func(*stepwell.Tool) error { return refused }, stepwell.NextVersion); !errors.Is(err, refused) {
		t.Errorf("a refused change gave %v", err)
	}
}

// TestUpdatesAreNotLost changes one tool from many sides, each adding to it.
// TestToolsKeepTheirTexts covers values that are kept as JSON: nothing in them is escaped.
func TestToolsKeepTheirTexts(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	given := `"<<(s) => s.a && s.b>>"`
	config := stepwell.StepConfig{URL: "http://x", Headers: map[string]json.RawMessage{"A": json.RawMessage(given)}}
	tool := must[*stepwell.Tool](t)(ts.CreateTool(t.Context(), ts.org, &stepwell.Tool{Steps: []stepwell.Step{{ID: "s", Config: config}}}))
	must[*stepwell.Tool](t)(ts.UpdateTool(t.Context(), ts.org, tool.ID, func(t *stepwell.Tool) error { t.Name = "new"; return nil }, stepwell.NextVersion))
	tool = must[*stepwell.Tool](t)(ts.Tool(t.Context(), ts.org, tool.ID))
	if kept := string(tool.Steps[0].Config.Headers["A"]); kept != given || tool.Name != "new" {
		t.Errorf("%q became %q", given, kept)
	}
}

func TestUpdatesAreNotLost(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	ts.tool("orders")
	parallel(10, func(int) {
		_, err := ts.UpdateTool(t.Context(), ts.org, "orders", func(t *stepwell.Tool) error { t.Name += "x"; return nil }, stepwell.NextVersion)
		if err != nil {
			t.Error(err)
		}
	})
	got := must[*stepwell.Tool](t)(ts.Tool(t.Context(), ts.org, "orders"))
	if got.Name != strings.Repeat("x", 10) || got.Version != "1.0.10" {
		t.Errorf("ten changes gave %q, version %s", got.Name, got.Version)
	}
}

func TestDeleteTool(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	old := ts.tool("orders")
	ts.noError(ts.DeleteTool(t.Context(), ts.org, "orders"))
	err := ts.DeleteTool(t.Context(), ts.org, "orders")
	wantKind(t, "delete again", err, stepwell.KindNotFound)
	if err == nil || !strings.Contains(err.Error(), "(404)") {
		t.Errorf("delete again says %v, which clients do not match", err)
	}
	_, err = ts.Tool(t.Context(), ts.org, "orders")
	wantKind(t, "read", err, stepwell.KindNotFound)
	if kept := must[*stepwell.Tool](t)(ts.ToolByKey(t.Context(), ts.org, old.VersionKey)); len(kept.Steps) != 1 {
		t.Errorf("a run's version reads as %+v", kept)
	}
	again := ts.tool("orders")
	if again.ID != "orders" || again.VersionKey == old.VersionKey {
		t.Errorf("the free id gave %+v", again)
	}
	if versions := must[[]*stepwell.Tool](t)(ts.ToolVersions(t.Context(), ts.org, "orders")); len(versions) != 1 {
		t.Errorf("the new tool has %d versions", len(versions))
	}
}

func TestListTools(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	for _, id := range []string{"a", "b", "c"} {
		ts.tool(id)
	}
	for _, test := range []struct {
		only        []string
		page, limit int
		want        string
		total       int
	}{
		{nil, 1, 10, "c b a", 3},
		{nil, 2, 2, "a", 3},
		{[]string{"b", "none"}, 1, 10, "b", 1},
		{[]string{}, 1, 10, "", 0},
	} {
		tools, total, err := ts.ListTools(t.Context(), ts.org, false, test.only, test.page, test.limit)
		ts.noError(err)
		var ids []string
		for _, tool := range tools {
			ids = append(ids, tool.ID)
		}
		if got := strings.Join(ids, " "); got != test.want || total != test.total {
			t.Errorf("only %v, page %d of %d: got %q of %d, want %q of %d", test.only, test.page, test.limit, got, total, test.want, test.total)
		}
	}
}
