package stepwell

import "time"

// MaxBulk is how many runs one bulk operation may cover.
const MaxBulk = 10_000

// BulkKind is what a bulk operation does to its runs.
type BulkKind string

// The kinds of bulk operations.
const (
	BulkCancel BulkKind = "cancel" // of runs that are running
	BulkRerun  BulkKind = "rerun"  // of runs that failed or were aborted
)

// BulkOperation cancels or reruns many runs in the background, each once.
type BulkOperation struct {
	OrgID, ID string
	Kind      BulkKind
	Caller    Caller // who asked for it
	Total     int    // runs chosen when it was accepted
	// Done, Skipped (the run had ended, or is gone) and Failed are those whose turn has been.
	Done, Skipped, Failed int
	Errors                []BulkError // of some that failed or were skipped
	CreatedAt             time.Time
	CompletedAt           time.Time // zero while it goes on
}

// BulkError says why a run of a bulk operation failed or was skipped.
type BulkError struct{ Run, Message string }

// BulkOutcome is what became of one run of a bulk operation.
type BulkOutcome string

// The outcomes.
const (
	BulkDone    BulkOutcome = "done"
	BulkSkipped BulkOutcome = "skipped"
	BulkFailed  BulkOutcome = "failed"
)

// BulkResult is the outcome of a run of a bulk operation, with the reason of one that was
// not done.
type BulkResult struct {
	Run     string
	Outcome BulkOutcome
	Error   string
}
