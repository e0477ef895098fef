// Package fault holds named crash points for tests: places between a commit, an
// activity's end and a call of Temporal, at which a process built with the tag `fault`
// dies, stalls or loses an answer when its environment says so. Without the tag it is
// nothing at all. It must not decide anything in a production build.
package fault

// Name is the name of a point, as Variable spells it.
type Name string

// The points, in the order in which a run passes them. Each stands for the moment that
// its comment names; the test in this package walks through all of them.
const (
	RunUnrecorded  Name = "run-unrecorded"  // a run is checked and about to be inserted
	RunRecorded    Name = "run-recorded"    // its row is committed, its workflow not started
	RunStarted     Name = "run-started"     // Temporal has the workflow, the caller no answer
	RunMarked      Name = "run-marked"      // the row says that the workflow has started
	SweptRecorded  Name = "swept-recorded"  // the sweeper is about to start a run
	SweptStarted   Name = "swept-started"   // the sweeper has started a run
	SelectUnsaved  Name = "select-unsaved"  // a selection is made and not stored
	SelectSaved    Name = "select-saved"    // a selection is committed
	ClaimUntaken   Name = "claim-untaken"   // a request with effects is about to be claimed
	ClaimTaken     Name = "claim-taken"     // its claim is committed, nothing is sent
	RequestUnsent  Name = "request-unsent"  // a request may go out now
	RequestDone    Name = "request-done"    // its answer is there, nothing is stored
	ClaimUnfreed   Name = "claim-unfreed"   // a claim of which nothing was done is about to go
	ClaimFreed     Name = "claim-freed"     // it is gone, and the retry not known to Temporal
	WaitRecorded   Name = "wait-recorded"   // a retry's wait is committed, Temporal has no timer
	PageUnsaved    Name = "page-unsaved"    // a page is about to be stored
	PageSaved      Name = "page-saved"      // a page is committed
	ActivityEnded  Name = "activity-ended"  // an activity has its outcome, Temporal does not
	FinishUnsaved  Name = "finish-unsaved"  // the final status is decided and not stored
	FinishSaved    Name = "finish-saved"    // it is committed, and nobody was told
	FinishTold     Name = "finish-told"     // the waiters of this process were told
	CancelUnsaved  Name = "cancel-unsaved"  // a cancel is about to be stored
	CancelSaved    Name = "cancel-saved"    // it is committed, and no worker was told
	CancelStopped  Name = "cancel-stopped"  // the workers were told, Temporal was not
	CancelSent     Name = "cancel-sent"     // Temporal was told, the caller has no answer
	SweptCancelled Name = "swept-cancelled" // the sweeper has cancelled a workflow again

	DeliverUnstarted Name = "deliver-unstarted" // a callback is committed, its workflow not started
	DeliverStarted   Name = "deliver-started"   // Temporal has its workflow, the row does not say so
	AttemptUnsent    Name = "attempt-unsent"    // a callback may go out now
	AttemptAnswered  Name = "attempt-answered"  // its receiver has answered, nothing is stored
	AttemptRecorded  Name = "attempt-recorded"  // the attempt is committed, Temporal has no outcome
)

// Variable is the environment variable that says what happens where: entries separated
// by commas, each `name:action:N`. Action is `kill` (SIGKILL of this process), `lose`
// (Error reports that the database's answer was lost) or a duration for which the
// goroutine stalls; N counts passages in this process, from 1, and is 1 when absent.
const Variable = "FAULT_POINTS"
