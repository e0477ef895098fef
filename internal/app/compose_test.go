package app_test

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"stepwell/internal/config"
	"stepwell/internal/secret"
)

// root is the directory of the module, from this package.
const root = "../.."

// composed loads docker-compose.yml as `docker compose` does, with the secrets that the
// documents have people make.
func composed(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithName("stepwell"),
		cli.WithEnv([]string{"POSTGRES_PASSWORD=0123456789abcdef", "STEPWELL_ENCRYPTION_KEYS=main:" + secret.NewKey()}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFile(t *testing.T) {
	t.Parallel()
	project := composed(t)
	known := map[string]bool{}
	for _, row := range config.Table() {
		known[row.Name] = true
	}
	dockerfile := read(t, "Dockerfile")
	for _, name := range []string{"postgres", "temporal", "server", "worker"} {
		s, ok := project.Services[name]
		if !ok {
			t.Errorf("there is no service %s", name)
			continue
		}
		for variable, value := range s.Environment {
			if strings.HasPrefix(variable, "STEPWELL_") && !known[variable] {
				t.Errorf("%s sets %s, which the configuration does not know", name, variable)
			}
			if value == nil || *value == "" {
				t.Errorf("%s sets %s to nothing", name, variable)
			}
		}
		if s.Build != nil && !strings.Contains(dockerfile, " AS "+s.Build.Target+"\n") {
			t.Errorf("%s is built from the stage %s, which the Dockerfile does not have", name, s.Build.Target)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s is published at %s:%s: only loopback should be", name, port.HostIP, port.Published)
			}
		}
		if s.ContainerName != "" {
			t.Errorf("%s has a name of its own and cannot be scaled", name)
		}
	}
	if len(project.Services["worker"].Ports) > 0 {
		t.Error("the worker publishes a port: two of them would want it")
	}
}

// TestComposeFileWantsSecrets checks that there is no start with secrets that everybody
// knows.
func TestComposeFileWantsSecrets(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithName("stepwell"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = options.LoadProject(t.Context()); err == nil || !strings.Contains(err.Error(), "docs/operations.md") {
		t.Errorf("without secrets: %v", err)
	}
}

var buildLine = regexp.MustCompile(`(?m)^RUN (go build .*) -o (/out/\S*) (.*)$`)

// buildAsDockerfile runs the Dockerfile's build line for server, worker and stepwell.
func buildAsDockerfile(t *testing.T) (dir string) {
	t.Helper()
	text := read(t, "Dockerfile")
	if !strings.Contains(text, "\nENV CGO_ENABLED=0\n") {
		t.Error("the Dockerfile does not turn cgo off")
	}
	line := buildLine.FindStringSubmatch(text)
	if line == nil {
		t.Fatal("the Dockerfile has no build line")
	}
	dir = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line[1]+` -o "$OUT"/ `+line[3])
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "OUT="+dir)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", line[0], err, output)
	}
	return dir
}

// checkStatic fails when a program needs anything of the system's libraries.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is linked dynamically (%s)", filepath.Base(path), p.Type)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
