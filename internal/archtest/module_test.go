package archtest

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulePath begins the import path of every package of this module.
const modulePath = "stepwell"

// pkg is what the rules are about. Imports of this module are written as in the rules:
// by directory, `.` for the root.
type pkg struct {
	dir         string
	name        string
	documented  bool
	imports     []string // of this module
	others      []string // of elsewhere
	testOthers  []string // of elsewhere, by tests
	httpClients []string // places that use net/http as a client
}

// local gives the directory of an import path of this module.
func local(path string) (dir string, ok bool) {
	if path == modulePath {
		return ".", true
	}
	return strings.CutPrefix(path, modulePath+"/")
}

// moduleRoot is the directory of go.mod above the working directory.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

// load reads all packages of the module, built with some tags.
func load(t *testing.T, tags ...string) []pkg {
	t.Helper()
	root := moduleRoot(t)
	context := build.Default
	context.BuildTags = tags
	var all []pkg
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		dir, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if dir != "." && skipped(path, entry.Name()) {
			return filepath.SkipDir
		}
		p, err := read(&context, path, filepath.ToSlash(dir))
		if p != nil {
			all = append(all, *p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// skipped reports whether a directory is none of the module's: the go command leaves
// these out too.
func skipped(path, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

// read reads the package in a directory; nil when there is none.
func read(context *build.Context, path, dir string) (*pkg, error) {
	found, err := context.ImportDir(path, 0)
	var none *build.NoGoError
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &pkg{dir: dir, name: found.Name, documented: found.Doc != ""}
	if len(found.GoFiles)+len(found.CgoFiles) == 0 {
		p.documented = true // tests only
	}
	for _, path := range found.Imports {
		if dir, ok := local(path); ok {
			p.imports = append(p.imports, dir)
		} else {
			p.others = append(p.others, path)
		}
	}
	for _, path := range slices.Concat(found.TestImports, found.XTestImports) {
		if _, ok := local(path); !ok {
			p.testOthers = append(p.testOthers, path)
		}
	}
	for _, name := range found.GoFiles {
		uses, err := clientUses(filepath.Join(path, name))
		if err != nil {
			return nil, err
		}
		p.httpClients = append(p.httpClients, uses...)
	}
	return p, nil
}

// clientNames are what a package needs of net/http to send requests.
var clientNames = []string{"Client", "DefaultClient", "Transport", "DefaultTransport", "Get", "Head", "Post", "PostForm", "NewRequest", "NewRequestWithContext"}

// clientUses lists the places of a file that use net/http as a client.
func clientUses(path string) ([]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	name := ""
	for _, spec := range file.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); path != "net/http" {
			continue
		}
		name = "http"
		if spec.Name != nil {
			name = spec.Name.Name
		}
	}
	var uses []string
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || name == "" {
			return true
		}
		if of, ok := selector.X.(*ast.Ident); ok && of.Name == name && slices.Contains(clientNames, selector.Sel.Name) {
			at := files.Position(selector.Pos())
			uses = append(uses, filepath.Base(at.Filename)+":"+strconv.Itoa(at.Line)+" http."+selector.Sel.Name)
		}
		return true
	})
	return uses, nil
}
