// Package api is the HTTP interface: one table of routes, one adapter that
// decodes, authorizes, encodes and maps errors, and one file of handlers per
// resource. What it needs from the rest of the service it declares itself, in
// ports.go.
//
// It must not know how tools are stored or how runs are executed: it imports
// neither a database driver nor Temporal nor the engine. Wire types live in
// api/v1 and nowhere else.
package api
