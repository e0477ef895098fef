package stepwell

import (
	"encoding/json"
	"time"
)

// RunRef names a run of an organization.
type RunRef struct{ Org, Run string }

// PageKey names one page of one item of one step of a run. Item counts from 0
// (0 for a step without a loop), Page from 1.
type PageKey struct {
	Org, Run         string
	Step, Item, Page int
}

// Page is a stored page: a received answer, or the value of a transform, and what
// follows from it.
type Page struct {
	Step, Item, Page int
	Error            string // not empty: the unit failed for good and has no Body
	Records          int64
	Bytes            int64           // of Body
	Body             json.RawMessage // decoded answer; nil where only the head was read
	Next             json.RawMessage // the engine's state for the next page; nil when Done
	Cursor           string          // of the next page; empty when there is none
	Done             bool            // the item ends here
	EndedBy          string
	Files            []File // kept with the page; Body describes them
	// State is what a transform changed in the state; it is not read back with the page.
	State *StateChange
}

// File is a file that a run made: a binary answer, an attachment, or what a transform put
// into `__files__`.
type File struct {
	Key         string // unique within the run
	Name        string // without a path
	ContentType string
	Size        int64
	Content     []byte // where it is made; not where files are listed
}

// StepSummary adds up the stored pages of one step.
type StepSummary struct {
	Step       int
	Items      int // items that have a page
	Pages      int
	Done       int // items that are done
	Failed     int // items that failed
	Records    int64
	Bytes      int64
	LastItem   int
	LastPage   int    // of the last item
	EndedBy    string // of the last item
	FirstError string
	Whole      bool // every item's pages are contiguous from 1 and end with a done one
}

// Claim says that a worker has a request in flight, or had when it died.
type Claim struct {
	Worker string
	Effect bool // written before a request that must not be repeated
	Alive  bool // its worker's lease is valid
}

// Selection is what a dataSelector chose: one plain item, or a loop over Total.
type Selection struct {
	Loop  bool
	Total int
	Items []json.RawMessage
	// Error, when it is to be stored, is that of a selector that failed: the only page of
	// its one plain item. It is not read back with the selection.
	Error string
}

// Result is the data of a successful run: the merged pages of a step when Step is
// not nil, else Body. Bytes is the size of the whole data as JSON.
type Result struct {
	Step  *int
	Body  json.RawMessage
	Bytes int64
	Files []File       // that the outputTransform made
	State *StateChange // that the outputTransform made; it is not read back
}

// Finish is the end of a run.
type Finish struct {
	Org, Run string
	Status   RunStatus
	Error    string  // of a failed or aborted run
	Result   *Result // of a successful run
	Warnings []string
	// Last, when given, is the last page of the run, stored in the same transaction: either
	// both happen, or none, because the run has ended or the page is stored already.
	Last    *Page
	LastKey PageKey
	// Alone says that nothing follows the run: it has no callback, no chained run and no
	// state to be written back. Who does not know leaves it false.
	Alone bool
	// State is what a run that read its tool's state writes back; nil for one that did not.
	State *StateWrite
	Chain *Chain // the run that follows this one, recorded in the same transaction
}

// Ended is what became of a Finish. Without Finished nothing has changed: the run had
// ended before.
type Ended struct {
	Finished    bool
	StartedAt   time.Time
	CompletedAt time.Time
	Warnings    []string // those of the Finish and what its transaction added
	Chained     bool     // the chained run is recorded
	Deliveries  []string // ids of the callbacks that were recorded and are to be started
}
