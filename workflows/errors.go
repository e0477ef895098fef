package workflows

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"stepwell/activities"
)

// errEnded says that the run was given up and finished on the way.
var errEnded = errors.New("the run has ended")

// errLeft says that an item of a parallel loop stopped between two activities, because
// the run continues as new.
var errLeft = errors.New("the item goes on when the run has continued as new")

// isBug reports whether an activity ended with an internal error: not an outage, not
// a dead worker.
func isBug(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == activities.InternalError
}
