package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"stepwell"
)

// All ports share these rules. Every call is about one organization; another
// organization's object answers like a missing one. Expected failures are
// *stepwell.Error (wrapped or not) with a public message; any other error becomes
// a 500 and is logged. Values handed out belong to the caller of the port, unless
// a comment says that they must not be changed.

// Listed is one page of a list, newest first.
type Listed[T any] struct {
	Items []T
	Total int  // of all pages; may stop at a bound when counting further is expensive
	More  bool // whether a later page has items; right also when Total stopped at its bound
}

// Check is the state of one thing that the service depends on.
type Check struct {
	Name     string // as GET /health/ready shows it
	Required bool   // whether requests cannot be served without it
	Err      error  // private; nil when it works
}

// Keys keeps the API keys.
type Keys interface {
	// Authenticate finds the caller of a key by the key's SHA-256. Unknown, expired
	// and revoked keys are KindUnauthorized. It is called for every request, so it
	// should answer from a cache that revocation drops, and it notes the last use
	// without making the request wait. The caller is shared and must not be changed.
	Authenticate(ctx context.Context, keyHash [32]byte) (*stepwell.Caller, error)
	// List gives the keys of an organization.
	List(ctx context.Context, orgID string, page, limit int) (Listed[*stepwell.APIKey], error)
	// Create makes a key from the name, role, tools, user and expiry of k (already
	// checked) and gives the stored key with the key's text, which is shown once.
	// An empty UserID becomes the key's id.
	Create(ctx context.Context, orgID string, k *stepwell.APIKey) (created *stepwell.APIKey, text string, err error)
	// Update changes the name, role, tools and expiry of a key in one transaction.
	// KindNotFound when there is none; KindInvalid when that would leave the
	// organization without an admin key. An error of change is returned as it is.
	Update(ctx context.Context, orgID, id string, change func(*stepwell.APIKey) error) (*stepwell.APIKey, error)
	// Delete revokes a key: from its return on, Authenticate refuses it. KindNotFound
	// when there is none; KindInvalid for the last admin key.
	Delete(ctx context.Context, orgID, id string) error
}

// Systems keeps the systems and their credentials. A missing one is KindNotFound, "System
// not found"; an empty environment picks prod if there is one, else dev.
type Systems interface {
	// List gives the systems of an organization, one of each environment.
	List(ctx context.Context, orgID string, page, limit int) (Listed[*stepwell.System], error)
	// Create saves a checked system and sets its times; KindConflict when the pair of id
	// and environment is taken.
	Create(ctx context.Context, y *stepwell.System) error
	// Get reads a system with its credentials, which must not be shown.
	Get(ctx context.Context, orgID, id, environment string) (*stepwell.System, error)
	// Update changes a system in one transaction, but not its id and environment. An
	// error of change is returned as it is.
	Update(ctx context.Context, orgID, id, environment string, change func(*stepwell.System) error) (*stepwell.System, error)
	// Delete deletes a system.
	Delete(ctx context.Context, orgID, id, environment string) error
}

// Links seals what links hold, bound to a place, and opens it again.
type Links interface {
	Seal(plaintext []byte, place ...string) ([]byte, error)
	Open(sealed []byte, place ...string) ([]byte, error)
}

// Portal serves the pages on which end users connect systems.
type Portal interface {
	// ServePortal answers a request, whose trace id it shows where something went wrong,
	// and says with which status.
	ServePortal(w http.ResponseWriter, r *http.Request, trace string) (status int)
}

// ToolQuery asks for a page of tools.
type ToolQuery struct {
	IncludeArchived bool
	Only            []string // ids that may be listed; nil means all, empty means none
	Page, Limit     int      // page from 1, limit 1 to 1000
}

