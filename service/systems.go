package service

import (
	"context"

	"stepwell"
	"stepwell/api"
)

// Systems implements api.Systems.
type Systems struct{ s *Service }

// Systems gives the service's systems.
func (s *Service) Systems() *Systems { return &Systems{s} }

// List gives a page of systems.
func (y *Systems) List(ctx context.Context, org string, page, limit int) (api.Listed[*stepwell.System], error) {
	systems, total, err := y.s.Store.ListSystems(ctx, org, page, limit)
	return api.Listed[*stepwell.System]{Items: systems, Total: total, More: page*limit < total}, err
}

// Create saves a new system.
func (y *Systems) Create(ctx context.Context, system *stepwell.System) error {
	return y.s.Store.CreateSystem(ctx, system)
}

// Get reads a system.
func (y *Systems) Get(ctx context.Context, org, id, environment string) (*stepwell.System, error) {
	return y.s.Store.System(ctx, org, id, environment)
}

// Update changes a system.
func (y *Systems) Update(ctx context.Context, org, id, environment string, change func(*stepwell.System) error) (*stepwell.System, error) {
	return y.s.Store.UpdateSystem(ctx, org, id, environment, change)
}

// Delete deletes a system.
func (y *Systems) Delete(ctx context.Context, org, id, environment string) error {
	return y.s.Store.DeleteSystem(ctx, org, id, environment)
}
