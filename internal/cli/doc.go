// Package cli is the command line of stepwell: it reads arguments, calls what
// they name, and writes what came of it. It owns flags, texts, progress and exit
// codes. It wires nothing: whoever builds the program hands in what starts a
// stack (Commands), and everything else goes through the HTTP API.
//
// Arguments are read with the standard flag package, and flags may stand behind
// positional arguments. A larger library was left out: there are a dozen
// commands, none nested deeper than two words, and shell completion alone did
// not justify three more modules.
package cli
