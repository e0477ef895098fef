package devstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// outsideDir is where Postgres's files are kept when Postgres must run as
// another user, who cannot get into the data directory.
const outsideDir = "/var/lib/stepwell"

// home is the directory of Postgres's files and the identity that Postgres has,
// which owns them. Postgres refuses to run as root; an ordinary user runs it as
// himself, and root in one of two ways: in a user namespace, in which root's
// files belong to an ordinary user, or, where namespaces are not allowed, as
// another user.
type home struct {
	base     string
	mapped   bool                // in a user namespace
	identity *syscall.Credential // another user; nil is the caller
}

// data is the directory of the databases, Postgres's own.
func (h home) data() string { return h.dir("data") }

// dir is a path in the home.
func (h home) dir(name string) string { return filepath.Join(h.base, name) }

// attributes starts a program of Postgres with the home's identity.
func (h home) attributes(onDeath syscall.Signal) *syscall.SysProcAttr {
	attr := childAttributes(onDeath)
	attr.Credential = h.identity
	if h.mapped {
		enterNamespace(attr)
	}
	return attr
}

// giveAway makes a file belong to the home's identity.
func (h home) giveAway(path string) error {
	if h.identity == nil {
		return nil
	}
	if err := os.Chown(path, int(h.identity.Uid), int(h.identity.Gid)); err != nil {
		return fmt.Errorf("give %s to the user of postgres: %w", path, err)
	}
	return nil
}

// version is the major version of Postgres that made the databases, 0 when
// there are none yet.
func (h home) version() (int, error) {
	data, err := os.ReadFile(filepath.Join(h.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the databases: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("%s holds no databases that we know: %w", h.data(), err)
	}
	return version, nil
}

// findHome decides where Postgres's files are and as whom it runs. Files that
// exist decide: who owns them, runs it.
func findHome(dataDir string) (home, error) {
	inside := filepath.Join(dataDir, "postgres")
	if os.Geteuid() != 0 {
		return home{base: inside}, makeDir(inside)
	}
	sum := sha256.Sum256([]byte(dataDir))
	outside := filepath.Join(outsideDir, hex.EncodeToString(sum[:8]))
	for _, base := range []string{inside, outside} {
		info, err := os.Stat(filepath.Join(base, "data"))
		if err != nil {
			continue
		}
		owner := info.Sys().(*syscall.Stat_t)
		if owner.Uid != 0 {
			return home{base: base, identity: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}, nil
		}
		if err := tryNamespace(); err != nil {
			return home{}, fmt.Errorf("the databases in %s belong to root, who runs postgres in a user namespace only: %w", base, err)
		}
		return home{base: base, mapped: true}, nil
	}
	if tryNamespace() == nil {
		return home{base: inside, mapped: true}, makeDir(inside)
	}
	return otherUsersHome(outside)
}

// tryNamespace reports whether a program can be started in a user namespace.
func tryNamespace() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "true")
	cmd.SysProcAttr = childAttributes(syscall.SIGKILL)
	enterNamespace(cmd.SysProcAttr)
	if cmd.SysProcAttr.Credential == nil {
		return errors.New("there are none on this system")
	}
	return cmd.Run()
}

// otherUsersHome makes a home for Postgres outside the data directory, owned by
// the user that a Postgres of the system has, or by nobody.
func otherUsersHome(base string) (home, error) {
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return home{}, errors.New("postgres does not run as root, user namespaces are not allowed here, " +
			"and there is no user postgres or nobody: run this as an ordinary user")
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return home{}, fmt.Errorf("user %s: %w", account.Username, err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return home{}, fmt.Errorf("user %s: %w", account.Username, err)
	}
	h := home{base: base, identity: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		return home{}, fmt.Errorf("make a directory for postgres: %w", err)
	}
	if err := makeDir(base); err != nil {
		return home{}, err
	}
	return h, h.giveAway(base)
}

func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make a directory for postgres: %w", err)
	}
	return nil
}
