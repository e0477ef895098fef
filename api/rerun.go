package api

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"stepwell"
)

// rerunRequest is the body of a rerun.
type rerunRequest struct {
	run         NewRun
	given       object // the options as they were given
	fromStep    string
	toolVersion string
}

func parseRerunRequest(req *request) (rerunRequest, error) {
	n, err := parseRunRequest(req)
	in := rerunRequest{run: n, fromStep: req.body.text("fromStep"), toolVersion: req.body.text("toolVersion")}
	if err == nil {
		in.given, _ = req.body.object("options")
		err = req.fields.err
	}
	return in, err
}

// rerun starts a run that takes up an ended one. The checks come in the order in which
// a run's do; what is stored of the ended run is the Runner's to judge.
func (a *API) rerun(ctx context.Context, req *request, in rerunRequest) (*response, error) {
	n, err := a.takeUp(ctx, req, in)
	if err != nil {
		return nil, err
	}
	return a.begin(ctx, req, n)
}

// Again starts the rerun of an ended run where it stopped, with its own version and
// options, asynchronously. It is how a bulk operation reruns.
func (a *API) Again(ctx context.Context, caller *stepwell.Caller, of *stepwell.Run, id string) error {
	req := &request{caller: caller, run: of, trace: id}
	n, err := a.takeUp(ctx, req, rerunRequest{run: NewRun{ID: id}})
	if err != nil {
		return err
	}
	n.Options.Async = true
	_, err = a.Runner.Start(ctx, n)
	return err
}

// takeUp makes the run of a rerun.
func (a *API) takeUp(ctx context.Context, req *request, in rerunRequest) (n NewRun, err error) {
	of := req.run
	n = in.run
	live, err := a.findTool(ctx, req.caller.OrgID, of.ToolID)
	if err != nil {
		return n, err
	}
	// A tool that was deleted and made again is another one, and has not this version.
	original, err := a.Tools.Version(ctx, req.caller.OrgID, of.ToolID, of.Tool.Version)
	if stepwell.KindOf(err) == stepwell.KindNotFound || err == nil && original.VersionKey != of.ToolVersion {
		return n, stepwell.NotFound("Tool")
	}
	if err != nil {
		return n, err
	}
	if live.Archived {
		return n, errArchived
	}
	if !of.Status.Final() {
		return n, stepwell.Invalid("invalid_rerun", "The run is still running: wait for its end, or cancel it, before it is rerun")
	}
	if req.tool, err = a.rerunVersion(ctx, req, original, in.toolVersion); err != nil {
		return n, err
	}
	n.Rerun = &Rerun{Of: of, FromStep: in.fromStep}
	n.Rerun.NewInputs = n.Inputs != nil && !sameJSON(n.Inputs, of.Inputs)
	if err := checkRerun(n, req.tool); err != nil {
		return n, err
	}
	if n.Inputs == nil {
		n.Inputs = of.Inputs
	}
	n.Options = mergeOptions(of.Options, n.Options, in.given)
	if err := a.completeRun(ctx, req, &n); err != nil {
		return n, err
	}
	return n, nil
}

// rerunVersion is the version that was asked for, else the original's.
func (a *API) rerunVersion(ctx context.Context, req *request, original *stepwell.Tool, version string) (*stepwell.Tool, error) {
	if version == "" {
		return original, nil
	}
	t, err := a.Tools.Version(ctx, req.caller.OrgID, original.ID, version)
	if stepwell.KindOf(err) == stepwell.KindNotFound {
		return nil, stepwell.Invalid("invalid_rerun", "'toolVersion' is not a version of this tool: %.40s", version)
	}
	return t, err
}

// checkRerun checks what a rerun asks for against the run that ended.
func checkRerun(n NewRun, t *stepwell.Tool) error {
	of, from := n.Rerun.Of, n.Rerun.FromStep
	place := slices.IndexFunc(t.Steps, func(s stepwell.Step) bool { return s.ID == from })
	switch {
	case from != "" && place < 0:
		return stepwell.Invalid("invalid_rerun", "'fromStep' is not a step of version %s of this tool: %.100s", t.Version, from)
	case from == "" && of.Status == stepwell.RunSuccess:
		return stepwell.Invalid("invalid_rerun", "The run was a success: say with 'fromStep' from which step it is to be rerun")
	case from != "" && place > 0 && n.Rerun.NewInputs:
		return stepwell.Invalid("invalid_rerun", "New 'inputs' need a rerun from the first step: give 'fromStep' with its id, or no 'inputs'")
	}
	var given map[string]json.RawMessage
	if n.Credentials != nil {
		if err := json.Unmarshal(n.Credentials, &given); err != nil {
			return stepwell.Invalid("invalid_field", "'credentials' must be an object")
		}
	}
	missing := slices.DeleteFunc(slices.Clone(of.CredentialNames), func(name string) bool {
		value, ok := given[name]
		return ok && string(value) != "null"
	})
	if len(missing) > 0 {
		return stepwell.Invalid("missing_credentials", "The run used run-time credentials, which are not kept: give 'credentials' again with %s", strings.Join(missing, ", "))
	}
	return nil
}

// mergeOptions are the original's options with those that were given in their places. A
// trace id is of one run, so that of the original is not taken over.
func mergeOptions(original, given stepwell.RunOptions, o object) stepwell.RunOptions {
	out := original
	out.TraceID = given.TraceID
	if o.get("async") != nil {
		out.Async = given.Async
	}
	replace(&out.TimeoutMS, given.TimeoutMS)
	replace(&out.WebhookURL, given.WebhookURL)
	replace(&out.Mode, given.Mode)
	replace(&out.RequestSource, given.RequestSource)
	replace(&out.MaxPages, given.MaxPages)
	replace(&out.EndUserID, given.EndUserID)
	return out
}

// replace sets what was given; no option can be given as its zero value but async.
func replace[T comparable](old *T, given T) {
	var none T
	if given != none {
		*old = given
	}
}

// sameJSON reports whether two texts are the same value; numbers are the same when they
// are written the same.
func sameJSON(a, b json.RawMessage) bool {
	read := func(raw json.RawMessage) (v any) {
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.UseNumber()
		_ = d.Decode(&v) // both are known to be JSON
		return v
	}
	return reflect.DeepEqual(read(a), read(b))
}
