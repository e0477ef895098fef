package api

import (
	"context"
	"encoding/base64"

	"stepwell"
	"stepwell/api/v1"
	"stepwell/internal/secret"
)

// secretPrefix begins a signing secret. Source: Standard Webhooks 1.0.
const secretPrefix = "whsec_"

func (a *API) listDeliveries(ctx context.Context, req *request, _ none) (*response, error) {
	all, err := a.Deliveries.OfRun(ctx, req.caller.OrgID, req.run.ID)
	if err != nil {
		return nil, err
	}
	return &response{body: v1.Deliveries{Data: each(all, wireDelivery)}}, nil
}

func (a *API) redeliver(ctx context.Context, req *request, _ none) (*response, error) {
	d, err := a.Deliveries.Redeliver(ctx, req.caller.OrgID, req.vars["deliveryId"])
	if err != nil {
		return nil, err
	}
	return &response{body: wireDelivery(d)}, nil
}

func wireDelivery(d *stepwell.Delivery) v1.Delivery {
	return v1.Delivery{
		ID: d.ID, RunID: d.RunID, WebhookID: d.WebhookID(), URL: secret.RedactURL(d.URL), Status: string(d.Status),
		CreatedAt: wireTime(d.CreatedAt), NextAttemptAt: wireTime(d.NextAttemptAt), Attempts: each(d.Attempts, wireAttempt),
	}
}

func wireAttempt(a stepwell.DeliveryAttempt) v1.DeliveryAttempt {
	return v1.DeliveryAttempt{StartedAt: wireTime(a.StartedAt), DurationMS: a.Duration.Milliseconds(), ResponseStatus: a.Status, Error: a.Error}
}

func (a *API) listWebhookSecrets(ctx context.Context, req *request, _ none) (*response, error) {
	all, err := a.Deliveries.Secrets(ctx, req.caller.OrgID)
	if err != nil {
		return nil, err
	}
	return &response{body: v1.WebhookSecrets{Data: each(all, wireSecret)}}, nil
}

func (a *API) createWebhookSecret(ctx context.Context, req *request, _ none) (*response, error) {
	s, err := a.Deliveries.RotateSecret(ctx, req.caller.OrgID)
	if err != nil {
		return nil, err
	}
	return &response{body: wireSecret(*s), made: s.ID}, nil
}

func wireSecret(s stepwell.WebhookSecret) v1.WebhookSecret {
	return v1.WebhookSecret{ID: s.ID, Secret: secretPrefix + base64.StdEncoding.EncodeToString(s.Key), CreatedAt: wireTime(s.CreatedAt), ExpiresAt: wireTime(s.ExpiresAt)}
}
