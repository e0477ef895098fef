package api

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks that no test, and so no request, leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
