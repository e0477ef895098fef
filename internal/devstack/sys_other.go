//go:build unix && !linux

package devstack

import (
	"context"
	"syscall"
)

// childAttributes puts a child into a process group of its own, so that Ctrl-C
// reaches us alone and we choose the order of the stop. There is no death
// signal here: temporald ends with its standard input, Postgres stays when we
// are killed, and says so at the next start.
func childAttributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// enterNamespace does nothing: there are no user namespaces here.
func enterNamespace(*syscall.SysProcAttr) {}

// leftoversKnown says that endLeftovers has really looked.
const leftoversKnown = false

// endLeftovers does nothing: working directories of processes cannot be read
// here, and process ids alone say too little to kill by.
func endLeftovers(context.Context, string, string) error { return nil }
