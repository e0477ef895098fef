package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
)

// Exit codes of the program.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells say of a program ended by SIGINT
)

// DemoMode says when `stepwell dev` shows the demo.
type DemoMode string

// The demo modes.
const (
	DemoOff    DemoMode = ""
	DemoOnce   DemoMode = "once"   // at the first start on a data directory
	DemoAlways DemoMode = "always" // at every start
)

// DevOptions are the flags of `stepwell dev`.
type DevOptions struct {
	Listen  string   // address of the API, host:port
	DataDir string   // everything that the stack keeps
	Demo    DemoMode // whether the demo is shown
}

// Commands are what the commands that need a stack do. The program's wiring
// hands them in; a nil one is reported as not part of this build.
type Commands struct {
	// Dev runs the whole stack until ctx ends; then it gives nil.
	Dev func(ctx context.Context, opts DevOptions) error
	// CreateOrganization makes an organization in the installation that a data
	// directory holds (or that the environment names) and gives its first admin key.
	CreateOrganization func(ctx context.Context, name, dataDir string) (key string, err error)
	// RotateKeys seals every stored secret under the newest key, which newest names (empty:
	// one is made in the data directory), and writes its progress to out.
	RotateKeys func(ctx context.Context, newest, dataDir string, out io.Writer) error
	// Doctor looks at the installation that the environment or a data directory names.
	Doctor func(ctx context.Context, dataDir string) ([]Finding, error)
	// Version is what `stepwell version` prints.
	Version string
	// Defaults stand where a flag is absent.
	Defaults DevOptions
}

// Streams are where the command line reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal says whether Out is a terminal, whose lines can be redrawn.
	Terminal bool
	Getenv   func(string) string
}

// OSStreams are the streams of this process.
func OSStreams() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())), Getenv: os.Getenv}
}

// Main runs the command that args name (without the program's name) on the
// streams of this process, and gives the exit code: 0 when it worked, 1 when it
// did not, 2 for wrong arguments, 130 when ctx ended first.
func Main(ctx context.Context, args []string, cmds Commands) int {
	return Run(ctx, args, cmds, OSStreams())
}

// Run is Main on other streams.
func Run(ctx context.Context, args []string, cmds Commands, streams Streams) int {
	err := dispatch(ctx, args, cmds, streams)
	var usage *usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(streams.Err, "stepwell: "+usage.Error())
		return exitUsage
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	fmt.Fprintln(streams.Err, "stepwell: "+err.Error())
	if ctx.Err() != nil {
		return exitInterrupted
	}
	return exitFailure
}

// usageError is a mistake in the arguments.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// command is one row of the command table.
type command struct {
	name    string // one or two words
	args    string // positional arguments and flags, as help shows them
	summary string
	// prepare declares the flags and gives what runs after they are read.
	prepare func(c *call) func(ctx context.Context, args []string) error
}

// call is one use of a command.
type call struct {
	streams Streams
	cmds    Commands
	flags   *flag.FlagSet
}

// table lists all commands in the order of the help.
func table() []command {
	return []command{
		{"dev", "[--listen ADDR] [--data-dir DIR] [--demo | --demo=always]", "run the whole stack on this machine", devCommand},
		{"run", "TOOL [--input k=v | --input k:=JSON]… [--async]", "run a tool and print its result", runCommand},
		{"tools list", "[--archived]", "list tools", toolsList},
		{"tools get", "TOOL", "print a tool", toolsGet},
		{"tools create", "FILE", "save a new tool from a JSON file (- is standard input)", toolsCreate},
		{"tools update", "TOOL FILE", "change the fields that a JSON file names", toolsUpdate},
		{"tools archive", "TOOL", "hide a tool and refuse new runs of it", toolsArchive(true)},
		{"tools unarchive", "TOOL", "undo tools archive", toolsArchive(false)},
		{"tools delete", "TOOL", "delete a tool", toolsDelete},
		{"runs list", "[--tool TOOL] [--status STATUS]", "list runs", runsList},
		{"runs get", "RUN", "print a run", runsGet},
		{"runs results", "RUN [--output FILE]", "print or save the stored results of a run", runsResults},
		{"runs rerun", "RUN | --tool TOOL | --status STATUS | --all [--dry-run] [--from-step STEP] [--tool-version VERSION] [--max-pages N] [--async]", "take an ended run up again where it stopped", runsRerun},
		{"runs watch", "RUN", "show the progress of a run until it ends", runsWatch},
		{"runs events", "RUN [--after ID]", "print the events of a run as they come, one JSON object a line", runsEvents},
		{"runs cancel", "RUN | --tool TOOL | --user USER | --all [--dry-run]", "cancel a run, or many", runsCancel},
		{"files list", "RUN", "list the files of a run", filesList},
		{"files download", "RUN [KEY]… [--dir DIR | --output FILE]", "save files of a run, all without a KEY", filesDownload},
		{"admin create-organization", "NAME [--data-dir DIR]", "make an organization and print its first admin key", createOrganization},
		{"admin rotate-keys", "[KEY] [--data-dir DIR]", "seal every stored secret under a new key", rotateKeys},
		{"doctor", "[--data-dir DIR] [--json]", "say what is stuck in an installation, why, and what to do", doctorCommand},
		{"version", "", "print the version", versionCommand},
	}
}

