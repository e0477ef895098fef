package js

import (
	"fmt"
	"time"

	"stepwell/engine"
)

// Limits of expressions. The first five are defaults that Options and
// engine.Limits change; their source is the interface's decisions.
const (
	DefaultTimeout          = time.Second      // of a template, selector or condition
	DefaultTransformTimeout = 60 * time.Second // of a transform
	DefaultMemory           = 512 << 20        // bytes, of a template, selector or condition
	DefaultTransformMemory  = 1 << 30          // bytes, of a transform
	DefaultMaxSource        = 64 << 10         // bytes of source

	maxNesting   = 1000      // open brackets in a source
	maxTree      = 5000      // levels of a syntax tree: goja's compiler takes quadratic time beyond
	maxCalls     = 10_000    // calls in progress, about what other engines allow
	maxResult    = 128 << 20 // bytes of JSON of a result
	maxConsole   = 100       // lines that an expression logs
	maxLine      = 2000      // bytes of a logged line and of an error's text
	maxFrame     = 256 << 20 // bytes of a request or an answer
	maxStderr    = 8 << 10   // bytes kept of what a dying child says
	stackShare   = 4         // the child's stack may take this part of its memory
	wornShare    = 4         // a child that took this part of its memory is replaced
	cachedAnswer = 20_000    // analyses that a parent keeps
	startTimeout = 30 * time.Second
)

// Texts of limits. Each names the limit that was met.
func timeMessage(limit time.Duration) string {
	return fmt.Sprintf("took longer than %s: the limit of an expression", limit)
}

func memoryMessage(limit int64) string {
	return fmt.Sprintf("needed more memory than %s: the limit of an expression", size(limit))
}

func sourceMessage(limit int) string {
	return fmt.Sprintf("is longer than %s: the limit of an expression's source", size(int64(limit)))
}

var (
	nestingMessage = fmt.Sprintf("nests deeper than %d levels: the limit of an expression's source", maxNesting)
	treeMessage    = fmt.Sprintf("chains more than %d operations: the limit of an expression's source", maxTree)
	callsMessage   = fmt.Sprintf("RangeError: more than %d calls inside each other: the limit of an expression", maxCalls)
	depthMessage   = "nests values or calls too deeply: the limit of an expression's stack"
	resultMessage  = fmt.Sprintf("gave a result of more than %s: the limit of an expression", size(maxResult))
)

func size(n int64) string {
	switch {
	case n >= 1<<30 && n%(1<<30) == 0:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func limitError(message string) *engine.ExpressionError {
	return &engine.ExpressionError{Message: message, Limit: true}
}
