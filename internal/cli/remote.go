package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"stepwell/client"
)

// defaultURL is where a service is looked for without STEPWELL_URL.
const defaultURL = "http://127.0.0.1:8080/v1"

// maxDocument bounds the files and inputs that a command reads: the API takes no
// more in one request.
const maxDocument = 16 << 20

// client is the service that the environment names.
func (c *call) client() (*client.Client, error) {
	key := c.streams.Getenv("STEPWELL_API_KEY")
	if key == "" {
		return nil, errors.New("set STEPWELL_API_KEY to a key of the service")
	}
	base := strings.TrimSuffix(orText(c.streams.Getenv("STEPWELL_URL"), defaultURL), "/")
	if !strings.HasSuffix(base, "/v1") { // the address of the service is as good as that of its API
		base += "/v1"
	}
	return client.New(base, key), nil
}

// remote is a command that checks its arguments and then calls the service.
func (c *call) remote(names []string, do func(ctx context.Context, api *client.Client, args []string) error) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		if err := exactly(args, names...); err != nil {
			return err
		}
		api, err := c.client()
		if err != nil {
			return err
		}
		return do(ctx, api, args)
	}
}

// given is the first flag among names that was given; empty without one.
func (c *call) given(names ...string) (first string) {
	c.flags.Visit(func(f *flag.Flag) {
		if first == "" && slices.Contains(names, f.Name) {
			first = f.Name
		}
	})
	return first
}

// listFlags declares the flags of a list command.
func (c *call) listFlags(most string) (page *client.Page, asJSON *bool) {
	page = &client.Page{}
	c.flags.IntVar(&page.Page, "page", 1, "page `number`, from 1")
	c.flags.IntVar(&page.Limit, "limit", 50, "rows of a page, 1 to "+most)
	return page, c.flags.Bool("json", false, "print the answer as JSON")
}

// endList writes a table out, and how to see more of it.
func (c *call) endList(w *tabwriter.Writer, more bool, page, total int) error {
	if err := w.Flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(c.streams.Err, "%s in all; --page %d shows more\n", count(int64(total)), page+1)
	}
	return nil
}

// print writes a value as indented JSON.
func (c *call) print(v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err := text.WriteTo(c.streams.Out)
	return err
}

// document reads a JSON file, or the standard input when it is called -.
func (c *call) document(name string, into any) error {
	in := c.streams.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxDocument {
		return fmt.Errorf("%s is larger than %s", name, size(maxDocument))
	}
	return documentError(name, text, json.Unmarshal(text, into))
}

// documentError says in words of the document what is wrong with it.
func documentError(name string, text []byte, err error) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(text[:min(syntax.Offset, int64(len(text)))], []byte("\n"))
		return fmt.Errorf("%s:%d: no JSON: %w", name, line, err)
	case errors.As(err, &wrong) && wrong.Field == "":
		return fmt.Errorf("%s: it must be an object, not a JSON %s", name, wrong.Value)
	case errors.As(err, &wrong):
		return fmt.Errorf("%s: '%s' cannot be a JSON %s", name, wrong.Field, wrong.Value)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// clock is a time in a list, in the zone of who reads it.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
