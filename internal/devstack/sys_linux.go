package devstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftoverGrace is how long an earlier parent's children may take to end by
// themselves: the death of their parent has told them to.
const leftoverGrace = 2 * time.Second

// leftoverTimeout bounds the wait for processes that were killed.
const leftoverTimeout = 10 * time.Second

// leftoversKnown says that endLeftovers has really looked.
const leftoversKnown = true

// mappedID is the id under which Postgres runs inside a user namespace, where
// it stands for root outside. Any but 0 will do.
const mappedID = 1000

// childAttributes puts a child into a process group of its own, so that Ctrl-C
// reaches us alone and we choose the order of the stop, and has the system send
// it a signal when the thread that created it ends.
func childAttributes(onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath}
}

// enterNamespace makes a child start in a user namespace in which root's files
// belong to an ordinary user, which it is.
func enterNamespace(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: mappedID, HostID: 0, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: mappedID, HostID: 0, Size: 1}}
	attr.Credential = &syscall.Credential{Uid: mappedID, Gid: mappedID, NoSetGroups: true}
}

// endLeftovers returns when no process called name works in dir. Such processes
// are an earlier parent's, or a killed one's children. They end by themselves,
// mostly at once; those that do not are killed.
//
// A process is recognized by its name and its working directory, which nothing
// else has, so that a process id that the system gave to another is never
// touched.
func endLeftovers(ctx context.Context, name, dir string) error {
	begin := time.Now()
	for {
		pids, err := processesIn(name, dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Since(begin) > leftoverTimeout {
			return fmt.Errorf("%s of an earlier start (process %d) does not end", name, pids[0])
		}
		if time.Since(begin) > leftoverGrace {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have just ended
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of an earlier %s: %w", name, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// processesIn lists the processes called name whose working directory is dir.
func processesIn(name, dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		proc := filepath.Join("/proc", entry.Name())
		comm, err := os.ReadFile(filepath.Join(proc, "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue // another one, or ended meanwhile
		}
		if cwd, err := os.Readlink(filepath.Join(proc, "cwd")); err == nil && cwd == dir {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
