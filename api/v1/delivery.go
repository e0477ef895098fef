package v1

// Callback is the body that is posted to a run's webhookUrl when the run has ended: the
// run, without its data when that is over 256 KiB or the run is no success.
type Callback struct {
	Run
	Success bool `json:"success"`
}

// Deliveries answers GET /runs/<runId>/deliveries.
type Deliveries struct {
	Data []Delivery `json:"data"`
}

// Delivery is the callback of one run.
type Delivery struct {
	ID            string            `json:"id"`
	RunID         string            `json:"runId"`
	WebhookID     string            `json:"webhookId"` // the webhook-id header of each attempt
	URL           string            `json:"url"`       // values of secret parameters are replaced by …
	Status        string            `json:"status"`    // pending, delivered or failed
	CreatedAt     Time              `json:"createdAt"`
	NextAttemptAt Time              `json:"nextAttemptAt,omitzero"` // while pending
	Attempts      []DeliveryAttempt `json:"attempts"`               // in the order of time, never null
}

// DeliveryAttempt is one request of a callback.
type DeliveryAttempt struct {
	StartedAt      Time   `json:"startedAt"`
	DurationMS     int64  `json:"durationMs"`
	ResponseStatus int    `json:"responseStatus,omitempty"`
	Error          string `json:"error,omitempty"`
}

// WebhookSecrets answers GET /webhook-secrets.
type WebhookSecrets struct {
	Data []WebhookSecret `json:"data"` // valid ones, newest first
}

// WebhookSecret signs callbacks by Standard Webhooks 1.0.
type WebhookSecret struct {
	ID        string `json:"id"`
	Secret    string `json:"secret"` // whsec_ and base64
	CreatedAt Time   `json:"createdAt"`
	ExpiresAt Time   `json:"expiresAt,omitzero"` // a day after a newer one was made
}
