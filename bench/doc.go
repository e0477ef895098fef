// Command bench measures stepwell against raw Temporal workflows: the whole stack as
// `stepwell dev` runs it, on one machine, in alternating rounds of one run.
//
// It owns what is measured, how, and the targets. It must not change what it measures:
// its observers (-profile) stand on the wire between the parts, and no production code
// knows them. Its parts run like this: Postgres and temporald as children, server,
// worker, raw workflows and the load in this process, evaluators and the demo upstream
// as children, which are this binary again.
package main
