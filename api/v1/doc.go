// Package v1 holds the wire types of version 1 of the HTTP API: what requests and
// answers look like as JSON, for the server and for clients written in Go.
//
// It holds nothing else: no behaviour besides how a value is written and read as
// JSON, and no import besides the standard library. Absent values are left out of
// the JSON, never null.
package v1
