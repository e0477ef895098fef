package js

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if ChildRequested(os.Args) {
		Main()
	}
	goleak.VerifyTestMain(m)
}
