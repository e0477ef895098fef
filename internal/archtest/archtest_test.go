package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// table reads the lines of a rule, `name < names`.
func table(text string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, names, ok := strings.Cut(line, "<"); ok {
			rows[strings.TrimSpace(name)] = strings.Fields(names)
		}
	}
	return rows
}

// problems checks packages against the rules.
func problems(packages []pkg) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, p := range packages {
		checkImports(p, add)
		checkOthers(p, add)
		if len(p.httpClients) > 0 && !slices.Contains(httpClients, p.dir) {
			add("%s sends HTTP requests (%s): only %v may", p.dir, strings.Join(p.httpClients, ", "), httpClients)
		}
		if slices.Contains(badNames, p.name) {
			add("%s: a package called %s does not say what it owns", p.dir, p.name)
		}
		if !p.documented {
			add("%s has no package comment", p.dir)
		}
	}
	checkProduction(packages, add)
	return out
}

func checkImports(p pkg, add func(string, ...any)) {
	allowed, listed := table(imports)[p.dir]
	if !listed {
		add("%s is not in the table of imports: give it a line in rules_test.go", p.dir)
		return
	}
	for _, dir := range p.imports {
		_, restricted := table(stackOnly)[dir]
		if restricted && !slices.Contains(table(stackOnly)[dir], p.dir) {
			add("%s imports %s: only %v may", p.dir, dir, table(stackOnly)[dir])
		}
		if !slices.Contains(allowed, dir) && (restricted || !slices.Contains(allowed, "*")) {
			add("%s imports %s: the table of imports does not allow it", p.dir, dir)
		}
	}
}

// under reports whether an import path is name or below it.
func under(path, name string) bool { return path == name || strings.HasPrefix(path, name+"/") }

func checkOthers(p pkg, add func(string, ...any)) {
	for _, path := range p.others {
		for name, who := range table(only) {
			if under(path, name) && !slices.Contains(who, p.dir) {
				add("%s imports %s: only %v may", p.dir, path, who)
			}
		}
		if p.dir == "." && strings.Contains(path, ".") {
			add("the root package imports %s: it may import the standard library only", path)
		}
	}
	for _, path := range p.testOthers {
		for name, who := range table(only) {
			if name == "testing" || !under(path, name) || slices.Contains(who, p.dir) {
				continue
			}
			if !slices.ContainsFunc(table(testsMay)[p.dir], func(name string) bool { return under(path, name) }) {
				add("a test of %s imports %s: only %v may, and tests named in testsMay", p.dir, path, who)
			}
		}
	}
}

// checkProduction looks for what production binaries link and must not.
func checkProduction(packages []pkg, add func(string, ...any)) {
	byDir := map[string]pkg{}
	for _, p := range packages {
		byDir[p.dir] = p
	}
	for _, binary := range production {
		seen := map[string]bool{}
		var visit func(dir, way string)
		visit = func(dir, way string) {
			if seen[dir] {
				return
			}
			seen[dir] = true
			if _, restricted := table(stackOnly)[dir]; restricted {
				add("%s links %s: %s", binary, dir, way)
			}
			for _, next := range byDir[dir].imports {
				visit(next, way+" < "+next)
			}
		}
		visit(binary, binary)
	}
}

func TestArchitecture(t *testing.T) {
	t.Parallel()
	for _, tags := range [][]string{nil, {"fault"}} {
		packages := load(t, tags...)
		for _, problem := range problems(packages) {
			t.Errorf("with tags %v: %s", tags, problem)
		}
		for dir := range table(imports) {
			optional := dir == "e2e" || dir == "bench" // not every checkout has them
			if !optional && !slices.ContainsFunc(packages, func(p pkg) bool { return p.dir == dir }) {
				t.Errorf("%s is in the table of imports and does not exist", dir)
			}
		}
	}
}

