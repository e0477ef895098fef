package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/api"
	"stepwell/engine"
	"stepwell/store"
)

// toolKey names a tool.
type toolKey struct{ org, id string }

// version is a tool version with its compiled filters. The rest is not needed to show
// runs: one whose expressions do not compile can be looked at, too.
type version struct {
	def     *stepwell.Tool
	filters *engine.Filters
}

// Tools implements api.Tools.
type Tools struct{ s *Service }

// Tools gives the service's tools.
func (s *Service) Tools() *Tools { return &Tools{s} }

// Create saves a new tool.
func (t *Tools) Create(ctx context.Context, org string, tool *stepwell.Tool) (*stepwell.Tool, error) {
	return t.s.Store.CreateTool(ctx, org, tool)
}

// Get gives the latest version, from the cache when it is there.
func (t *Tools) Get(ctx context.Context, org, id string) (*stepwell.Tool, error) {
	key := toolKey{org, id}
	if tool, ok := t.s.tools.get(key); ok {
		return tool, nil
	}
	before := t.s.tools.before()
	tool, err := t.s.Store.Tool(ctx, org, id)
	if err == nil {
		t.s.tools.putSince(before, key, tool)
	}
	return tool, err
}

// List gives a page of tools.
func (t *Tools) List(ctx context.Context, org string, q api.ToolQuery) (api.Listed[*stepwell.Tool], error) {
	tools, total, err := t.s.Store.ListTools(ctx, org, q.IncludeArchived, q.Only, q.Page, q.Limit)
	return api.Listed[*stepwell.Tool]{Items: tools, Total: total, More: q.Page*q.Limit < total}, err
}

// Update changes a tool.
func (t *Tools) Update(ctx context.Context, org, id string, change func(*stepwell.Tool) error) (*stepwell.Tool, error) {
	tool, err := t.s.Store.UpdateTool(ctx, org, id, change, stepwell.NextVersion)
	if err == nil {
		t.changed(ctx, org, id)
	}
	return tool, err
}

// Delete removes a tool.
func (t *Tools) Delete(ctx context.Context, org, id string) error {
	err := t.s.Store.DeleteTool(ctx, org, id)
	if err == nil {
		t.changed(ctx, org, id)
	}
	return err
}

// changed makes every process forget what it cached of a tool.
func (t *Tools) changed(ctx context.Context, org, id string) {
	t.s.tools.drop(toolKey{org, id})
	if err := t.s.notifier.SendNow(ctx, store.Notice{Topic: store.TopicTool, Words: []string{org, id}}); err != nil {
		t.s.Log.Warn("other processes see a changed tool only after some seconds", zap.String("tool", id), zap.Error(err))
	}
}

// Versions gives all versions.
func (t *Tools) Versions(ctx context.Context, org, id string) ([]*stepwell.Tool, error) {
	return t.s.Store.ToolVersions(ctx, org, id)
}

// Version gives one version.
func (t *Tools) Version(ctx context.Context, org, id, version string) (*stepwell.Tool, error) {
	if _, err := t.Get(ctx, org, id); err != nil {
		return nil, err
	}
	return t.s.Store.ToolVersion(ctx, org, id, version)
}

// Restore saves an earlier version's content as the next version.
func (t *Tools) Restore(ctx context.Context, org, id, version string) (*stepwell.Tool, error) {
	old, err := t.Version(ctx, org, id, version)
	if err != nil {
		return nil, err
	}
	return t.Update(ctx, org, id, func(tool *stepwell.Tool) error {
		latest, created := tool.Version, tool.CreatedAt
		*tool = *old
		tool.Version, tool.CreatedAt = latest, created
		return nil
	})
}

// ValidateTool checks a tool before it is saved.
func (s *Service) ValidateTool(ctx context.Context, t *stepwell.Tool) error {
	return engine.ValidateTool(ctx, s.Evaluator, t)
}

// ValidateInputs checks inputs against the tool's inputSchema and fills in its defaults.
func (s *Service) ValidateInputs(_ context.Context, t *stepwell.Tool, inputs json.RawMessage) (json.RawMessage, error) {
	if t.InputSchema == nil {
		return inputs, nil
	}
	schema, ok := s.schemas.get(t.VersionKey)
	if !ok {
		var err error
		if schema, err = engine.CompileSchema(t.InputSchema); err != nil {
			return nil, errors.Join(errors.New("a saved inputSchema does not compile"), err)
		}
		s.schemas.put(t.VersionKey, schema)
	}
	fitted, err := engine.FitInputs(schema, inputs)
	var misfit *engine.StepError
	if errors.As(err, &misfit) {
		return nil, stepwell.Invalid("invalid_inputs", "%s", misfit.Message)
	}
	return fitted, err
}

// version gives the version that a run is pinned to.
func (s *Service) version(ctx context.Context, org string, key int64) (*version, error) {
	if v, ok := s.versions.get(key); ok {
		return v, nil
	}
	def, err := s.Store.ToolByKey(ctx, org, key)
	if err != nil {
		return nil, err
	}
	filters, err := engine.CompileFilters(def.ResponseFilters)
	if err != nil {
		return nil, fmt.Errorf("a saved filter does not compile: %w", err)
	}
	v := &version{def, filters}
	s.versions.put(key, v)
	return v, nil
}
