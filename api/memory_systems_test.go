package api

import (
	"context"
	"maps"

	"stepwell"
)

// memorySystems holds one system in each environment, `crm`, and changes nothing.
type memorySystems struct{ *memory }

func (m memorySystems) crm(environment string) *stepwell.System {
	return &stepwell.System{OrgID: "acme", ID: "crm", Environment: environment, Name: "CRM", URL: "https://crm.example", MultiTenancyMode: stepwell.TenancyDisabled,
		Metadata:    []byte(`{"team":"sales"}`),
		Credentials: map[string]string{"token": "very-secret", "grant_type": "client_credentials", "client_id": "c", "token_url": "https://crm.example/token", "access_token": "very-secret", "expires_at": "2030-01-01T00:00:00Z"},
		CreatedAt:   memoryTime, UpdatedAt: memoryTime}
}

func (m memorySystems) List(context.Context, string, int, int) (Listed[*stepwell.System], error) {
	return Listed[*stepwell.System]{Items: []*stepwell.System{m.crm("prod"), m.crm("dev")}, Total: 2}, m.fail
}

func (m memorySystems) Create(_ context.Context, y *stepwell.System) error {
	if y.ID == "crm" {
		return stepwell.Errorf(stepwell.KindConflict, "system_exists", "A system with the id 'crm' already exists in the environment '%s'", y.Environment)
	}
	y.CreatedAt, y.UpdatedAt = memoryTime, memoryTime
	return m.fail
}

func (m memorySystems) Get(_ context.Context, org, id, environment string) (*stepwell.System, error) {
	if id != "crm" || org != "acme" {
		return nil, stepwell.NotFound("System")
	}
	if environment == "" {
		environment = stepwell.ModeProd
	}
	return m.crm(environment), m.fail
}

func (m memorySystems) Update(ctx context.Context, org, id, environment string, change func(*stepwell.System) error) (*stepwell.System, error) {
	y, err := m.Get(ctx, org, id, environment)
	if err == nil {
		y.Credentials = maps.Clone(y.Credentials)
		err = change(y)
	}
	return y, err
}

func (m memorySystems) Delete(ctx context.Context, org, id, environment string) error {
	_, err := m.Get(ctx, org, id, environment)
	return err
}