// TestRulesCanFail breaks each rule once.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		bad  []pkg
		want string
	}{
		{"upwards", []pkg{{dir: "engine", imports: []string{"store"}}}, "engine imports store"},
		{"api knows the store", []pkg{{dir: "api", imports: []string{"store"}}}, "api imports store"},
		{"api knows Temporal", []pkg{{dir: "api", others: []string{"go.temporal.io/sdk/client"}}}, "api imports go.temporal.io/sdk/client"},
		{"activities know Postgres", []pkg{{dir: "activities", others: []string{"github.com/jackc/pgx/v5"}}}, "activities imports github.com/jackc/pgx/v5"},
		{"workflows know the engine", []pkg{{dir: "workflows", imports: []string{"engine"}}}, "workflows imports engine"},
		{"JavaScript elsewhere", []pkg{{dir: "engine", others: []string{"github.com/dop251/goja"}}}, "engine imports github.com/dop251/goja"},
		{"a test of the api knows Postgres", []pkg{{dir: "api", testOthers: []string{"github.com/jackc/pgx/v5"}}}, "a test of api"},
		{"the root has a dependency", []pkg{{dir: ".", others: []string{"go.uber.org/zap"}}}, "the root package imports go.uber.org/zap"},
		{"another HTTP client", []pkg{{dir: "service", httpClients: []string{"x.go:1 http.Get"}}}, "service sends HTTP requests"},
		{"testing in production", []pkg{{dir: "store", others: []string{"testing"}}}, "store imports testing"},
		{"app links the stack", []pkg{{dir: "internal/app", imports: []string{"internal/devstack"}}}, "internal/app imports internal/devstack"},
		{"server links the stack", []pkg{
			{dir: "cmd/server", imports: []string{"internal/app"}},
			{dir: "internal/app", imports: []string{"internal/cli"}},
			{dir: "internal/cli", imports: []string{"internal/demo"}}}, "cmd/server links internal/demo"},
		{"a package without a line", []pkg{{dir: "engine/extra"}}, "engine/extra is not in the table"},
		{"a name that says nothing", []pkg{{dir: "store", name: "helpers"}}, "a package called helpers"},
		{"no comment", []pkg{{dir: "store"}}, "store has no package comment"},
	} {
		if got := strings.Join(problems(test.bad), "\n"); !strings.Contains(got, test.want) {
			t.Errorf("%s: no problem says %q; there is %q", test.name, test.want, got)
		}
	}
	good := []pkg{{dir: "store", name: "store", documented: true, imports: []string{"."}, others: []string{"github.com/jackc/pgx/v5"}}}
	if got := problems(good); len(got) > 0 {
		t.Errorf("a good package has problems: %q", got)
	}
}

// TestFaultIsEmpty checks that crash points are nothing in a build without their tag.
func TestFaultIsEmpty(t *testing.T) {
	t.Parallel()
	for _, p := range load(t) {
		if p.dir == "internal/fault" && len(p.imports)+len(p.others) > 0 {
			t.Errorf("internal/fault imports %v %v without its tag", p.imports, p.others)
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(moduleRoot(t), "internal", "fault", "off.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	functions := 0
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			functions++
			for _, statement := range f.Body.List {
				if r, ok := statement.(*ast.ReturnStmt); !ok || len(r.Results) != 1 || !isNil(r.Results[0]) {
					t.Errorf("fault.%s does something without its tag", f.Name.Name)
				}
			}
		}
	}
	if functions == 0 {
		t.Error("internal/fault declares nothing without its tag")
	}
}

func isNil(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "nil"
}

// TestTemporaldIsApart checks that the nested module knows nothing of this one: it is
// replaced by any Temporal.
func TestTemporaldIsApart(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), "temporald", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("the sources of temporald were not found: ", err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			if _, ok := local(strings.Trim(spec.Path.Value, `"`)); ok {
				t.Errorf("%s imports %s", filepath.Base(path), spec.Path.Value)
			}
		}
	}
}
