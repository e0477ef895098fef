package activities

import "time"

// Names of the activities as Temporal knows them.
const (
	PageName   = "Page"
	SelectName = "Select"
	FinishName = "Finish"

	AttemptName = "Attempt"
)

// InternalError is the type of the application error by which an activity says that
// it met a bug; every other end without an outcome is an outage.
const InternalError = "internal"

// Outcome is what became of one activity.
type Outcome string

// Outcomes. Pending comes from local activities only.
const (
	More     Outcome = "more"     // stored; the item has a further page
	Done     Outcome = "done"     // stored; the item ends here
	Failed   Outcome = "failed"   // stored; the item failed for good
	Retry    Outcome = "retry"    // nothing stored; again after After
	Pending  Outcome = "pending"  // still going on, or not begun: ask again with a regular activity
	Gone     Outcome = "gone"     // the run has ended
	Finished Outcome = "finished" // the run was finished by this very activity
)

// PageRequest asks for one page of one item of one step. It holds indices only:
// bodies, cursors and secrets never pass through Temporal.
type PageRequest struct {
	Org       string    `json:"o"`
	Run       string    `json:"r"`
	Step      int       `json:"s"`
	Item      int       `json:"i,omitempty"`
	Page      int       `json:"p"`
	Attempt   int       `json:"a"`           // from 1; waits that an upstream asked for use up none
	WaitedMS  int64     `json:"w,omitempty"` // of waits that an upstream asked for, so far
	Waits     int       `json:"n,omitempty"` // number of such waits
	Timeouts  int       `json:"t,omitempty"` // attempts that ran into the request timeout
	Lease     time.Time `json:"l,omitzero"`  // local: nothing is sent after it
	Contended bool      `json:"c,omitempty"` // somebody else may have this page in flight
	Last      bool      `json:"e,omitempty"` // a plain success of this item ends the run
}

// PageResult is the outcome of a page.
type PageResult struct {
	Outcome Outcome `json:"o"`
	Page    int     `json:"p,omitempty"` // the last of the pages that were stored before and for which this is the outcome
	TookMS  int64   `json:"t,omitempty"`
	AfterMS int64   `json:"a,omitempty"` // Retry: how long to wait
	Asked   bool    `json:"u,omitempty"` // Retry: the upstream asked for the wait, which uses up no attempt
	Timeout bool    `json:"x,omitempty"` // Retry: the attempt ran into the request timeout
}

// SelectRequest asks for a step's dataSelector to be run and its choice stored.
type SelectRequest struct {
	Org   string    `json:"o"`
	Run   string    `json:"r"`
	Step  int       `json:"s"`
	Lease time.Time `json:"l,omitzero"`
}

// SelectResult is the head of a stored selection. Outcome is Done, Failed, Pending or Gone.
type SelectResult struct {
	Outcome Outcome `json:"o"`
	Loop    bool    `json:"l,omitempty"`
	Total   int     `json:"n,omitempty"`
}

// FinishRequest ends a run.
type FinishRequest struct {
	Org    string    `json:"o"`
	Run    string    `json:"r"`
	Status string    `json:"s"`             // success, failed or aborted
	Step   int       `json:"i"`             // failed: the step whose stored error is the run's
	Reason string    `json:"why,omitempty"` // failed without a stored error, or aborted: the public text
	Lease  time.Time `json:"l,omitzero"`
	Chains bool      `json:"c,omitempty"` // a success may be followed by another run
}

// FinishResult is the outcome of a finish: Finished, Gone, or Pending when it goes on, or
// when the success turned out to be none and only a regular activity may say so.
type FinishResult struct {
	Outcome Outcome `json:"o"`
	Next    *Next   `json:"n,omitempty"` // the run that follows and has not ended; nil when there is none
}

// Next is a recorded run whose workflow is to be started.
type Next struct {
	Run    string     `json:"r"`
	Tool   string     `json:"t"`
	Plan   []PlanStep `json:"p"`
	Chains bool       `json:"c,omitempty"` // it may be followed by another one itself
}

// AttemptRequest asks for one attempt of a callback. Round and Number count from 1.
type AttemptRequest struct {
	Org      string `json:"o"`
	Delivery string `json:"d"`
	Round    int    `json:"r"`
	Number   int    `json:"n"`
	NextMS   int64  `json:"w,omitempty"` // the wait after it, if it fails
	Last     bool   `json:"l,omitempty"` // of its round
}

// AttemptResult is the outcome of an attempt.
type AttemptResult struct {
	Over    bool  `json:"o,omitempty"` // delivered or given up: the round has no further attempt
	AfterMS int64 `json:"a,omitempty"` // else how long to wait before the next
}
