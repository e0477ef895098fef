// Package archtest states the architecture as text and checks the module against it:
// who may import whom, and the few rules about names and comments that a compiler does
// not know. It holds tests only.
package archtest
