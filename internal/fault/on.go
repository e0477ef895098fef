//go:build fault

package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"stepwell"
)

// entry is what Variable says about one point.
type entry struct {
	name   Name
	action string
	stall  time.Duration
	at     int // passage
}

var plan = sync.OnceValue(func() []entry { return parse(os.Getenv(Variable)) })

// parse panics over a malformed plan: a test would pass by testing nothing.
func parse(text string) []entry {
	var entries []entry
	for field := range strings.SplitSeq(text, ",") {
		if field == "" {
			continue
		}
		parts := strings.Split(field, ":")
		e := entry{name: Name(parts[0]), at: 1}
		var err error
		if len(parts) > 1 {
			e.action = parts[1]
		}
		if len(parts) > 2 {
			e.at, err = strconv.Atoi(parts[2])
		}
		if e.action != "kill" && e.action != "lose" && err == nil {
			e.stall, err = time.ParseDuration(e.action)
		}
		if err != nil || len(parts) > 3 {
			panic(fmt.Sprintf("%s: %q is not name:action:N", Variable, field))
		}
		entries = append(entries, e)
	}
	return entries
}

// passed counts passages.
var passed struct {
	sync.Mutex
	by map[string]int
}

func passage(kind string, name Name) int {
	passed.Lock()
	defer passed.Unlock()
	if passed.by == nil {
		passed.by = map[string]int{}
	}
	passed.by[kind+string(name)]++
	return passed.by[kind+string(name)]
}

// Point dies or stalls when the plan says so for this passage.
func Point(name Name) {
	n := passage("point ", name)
	for _, e := range plan() {
		if e.name != name || e.at != n {
			continue
		}
		switch e.action {
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // nothing more happens here, however long the signal takes
		case "lose":
		default:
			time.Sleep(e.stall)
		}
	}
}

// Error is a lost answer of the database when the plan says so for this passage, else nil.
func Error(name Name) error {
	n := passage("error ", name)
	for _, e := range plan() {
		if e.name == name && e.at == n && e.action == "lose" {
			return stepwell.Errorf(stepwell.KindUnavailable, "database_unavailable", "fault: the answer was lost at %s", name)
		}
	}
	return nil
}
