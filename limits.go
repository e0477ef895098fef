package stepwell

import "time"

// Limits of the API and of runs. Sources: the interface's decisions.
const (
	MaxToolID         = 200                // characters of a tool id
	MaxStepID         = 100                // characters of a step id
	MaxRunID          = 200                // characters of a run id
	MaxConcurrency    = 50                 // items of a loop in flight
	MaxJSONDepth      = 1000               // levels of nesting of any JSON
	MaxInlineData     = 256 << 10          // bytes of data inline in GET and stepResults
	DefaultPageSize   = 50                 // records asked for in a page
	DefaultMaxPages   = 100_000            // pages of one pull
	DefaultTimeout    = 60 * time.Second   // of one outbound request
	MaxTimeout        = 3600 * time.Second // of one outbound request
	MaxErrorBodyChars = 500                // characters of an upstream's answer in an error
)

// ReservedNames are keys of sourceData that belong to the service: no input
// and no step may have them.
var ReservedNames = []string{"currentItem", "credentials", "persistedState", "__files__", HookHeaders, HookRawBody, HookRawBase64}

// PaginationNames are variables of paginated steps: no step may have them as id.
var PaginationNames = []string{"page", "offset", "cursor", "limit", "pageSize"}
