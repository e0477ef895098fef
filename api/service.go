package api

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"

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

// health answers that this process lives and serves. What it depends on is another
// question: to start it again because Postgres is away would help nobody.
func (a *API) health(context.Context, *request, none) (*response, error) {
	return &response{body: v1.Health{Status: "ok"}}, nil
}

// ready answers whether requests can be served: 503 without something that they need,
// and degraded, with 200, without something that can wait. So a server stays in its load
// balancer while Temporal is away, when runs are accepted and wait.
func (a *API) ready(ctx context.Context, _ *request, _ none) (*response, error) {
	answer := v1.Ready{Status: "ok", Checks: map[string]string{}}
	if a.Ready == nil {
		return &response{body: answer}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var missing []string
	var causes []error
	for _, c := range a.Ready(ctx) {
		answer.Checks[c.Name] = "ok"
		if c.Err == nil {
			continue
		}
		answer.Checks[c.Name], answer.Status = "down", "degraded"
		if c.Required {
			missing = append(missing, c.Name)
			causes = append(causes, fmt.Errorf("%s: %w", c.Name, c.Err))
		}
	}
	if len(missing) > 0 {
		return nil, &stepwell.Error{Kind: stepwell.KindUnavailable, Code: "not_ready", Cause: errors.Join(causes...),
			Message: "The service is not ready, it lacks: " + strings.Join(missing, ", ") + ". Try again after the seconds in Retry-After"}
	}
	return &response{body: answer}, nil
}