// Tools keeps the tools and their versions. A missing tool is KindNotFound,
// "Tool not found".
type Tools interface {
	// Create saves a new tool at version 1.0.0 and gives it as stored. t.ID is a valid
	// id, or empty: then a UUID is made. A taken id gets the first free suffix
	// (`-1`, `-2`…; `orders-3` becomes `orders-4`); KindConflict when none of 100 is
	// free or the suffix would pass stepwell.MaxToolID.
	Create(ctx context.Context, orgID string, t *stepwell.Tool) (*stepwell.Tool, error)
	// Get gives the latest version. It stands in the way of every run, so it should
	// answer from a cache. The tool is shared and must not be changed.
	Get(ctx context.Context, orgID, id string) (*stepwell.Tool, error)
	// List gives the latest version of each tool.
	List(ctx context.Context, orgID string, q ToolQuery) (Listed[*stepwell.Tool], error)
	// Update reads the tool, lets change alter a copy, and saves that as the next
	// version (minor + 1 when a run would do something else, else patch + 1, none when
	// nothing changed). change may parse expressions in another process, so it takes
	// milliseconds, and it may be called again when another update came between. Its
	// error is returned as it is.
	Update(ctx context.Context, orgID, id string, change func(*stepwell.Tool) error) (*stepwell.Tool, error)
	// Delete removes the tool, its state and its versions. Its runs stay.
	Delete(ctx context.Context, orgID, id string) error
	// Versions gives all versions of a tool, newest first.
	Versions(ctx context.Context, orgID, id string) ([]*stepwell.Tool, error)
	// Version gives one version; KindNotFound "Version not found" when there is none.
	Version(ctx context.Context, orgID, id, version string) (*stepwell.Tool, error)
	// Restore saves the content of an earlier version as a new version.
	Restore(ctx context.Context, orgID, id, version string) (*stepwell.Tool, error)
}

// StatePut is what came of replacing a tool's state.
type StatePut struct {
	Seq      int64    // of the state that was written
	Warnings []string // for each key that others changed meanwhile
}

// States keeps the persistent state of tools. A missing tool is KindNotFound.
type States interface {
	// Get reads the state of a tool. Texts equal to a known credential of its systems are
	// masked.
	Get(ctx context.Context, orgID string, t *stepwell.Tool) (*stepwell.State, error)
	// Put replaces the whole state. since is the number of the state as its sender read it,
	// nil for now. KindInvalid when it is over a limit.
	Put(ctx context.Context, orgID string, t *stepwell.Tool, since *int64, state json.RawMessage) (StatePut, error)
	// Reset removes all keys and gives their number.
	Reset(ctx context.Context, orgID string, t *stepwell.Tool) (deleted int, err error)
}

// Validator knows what a valid tool and valid inputs are. Refusals are KindInvalid
// with a message that names the step and the field.
type Validator interface {
	// ValidateTool checks a whole tool as it would be saved: steps, names, schemas,
	// expressions, filters, webhookUrl. The JSON types of its fields are right
	// already, and its id is valid or still empty.
	ValidateTool(ctx context.Context, t *stepwell.Tool) error
	// ValidateInputs checks inputs (a JSON object) against the tool's inputSchema and
	// gives them with the schema's defaults filled in.
	ValidateInputs(ctx context.Context, t *stepwell.Tool, inputs json.RawMessage) (json.RawMessage, error)
}

// RunQuery asks for a page of runs. Zero values do not filter.
type RunQuery struct {
	ToolID         string
	Status         stepwell.RunStatus
	RequestSources []string
	UserID         string
	SystemID       string
	RerunOf        string
	ParentRunID    string
	StartedAfter   time.Time // exclusive
	StartedBefore  time.Time // exclusive
	OnlyTools      []string  // tool ids whose runs may be listed; nil means all, empty means none
	EndUserID      string    // whose runs may be listed: for end users' keys
	Page, Limit    int       // page from 1, limit 1 to 100
}

// Runs reads what is recorded of runs. A missing run is KindNotFound, "Run not found".
type Runs interface {
	// Get gives a run with its Tool and Files, with Progress while it is running, and with Data
	// when it has some of at most stepwell.MaxInlineData bytes. Tool is shared and must
	// not be changed.
	Get(ctx context.Context, orgID, id string) (*stepwell.Run, error)
	// Watch calls visit with a run, as Get gives it, at once and then whenever it has
	// moved, and ends after a final one, with visit's error, or when ctx ends. It is
	// cheap to have many watchers of a run. The run must not be changed.
	Watch(ctx context.Context, orgID, id string, visit func(*stepwell.Run) error) error
	// List gives runs without Tool, Data, StepResults and Progress. Inputs over
	// stepwell.MaxInlineData bytes need not be there: lists do not show them.
	List(ctx context.Context, orgID string, q RunQuery) (Listed[*stepwell.Run], error)
	// OpenFile finds a file of a run and opens its content; KindNotFound when there is none.
	OpenFile(ctx context.Context, orgID, runID, key string) (*stepwell.File, io.ReadCloser, error)
	// WriteData streams the data of a successful run that came without it because of its
	// size. The run must have its Tool.
	WriteData(ctx context.Context, w io.Writer, run *stepwell.Run) error
	// Results opens the stored results of a run; nil without an error while it is
	// running and when nothing is stored.
	Results(ctx context.Context, orgID, id string) (*Results, error)
}

// JSONWriter writes one JSON value. It may be large: it is written as it is read.
// Its error cuts the answer off, so that nobody takes half of it for all.
type JSONWriter func(ctx context.Context, w io.Writer) error

