package stepwell

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// ToolScheme before a tool's id makes a webhookUrl the next link of a chain.
const ToolScheme = "tool:"

// SourceChain is the requestSource of a chained run.
const SourceChain = "tool-chain"

// MaxLinks is how many runs one chain may have; the first is a link too.
const MaxLinks = 100

// ChainTarget gives the id of the tool that is to run after a success; ok is false when
// there is none.
func (o RunOptions) ChainTarget() (tool string, ok bool) {
	return strings.CutPrefix(o.WebhookURL, ToolScheme)
}

// CallsBack reports whether the run's end is reported to an address.
func (o RunOptions) CallsBack() bool {
	_, chain := o.ChainTarget()
	return o.WebhookURL != "" && !chain
}

// ChainedRunID is the id of the run that follows a run of a chain: always the same one
// for a parent, whoever makes it, and of 38 characters, however long the chain is.
func ChainedRunID(parent string) string {
	sum := sha256.Sum256([]byte("chained run\x00" + parent))
	return "chain-" + hex.EncodeToString(sum[:16])
}

// Chain is the run that is recorded with the end of the one before it.
type Chain struct {
	// Run is the new run. A ToolVersion of 0 says that its tool is gone: it is recorded
	// under the last version that there was.
	Run         Run
	Credentials json.RawMessage // its run-time ones, an object, or nil; secret
	Failed      string          // not empty: why it fails at once and never starts
}
