package api

import (
	"context"
	_ "embed"
	"net/http"

	"go.uber.org/zap"

	"stepwell"
	"stepwell/api/v1"
)

// openAPIDocument describes the routes exactly; a test compares the two.
//
//go:embed openapi.yaml
var openAPIDocument []byte

func (a *API) openAPI(context.Context, *request, none) (*response, error) {
	return &response{parts: [][]byte{openAPIDocument}, header: http.Header{"Content-Type": {"application/yaml"}}}, nil
}

// health answers whether requests can be served at all.
func (a *API) health(ctx context.Context, _ *request, _ none) (*response, error) {
	if a.Health != nil {
		ctx, cancel := context.WithTimeout(ctx, healthTimeout)
		defer cancel()
		if err := a.Health(ctx); err != nil {
			a.Log.Warn("not healthy", zap.Error(err))
			return nil, stepwell.Errorf(stepwell.KindUnavailable, "unavailable", "The service is not ready: try again after the seconds in Retry-After")
		}
	}
	return &response{body: v1.Health{Status: "ok"}}, nil
}