// dispatch finds the command, reads its flags and runs it.
func dispatch(ctx context.Context, args []string, cmds Commands, streams Streams) error {
	if len(args) == 0 || isHelp(args[0]) {
		help(streams.Out)
		return nil
	}
	for _, cmd := range table() {
		words := strings.Fields(cmd.name)
		if len(args) < len(words) || strings.Join(args[:len(words)], " ") != cmd.name {
			continue
		}
		c := &call{streams: streams, cmds: cmds, flags: flag.NewFlagSet("stepwell "+cmd.name, flag.ContinueOnError)}
		c.flags.SetOutput(io.Discard) // its texts are ours to write
		run := cmd.prepare(c)
		rest, err := parse(c.flags, args[len(words):])
		if errors.Is(err, flag.ErrHelp) {
			commandHelp(streams.Out, cmd, c.flags)
			return err
		}
		if err != nil {
			return usagef("%s: %v; see stepwell %s --help", cmd.name, err, cmd.name)
		}
		return run(ctx, rest)
	}
	return unknown(args)
}

// unknown says what is wrong with words that name no command.
func unknown(args []string) error {
	var below []string
	for _, cmd := range table() {
		if group, sub, ok := strings.Cut(cmd.name, " "); ok && group == args[0] {
			below = append(below, sub)
		}
	}
	if below != nil {
		return usagef("%s needs one of: %s", args[0], strings.Join(below, ", "))
	}
	return usagef("unknown command %q; stepwell help lists all", args[0])
}

func isHelp(arg string) bool {
	return arg == "help" || arg == "-h" || arg == "-help" || arg == "--help"
}

// parse reads flags wherever they stand and gives the positional arguments.
// Everything behind -- is positional.
func parse(flags *flag.FlagSet, args []string) ([]string, error) {
	var positional []string
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		rest := flags.Args()
		if len(rest) == 0 {
			return positional, nil
		}
		if cut := len(args) - len(rest); cut > 0 && args[cut-1] == "--" {
			return append(positional, rest...), nil
		}
		positional, args = append(positional, rest[0]), rest[1:]
	}
}

// exactly checks the number of positional arguments against their names.
func exactly(args []string, names ...string) error {
	switch {
	case len(args) < len(names):
		return usagef("%s is missing", names[len(args)])
	case len(args) > len(names):
		return usagef("unexpected argument %q", args[len(names)])
	}
	return nil
}

// help writes the list of commands.
func help(w io.Writer) {
	fmt.Fprint(w, "stepwell runs saved, multi-step HTTP tools as durable workflows.\n\nUsage: stepwell COMMAND [arguments]\n\n")
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, cmd := range table() {
		fmt.Fprintf(columns, "  %s\t%s\n", cmd.name, cmd.summary)
	}
	_ = columns.Flush() // as good as the writes above it
	fmt.Fprint(w, "\nCommands that call a service read its address from STEPWELL_URL (default\n"+
		defaultURL+") and a key from STEPWELL_API_KEY.\n"+
		"stepwell COMMAND --help says more about one command.\n")
}

// commandHelp writes the help of one command.
func commandHelp(w io.Writer, cmd command, flags *flag.FlagSet) {
	fmt.Fprintf(w, "%s\n\nUsage: stepwell %s\n", cmd.summary, strings.TrimSpace(cmd.name+" "+cmd.args))
	any := false
	flags.VisitAll(func(*flag.Flag) { any = true })
	if any {
		fmt.Fprint(w, "\nFlags:\n")
		flags.SetOutput(w)
		flags.PrintDefaults()
	}
}
