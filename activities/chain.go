package activities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"stepwell"
	"stepwell/engine"
)

// largeLink is above how many bytes the data that a run hands to the next one is made
// one at a time in a process: it is whole in memory.
const largeLink = 8 << 20

// chain adds to the success of a run the run that follows it, if one does.
func (a *Activities) chain(ctx context.Context, s *session, f *stepwell.Finish) error {
	target, ok := s.run.Options.ChainTarget()
	if !ok || f.Status != stepwell.RunSuccess {
		return nil
	}
	if s.run.Link >= stepwell.MaxLinks {
		f.Warnings = append(f.Warnings, fmt.Sprintf("The chain ends here: it has %d runs, the most that a chain may have", stepwell.MaxLinks))
		return nil
	}
	parent := s.run
	c := &stepwell.Chain{Run: stepwell.Run{
		OrgID: parent.OrgID, ID: stepwell.ChainedRunID(parent.ID), ToolID: target, Status: stepwell.RunRunning, Options: parent.Options,
		RequestSource: stepwell.SourceChain, TraceID: parent.TraceID, UserID: parent.UserID, Mode: parent.Mode,
		ParentRunID: parent.ID, Link: parent.Link + 1, DataSize: -1,
	}}
	c.Run.Options.WebhookURL, c.Run.Options.RequestSource = "", stepwell.SourceChain
	var err error
	if c.Credentials, err = s.credentials(); err != nil {
		return err
	}
	if f.Result.Bytes > largeLink {
		select {
		case a.large <- struct{}{}:
			defer func() { <-a.large }()
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	if c.Run.Inputs, err = s.payload(ctx, f.Result); err != nil {
		return err
	}
	if err := a.aim(ctx, s, f, c); err != nil {
		return err
	}
	f.Chain = c
	return nil
}

// credentials are the run-time credentials as they were given, nil without any.
func (s *session) credentials() (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.run.CredentialNames) == 0 {
		return nil, nil
	}
	return json.Marshal(s.secrets)
}

// payload makes the inputs of the next run of a result: an object as it is, anything
// else under `data`.
func (s *session) payload(ctx context.Context, r *stepwell.Result) (json.RawMessage, error) {
	data := r.Body
	if r.Step != nil {
		v, err := s.value(ctx, *r.Step)
		if err != nil {
			return nil, err
		}
		if v == nil {
			return nil, fmt.Errorf("step %d has no stored value", *r.Step)
		}
		data = v.Data
	}
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '{' {
		return data, nil
	}
	return fmt.Appendf(nil, `{"data":%s}`, data), nil
}

// aim finds the tool of the next run and fits its inputs. A run that cannot begin is
// recorded all the same, as failed: chains are watched by their runs.
func (a *Activities) aim(ctx context.Context, s *session, f *stepwell.Finish, c *stepwell.Chain) error {
	def, err := a.Store.Tool(ctx, c.Run.OrgID, c.Run.ToolID)
	if stepwell.KindOf(err) == stepwell.KindNotFound {
		f.Warnings = append(f.Warnings, fmt.Sprintf("The chained tool '%s' was not found", c.Run.ToolID))
		c.Failed = "Tool not found"
		return nil
	}
	if err != nil {
		return err
	}
	c.Run.ToolVersion, c.Run.Options.WebhookURL = def.VersionKey, def.WebhookURL
	if def.Archived {
		f.Warnings = append(f.Warnings, fmt.Sprintf("The chained tool '%s' is archived", c.Run.ToolID))
		c.Failed = "Tool is archived"
		return nil
	}
	t, err := a.sessions.tool(ctx, c.Run.OrgID, def.VersionKey)
	if err != nil || t.broken != nil {
		return err // a broken one fails by itself, and says why
	}
	fitted, err := engine.FitInputs(t.compiled.InputSchema, c.Run.Inputs)
	var misfit *engine.StepError
	if errors.As(err, &misfit) {
		c.Failed = s.public(misfit.Message)
		return nil
	}
	if err == nil {
		c.Run.Inputs = fitted
	}
	return err
}

// chained finds the run that follows one that had ended before; nil when there is none
// or it has ended too.
func (a *Activities) chained(ctx context.Context, req FinishRequest) (*Next, error) {
	run, err := a.Store.ChainedRun(ctx, req.Org, req.Run)
	if err != nil || run == nil || run.Status.Final() {
		return nil, err
	}
	return a.nextRun(ctx, run)
}

// nextRun says how the workflow of a recorded run is started.
func (a *Activities) nextRun(ctx context.Context, run *stepwell.Run) (*Next, error) {
	t, err := a.sessions.tool(ctx, run.OrgID, run.ToolVersion)
	if err != nil {
		return nil, err
	}
	_, chains := run.Options.ChainTarget()
	return &Next{Run: run.ID, Tool: run.ToolID, Plan: Plan(t.def), Chains: chains}, nil
}
