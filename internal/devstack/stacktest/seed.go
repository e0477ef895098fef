package stacktest

import (
	"context"

	"stepwell/internal/devstack"
)

// seed prepares a new data directory.
func seed(context.Context, devstack.Options) error { return nil }
