package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	v1 "stepwell/api/v1"
	"stepwell/client"
)

// filesList is `stepwell files list`.
func filesList(c *call) func(context.Context, []string) error {
	asJSON := c.flags.Bool("json", false, "print the answer as JSON")
	return c.remote([]string{"RUN"}, func(ctx context.Context, api *client.Client, args []string) error {
		files, err := api.Files(ctx, args[0])
		if err != nil {
			return err
		}
		if *asJSON {
			return c.print(v1.Files{FileArtifacts: files})
		}
		w := tabwriter.NewWriter(c.streams.Out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, "KEY\tNAME\tTYPE\tSIZE")
		for _, f := range files {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.FileKey, f.Filename, f.ContentType, size(f.Size))
		}
		return w.Flush()
	})
}

// filesDownload is `stepwell files download`.
func filesDownload(c *call) func(context.Context, []string) error {
	dir := c.flags.String("dir", ".", "`directory` for the files, under their names")
	output := c.flags.String("output", "", "`file` for the content of one KEY (- is standard output)")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("RUN is missing")
		}
		if *output != "" && len(args) != 2 {
			return usagef("--output needs one KEY")
		}
		api, err := c.client()
		if err != nil {
			return err
		}
		files, err := api.Files(ctx, args[0])
		if err != nil {
			return err
		}
		if files, err = chosen(files, args[1:]); err != nil {
			return err
		}
		taken := map[string]bool{}
		for _, f := range files {
			target := *output
			if target == "" {
				target = filepath.Join(*dir, nameFor(f, taken))
			}
			if err := c.toFile(target, func(w io.Writer) error { return api.Download(ctx, f, w) }); err != nil {
				return err
			}
			if target != "-" {
				fmt.Fprintf(c.streams.Out, "%s  %s\n", target, size(f.Size))
			}
		}
		return nil
	}
}

// chosen are the files with the keys; all without any.
func chosen(files []v1.FileArtifact, keys []string) ([]v1.FileArtifact, error) {
	if len(keys) == 0 {
		return files, nil
	}
	var out []v1.FileArtifact
	for _, key := range keys {
		i := slices.IndexFunc(files, func(f v1.FileArtifact) bool { return f.FileKey == key })
		if i < 0 {
			return nil, fmt.Errorf("the run has no file %s; stepwell files list shows those that it has", key)
		}
		out = append(out, files[i])
	}
	return out, nil
}

// nameFor is the name under which a file is kept: its own, which an upstream chose, made
// harmless, after its key when another file has taken it.
func nameFor(f v1.FileArtifact, taken map[string]bool) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\:`, r) {
			return '_'
		}
		return r
	}, f.Filename)
	if name = strings.TrimLeft(name, "."); name == "" || taken[name] {
		name = f.FileKey + "-" + name
	}
	taken[name] = true
	return name
}

// toFile writes a new file, which is there whole or not at all; - is the standard output.
func (c *call) toFile(name string, write func(io.Writer) error) error {
	if name == "-" {
		return write(c.streams.Out)
	}
	if _, err := os.Lstat(name); err == nil {
		return fmt.Errorf("%s exists already", name)
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".stepwell-*")
	if err != nil {
		return err
	}
	err = write(file)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