// Results are the stored results of a finished run. Whatever the writers need must
// stay readable until the request's context ends.
type Results struct {
	StoredAt time.Time
	Data     JSONWriter // nil when the run has no data
	Steps    []StepResults
}

// StepResults is one row of stepResults with its data left to stream.
type StepResults struct {
	stepwell.StepResult            // its own Data is not used
	Write               JSONWriter // nil when the row has no data
}

// Deliveries keeps callbacks and what signs them. A missing one is KindNotFound,
// "Delivery not found".
type Deliveries interface {
	// OfRun gives the callbacks of a run.
	OfRun(ctx context.Context, orgID, runID string) ([]*stepwell.Delivery, error)
	Delivery(ctx context.Context, orgID, id string) (*stepwell.Delivery, error)
	// Redeliver asks durably for one more attempt at once.
	Redeliver(ctx context.Context, orgID, id string) (*stepwell.Delivery, error)
	// Secrets gives the valid signing secrets, newest first: at least one.
	Secrets(ctx context.Context, orgID string) ([]stepwell.WebhookSecret, error)
	// RotateSecret makes a new signing secret; the others stay valid for a day.
	RotateSecret(ctx context.Context, orgID string) (*stepwell.WebhookSecret, error)
}

// NewRun is a checked request for a run.
type NewRun struct {
	ID          string          // valid, given by the caller or made by the API
	Tool        *stepwell.Tool  // the version to run; shared, must not be changed
	Inputs      json.RawMessage // an object, defaults filled in
	Credentials json.RawMessage // an object, or nil; secret: sealed before it is stored
	// Options as given, with the tool's own webhookUrl when the caller gave none.
	// RequestSource, Mode and TraceID hold what applies, defaults included.
	Options stepwell.RunOptions
	Caller  *stepwell.Caller   // shared, must not be changed
	Rerun   *Rerun             // nil for a run that begins with nothing
	Hook    *stepwell.HookCall // nil for a run that no hook started
}

// Rerun says which ended run a new one takes up again.
type Rerun struct {
	Of        *stepwell.Run // with its Tool; shared, must not be changed
	FromStep  string        // id of a step of the version to run; empty: the first that did not succeed
	NewInputs bool          // the inputs are others: no stored result may be reused
}

// Runner starts and stops runs.
type Runner interface {
	// Start records a run durably and gets it going; the run that it gives is running.
	// KindConflict when the id is taken, KindRateLimited when the organization has too
	// many unfinished runs. A rerun reuses the stored results of the steps before the
	// one that it begins at, and, when its caller named none, what is stored inside that
	// one; KindInvalid when a step before it has no results to reuse. When the call of a
	// hook is a repeat, nothing is recorded and the run has the id of the first call's.
	Start(ctx context.Context, n NewRun) (*stepwell.Run, error)
	// StartAndWait is Start, then a wait for the end of the run, at most for limit. It
	// gives the final run with Tool, Data (unless it is large: see Runs.WriteData) and StepResults, or, when
	// limit passed first, the run as it stands. It listens before it starts, so no
	// finish is missed. When ctx ends first, its error is returned; a run that was
	// recorded goes on.
	StartAndWait(ctx context.Context, n NewRun, limit time.Duration) (*stepwell.Run, error)
	// HookRun gives the id of the run that a hook's call with a key started lately; empty
	// when there is none.
	HookRun(ctx context.Context, orgID, toolID string, key []byte) (runID string, err error)
	// Cancel ends a running run as aborted and gives it, as Runs.Get does. An aborted
	// run is given again; a run that ended otherwise is KindInvalid.
	Cancel(ctx context.Context, orgID, id string) (*stepwell.Run, error)
}

// Bulk cancels and reruns many runs in the background.
type Bulk interface {
	// Count counts the runs that an operation would cover now; it may stop at a bound far
	// above stepwell.MaxBulk. Of the query, paging does not matter.
	Count(ctx context.Context, orgID string, kind stepwell.BulkKind, q RunQuery) (int, error)
	// Begin records an operation on the runs that the query selects now: those that are
	// running for a cancel, those that failed or were aborted for a rerun. op has OrgID, ID,
	// Kind and Caller. From its return on every run gets its turn, whatever crashes.
	// KindConflict when the id is taken, KindInvalid for more than stepwell.MaxBulk runs.
	Begin(ctx context.Context, op *stepwell.BulkOperation, q RunQuery) error
	// Get gives an operation with its progress; KindNotFound when there is none.
	Get(ctx context.Context, orgID, id string) (*stepwell.BulkOperation, error)
}
