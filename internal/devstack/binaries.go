package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
	"go.uber.org/zap"
)

// minVersion is the oldest major version of Postgres that is used.
const minVersion = 14

// How long a fetch or an installation of Postgres may take: some 10 to 60 MB.
const installTimeout = 5 * time.Minute

// usualPlaces are where distributions and package managers put Postgres's
// server programs when they are not in PATH.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/lib/postgresql*/bin",
	"/usr/libexec/postgresql*",
	"/usr/local/pgsql/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
	"/opt/local/lib/postgresql*/bin",
}

// fetchable are the versions that can be fetched, by major version.
var fetchable = map[int]embedded.PostgresVersion{
	14: embedded.V14, 15: embedded.V15, 16: embedded.V16, 17: embedded.V17, 18: embedded.V18,
}

// fetchedByDefault is the major version that is fetched for a new directory.
const fetchedByDefault = 17

// binaries is a directory with Postgres's server programs.
type binaries struct {
	dir     string
	version int // major
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// findBinaries finds or gets Postgres's programs: those in PATH, else those in
// the usual places, newest first, else fetched ones, else, for root on Debian
// and its kin, installed ones. With a version other than 0, only that major
// version will do: the databases were made by it.
func findBinaries(ctx context.Context, version int, log *zap.Logger) (binaries, error) {
	if found, ok := search(ctx, version); ok {
		return found, nil
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	found, fetchErr := fetch(ctx, version, log)
	if fetchErr == nil {
		return found, nil
	}
	installErr := install(ctx, version, log)
	if installErr == nil {
		if found, ok := search(ctx, version); ok {
			return found, nil
		}
		installErr = errors.New("the package was installed and its programs were not found")
	}
	wanted := "PostgreSQL"
	if version != 0 {
		wanted = fmt.Sprintf("PostgreSQL %d, which made the databases,", version)
	}
	return binaries{}, fmt.Errorf("%s was not found; install it with: %s (or set STEPWELL_DATABASE_URL): %w",
		wanted, installCommand(version), errors.Join(fetchErr, installErr))
}

// search looks for programs on this machine.
func search(ctx context.Context, version int) (binaries, bool) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil { // initdb is beside the real one
			found, ok := inspect(ctx, filepath.Dir(path))
			if ok && (version == 0 || found.version == version) {
				return found, true
			}
		}
	}
	var best binaries
	for _, pattern := range usualPlaces {
		dirs, _ := filepath.Glob(pattern) // fails for malformed patterns only
		for _, dir := range dirs {
			found, ok := inspect(ctx, dir)
			if ok && (version == 0 || found.version == version) && found.version > best.version {
				best = found
			}
		}
	}
	return best, best.version != 0
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect reports whether a directory holds the programs of a usable version.
func inspect(ctx context.Context, dir string) (binaries, bool) {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, false
	}
	match := versionPattern.FindSubmatch(output)
	if match == nil {
		return binaries{}, false
	}
	version, err := strconv.Atoi(string(match[1]))
	return binaries{dir: dir, version: version}, err == nil && version >= minVersion
}

// fetch downloads the programs once, into a directory for caches.
func fetch(ctx context.Context, version int, log *zap.Logger) (binaries, error) {
	if version == 0 {
		version = fetchedByDefault
	}
	release, ok := fetchable[version]
	if !ok {
		return binaries{}, fmt.Errorf("version %d cannot be fetched", version)
	}
	cache, err := cacheDir()
	if err != nil {
		return binaries{}, err
	}
	dir := filepath.Join(cache, "postgres-"+string(release))
	if found, ok := inspect(ctx, filepath.Join(dir, "bin")); ok {
		return found, nil
	}
	log.Info("fetching PostgreSQL, which was not found on this machine", zap.String("version", string(release)))
	done := make(chan error, 1)
	go func() { done <- fetchInto(dir, release) }() // cannot be interrupted: ends with its connection
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if found, ok := inspect(context.WithoutCancel(ctx), filepath.Join(dir, "bin")); ok {
		return found, nil
	}
	return binaries{}, fmt.Errorf("fetch PostgreSQL: %w", err)
}

// fetchInto downloads and unpacks the programs. The library can only do this as
// the beginning of a start, which is stopped again, or has failed (as root it
// does), by when the programs are in place.
func fetchInto(dir string, release embedded.PostgresVersion) error {
	scratch, err := os.MkdirTemp("", "stepwell-postgres-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	server := embedded.NewDatabase(embedded.DefaultConfig().
		Version(release).
		Port(uint32(choosePort())).
		BinariesPath(dir).
		CachePath(filepath.Join(dir, "archive")).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(filepath.Join(scratch, "data")).
		StartTimeout(time.Minute).
		Logger(io.Discard))
	if err := server.Start(); err != nil {
		return err
	}
	return server.Stop()
}

// cacheDir is where fetched programs are kept. Root's own is closed to the user
// as whom Postgres may have to run.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/stepwell", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the directory for caches: %w", err)
	}
	return filepath.Join(dir, "stepwell"), nil
}

// install installs the distribution's package, where we may and know how to.
func install(ctx context.Context, version int, log *zap.Logger) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return errors.New("it can only be installed by root, with apt-get")
	}
	log.Info("installing PostgreSQL, which could not be fetched", zap.String("command", installCommand(version)))
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(environment(), "DEBIAN_FRONTEND=noninteractive")
		output, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastBytes(output))
		}
		return nil
	}
	arguments := []string{"install", "--yes", "--no-install-recommends", packageName(version)}
	if err := run(arguments...); err == nil {
		return nil
	}
	// A fresh machine or container has no list of packages yet.
	if err := run("update"); err != nil {
		return err
	}
	return run(arguments...)
}

// packageName is Debian's name of the server's package.
func packageName(version int) string {
	if version == 0 {
		return "postgresql"
	}
	return fmt.Sprintf("postgresql-%d", version)
}

// installCommand is what a person types to install Postgres on this machine.
func installCommand(version int) string {
	suffix := ""
	if version != 0 {
		suffix = strconv.Itoa(version)
	}
	for _, known := range []struct{ program, command string }{
		{"apt-get", "sudo apt-get install " + packageName(version)},
		{"dnf", "sudo dnf install postgresql" + suffix + "-server"},
		{"apk", "sudo apk add postgresql" + suffix},
		{"pacman", "sudo pacman -S postgresql"},
		{"brew", "brew install postgresql@" + strconv.Itoa(max(version, fetchedByDefault))},
	} {
		if _, err := exec.LookPath(known.program); err == nil {
			return known.command
		}
	}
	return "your system's package manager"
}

// lastBytes is the end of a program's output, where its errors are.
func lastBytes(output []byte) string {
	return string(output[max(0, len(output)-logTail):])
}
