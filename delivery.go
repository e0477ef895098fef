package stepwell

import "time"

// DeliveryStatus is the state of a callback.
type DeliveryStatus string

// The states of a callback. A redelivery makes a failed one pending again.
const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliveryDelivered DeliveryStatus = "delivered"
	DeliveryFailed    DeliveryStatus = "failed"
)

// Delivery is the callback of one run.
type Delivery struct {
	OrgID         string
	ID            string
	RunID         string
	ToolID        string // of the run
	URL           string // may hold secrets
	Status        DeliveryStatus
	CreatedAt     time.Time
	NextAttemptAt time.Time // zero unless pending
	Scheduled     bool      // the schedule of its first round goes on
	Rounds        int       // the first, by the schedule, and one for each redelivery
	Attempts      []DeliveryAttempt
}

// WebhookID is what receivers know a callback by, over all its attempts.
func (d *Delivery) WebhookID() string { return "msg_" + d.ID }

// DeliveryAttempt is one request of a callback that was made. Round and Number count
// from 1.
type DeliveryAttempt struct {
	Round, Number int
	StartedAt     time.Time
	Duration      time.Duration
	Status        int    // of the answer; 0 without one
	Error         string // empty after a success; public
}

// WebhookSecret is a secret by which receivers check callbacks. Key is what signs.
type WebhookSecret struct {
	ID        string
	Key       []byte    // secret
	CreatedAt time.Time // when it began to sign
	ExpiresAt time.Time // zero means never
}
