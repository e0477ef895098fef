package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Finding is what the doctor saw of one thing.
type Finding struct {
	Check    string   `json:"check"`
	Level    string   `json:"level"` // ok, notice or problem
	Summary  string   `json:"summary"`
	Advice   string   `json:"advice,omitempty"` // what to do
	Examples []string `json:"examples,omitempty"`
}

// errProblems ends a doctor that found something to be done: the exit code is 1.
var errProblems = errors.New("something has to be done")

// doctorCommand is `stepwell doctor`.
func doctorCommand(c *call) func(context.Context, []string) error {
	dir := c.flags.String("data-dir", c.cmds.Defaults.DataDir, "`directory` of an installation of stepwell dev; the environment's addresses win")
	asJSON := c.flags.Bool("json", false, "print the findings as JSON")
	return func(ctx context.Context, args []string) error {
		if err := exactly(args); err != nil {
			return err
		}
		if c.cmds.Doctor == nil {
			return errNotInThisBuild
		}
		findings, err := c.cmds.Doctor(ctx, *dir)
		if err != nil {
			return err
		}
		problems := 0
		for _, f := range findings {
			if f.Level == "problem" {
				problems++
			}
		}
		if *asJSON {
			if err := c.print(map[string]any{"healthy": problems == 0, "findings": findings}); err != nil {
				return err
			}
		} else {
			c.printFindings(findings)
		}
		if problems > 0 {
			return fmt.Errorf("%w: %d of %d findings are problems", errProblems, problems, len(findings))
		}
		return nil
	}
}

// printFindings writes the findings for a person.
func (c *call) printFindings(findings []Finding) {
	st := newStyle(c.streams.Terminal, c.streams.Getenv)
	for _, f := range findings {
		mark := map[string]string{"ok": st.green("ok     "), "notice": st.bold("notice "), "problem": st.red("problem")}[f.Level]
		fmt.Fprintf(c.streams.Out, "%s  %s: %s\n", mark, f.Check, f.Summary)
		for _, e := range f.Examples {
			fmt.Fprintf(c.streams.Out, "           %s\n", e)
		}
		if f.Advice != "" {
			fmt.Fprintf(c.streams.Out, "         → %s\n", strings.TrimSuffix(f.Advice, "."))
		}
	}
}
