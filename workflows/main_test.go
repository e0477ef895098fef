package workflows_test

import (
	"os"
	"testing"

	"stepwell/engine/js"
	"stepwell/internal/devstack/stacktest"
)

func TestMain(m *testing.M) {
	if js.ChildRequested(os.Args) {
		js.Main()
	}
	os.Exit(stacktest.Main(m))
}
