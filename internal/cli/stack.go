package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// errNotInThisBuild is for commands whose function was not handed in.
var errNotInThisBuild = errors.New("this command is not part of this build")

// demoFlag is --demo, which takes a value but needs none.
type demoFlag struct{ mode *DemoMode }

// IsBoolFlag lets the flag stand without a value; it is then set to "true".
func (demoFlag) IsBoolFlag() bool { return true }

func (f demoFlag) String() string {
	if f.mode == nil {
		return ""
	}
	return string(*f.mode)
}

// Set reads the value: nothing, once, always, or false.
func (f demoFlag) Set(value string) error {
	switch value {
	case "true", "once":
		*f.mode = DemoOnce
	case "always":
		*f.mode = DemoAlways
	case "false":
		*f.mode = DemoOff
	default:
		return errors.New("use --demo or --demo=always")
	}
	return nil
}

// devCommand is `stepwell dev`.
func devCommand(c *call) func(context.Context, []string) error {
	opts := c.cmds.Defaults
	c.flags.StringVar(&opts.Listen, "listen", opts.Listen, "`address` of the API, host:port")
	c.flags.StringVar(&opts.DataDir, "data-dir", opts.DataDir, "`directory` that holds everything the stack keeps")
	c.flags.Var(demoFlag{&opts.Demo}, "demo", "run a demo tool at the first start on a data directory, with =always at every start")
	return func(ctx context.Context, args []string) error {
		if err := exactly(args); err != nil {
			return err
		}
		if c.cmds.Dev == nil {
			return errNotInThisBuild
		}
		return c.cmds.Dev(ctx, opts)
	}
}

// createOrganization is `stepwell admin create-organization`. The key stands
// alone on the standard output, so that a script can take it.
func createOrganization(c *call) func(context.Context, []string) error {
	dir := c.flags.String("data-dir", c.cmds.Defaults.DataDir, "`directory` of the installation")
	return func(ctx context.Context, args []string) error {
		if err := exactly(args, "NAME"); err != nil {
			return err
		}
		if strings.TrimSpace(args[0]) == "" {
			return usagef("NAME is empty")
		}
		if c.cmds.CreateOrganization == nil {
			return errNotInThisBuild
		}
		key, err := c.cmds.CreateOrganization(ctx, args[0], *dir)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.streams.Out, key)
		return nil
	}
}

// rotateKeys is `stepwell admin rotate-keys`.
func rotateKeys(c *call) func(context.Context, []string) error {
	dir := c.flags.String("data-dir", c.cmds.Defaults.DataDir, "`directory` of the installation")
	return func(ctx context.Context, args []string) error {
		newest := ""
		if len(args) > 0 {
			newest, args = args[0], args[1:]
		}
		if err := exactly(args); err != nil {
			return err
		}
		if c.cmds.RotateKeys == nil {
			return errNotInThisBuild
		}
		return c.cmds.RotateKeys(ctx, newest, *dir, c.streams.Out)
	}
}

// versionCommand is `stepwell version`.
func versionCommand(c *call) func(context.Context, []string) error {
	return func(_ context.Context, args []string) error {
		fmt.Fprintln(c.streams.Out, orText(c.cmds.Version, "unknown"))
		return exactly(args)
	}
}
