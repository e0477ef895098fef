package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"stepwell/engine/js"
)

// options are the flags.
type options struct {
	rounds     int
	short      bool
	failFactor float64
	dir        string
	temporald  string // path of its binary; "" means beside this one, or in PATH
	jsonPath   string
	profile    bool
	profileRun int
	cpuProfile string
	verbose    bool
}

func main() {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	if len(os.Args) == 2 && os.Args[1] == upstreamArgument {
		exit(serveUpstream(os.Stdin, os.Stdout))
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 0, "alternating rounds; 0 means 5, or 3 with -short")
	flag.BoolVar(&o.short, "short", false, "a quick look of less than a minute")
	flag.Float64Var(&o.failFactor, "fail", 0, "exit with 1 when a figure is worse than this factor times its target; 0 means never")
	flag.StringVar(&o.dir, "dir", "", "directory under which the databases are made; default: the system's temporary one")
	flag.StringVar(&o.jsonPath, "json", "", "file to which the figures go as JSON")
	flag.BoolVar(&o.profile, "profile", false, "in place of the figures, show where the time of one-step runs goes")
	flag.IntVar(&o.profileRun, "profile-runs", 200, "runs that a profile looks at")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "", "with -profile: file for a CPU profile of 32 clients, for go tool pprof")
	flag.BoolVar(&o.verbose, "v", false, "show the service's log")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench takes no arguments; see -help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, o, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.profile {
		return profile(ctx, o, out)
	}
	s, err := startStack(ctx, o, nil)
	if err != nil {
		return err
	}
	defer s.close()
	p := planFor(o)
	began := time.Now()
	r, err := measure(ctx, s, p, os.Stderr)
	if err != nil {
		return err
	}
	report := newReport(p, r, time.Since(began))
	report.Disk = s.disk
	report.write(out)
	if o.jsonPath != "" {
		if err := report.save(o.jsonPath); err != nil {
			return err
		}
	}
	return report.check(o.failFactor)
}
