// Package outbound owns every HTTP request that the service sends to the
// outside: which addresses may be reached, redirects, timeouts, the size of
// answers and how much of them is in memory, and the promise that a request
// with effects is sent at most once.
//
// It must not know steps, runs or credentials, must not decide about retries
// (it only says what happened and whether anything was sent), and no other
// package may open a connection to an address that a user chose.
package outbound
