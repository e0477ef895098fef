// Package stepwell holds the domain: tools, steps, runs, callers, limits and
// error kinds. It owns no behaviour beyond what these values mean, and it
// imports the standard library only.
package stepwell
