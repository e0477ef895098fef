package v1

// List is one page of a list, newest first.
type List[T any] struct {
	Data    []T  `json:"data"` // never null
	Page    int  `json:"page"` // from 1
	Limit   int  `json:"limit"`
	Total   int  `json:"total"` // of all pages; may stop at a bound
	HasMore bool `json:"hasMore"`
}

// Whole is a list that is always given whole.
type Whole[T any] struct {
	Data []T `json:"data"` // never null
}

// Error is the body of every answer that is no success.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail says what went wrong and what to do next.
type ErrorDetail struct {
	Message string `json:"message"`
	Code    string `json:"code"` // a stable snake_case word
}

// Deleted answers a DELETE.
type Deleted struct {
	Success bool `json:"success"`
}

// Health answers GET /health.
type Health struct {
	Status string `json:"status"` // ok
}

// Ready answers GET /health/ready when requests can be served.
type Ready struct {
	Status string            `json:"status"` // ok, or degraded: something is away that can wait
	Checks map[string]string `json:"checks"` // ok or down, for postgres, temporal, evaluators
}
