package workflows

import (
	"time"

	"stepwell/activities"
)

// RunInput is all that a run's workflow knows: ids, a slim plan, every setting that
// shapes its commands, and where it stands.
type RunInput struct {
	Org      string     `json:"org"`
	Run      string     `json:"run"`
	Plan     []PlanStep `json:"plan"`
	Settings Settings   `json:"settings"`
	Chains   bool       `json:"chains,omitempty"` // a success may be followed by another run
	At       Position   `json:"at,omitzero"`
}

// PlanStep is what the workflow needs to know of a step.
type PlanStep = activities.PlanStep

// Settings travel in the input: a changed default cannot break an open run.
type Settings struct {
	Activities      string        `json:"activities"`      // auto or regular
	SlowPage        time.Duration `json:"slowPage"`        // a step whose last request took this long goes on with regular activities
	YieldCount      int           `json:"yieldCount"`      // local activities after which the task is let go
	YieldAfter      time.Duration `json:"yieldAfter"`      // time after which the task is let go
	Lease           time.Duration `json:"lease"`           // from the start of its workflow task, in which a local activity may send
	ContinueCount   int           `json:"continueCount"`   // activities after which the run continues as new
	ContinueMinAge  time.Duration `json:"continueMinAge"`  // before which it does not: the server would make it wait
	ActivityTimeout time.Duration `json:"activityTimeout"` // start to close of a regular activity
	// DeliveryScale multiplies the waits between the attempts of callbacks; 0 means 1. It
	// goes into their workflows' input, and is none of a run's.
	DeliveryScale float64 `json:"-"`
}

// Kinds of activities that a run may use.
const (
	ActivitiesAuto    = "auto"
	ActivitiesRegular = "regular"
)

// DefaultSettings are the measured defaults of the design, "Which kind of activity".
func DefaultSettings() Settings {
	return Settings{
		Activities:      ActivitiesAuto,
		SlowPage:        2 * time.Second,
		YieldCount:      250,
		YieldAfter:      1500 * time.Millisecond,
		Lease:           3500 * time.Millisecond,
		ContinueCount:   2000,
		ContinueMinAge:  time.Second,
		ActivityTimeout: 2 * time.Hour,
	}
}

// Position is where a run stands when it continues as new: the next page of the next
// item of a step. Everything before it is stored.
type Position struct {
	Step   int   `json:"step,omitempty"`
	Item   int   `json:"item,omitempty"`
	Page   int   `json:"page,omitempty"`   // 0 means 1
	TookMS int64 `json:"tookMs,omitempty"` // of the step's last page
	Retry  Retry `json:"retry,omitzero"`   // of that page
	// Open are the items of a parallel loop that had begun and are not done; Item is the
	// first that has not begun. Failed says that one failed the step: no further one begins.
	Open   []Position `json:"open,omitempty"`
	Failed bool       `json:"failed,omitempty"`
}

// Retry is what is known of a page that is asked for again.
type Retry struct {
	Attempts int       `json:"attempts,omitempty"` // that failed and counted
	Waits    int       `json:"waits,omitempty"`    // that an upstream asked for
	WaitedMS int64     `json:"waitedMs,omitempty"` // their sum
	Timeouts int       `json:"timeouts,omitempty"` // attempts that ran into the request timeout
	Repeats  int       `json:"repeats,omitempty"`  // activities in a row that ended without an outcome
	Bugs     int       `json:"bugs,omitempty"`     // those of them that met an internal error
	Until    time.Time `json:"until,omitzero"`     // before which it is not asked for, in workflow time
}
