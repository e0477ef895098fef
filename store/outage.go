package store

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// outages are the SQLSTATEs, or their classes, by which Postgres says that it cannot work
// now, and not that a statement is wrong. Source: appendix A of its manual. A disk that is
// full is 53100; managed ones become read-only before that.
var outages = []string{
	"08",    // connection
	"53",    // resources: disk full, out of memory, too many connections
	"57",    // operator intervention: shut down, starting, cancelled
	"58",    // system: input and output
	"25006", // read-only: a replica, or a primary that protects its last space
	"40001", // could not be serialized with others
	"40P01", // deadlock
}

// misconfigured are the classes by which Postgres refuses a session for good: the role or
// its password, the database.
var misconfigured = []string{"28", "3D"}

// isOutage reports whether an error of the driver says that Postgres is away or cannot
// work now: what was asked for may be asked for again. Everything else (a statement, a
// value or a row that is wrong) fails again however often it is repeated.
func isOutage(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var refused *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &connect) && errors.As(err, &refused): // a Postgres that is in trouble refuses in many ways
		return !slices.Contains(misconfigured, refused.Code[:min(2, len(refused.Code))])
	case errors.As(err, &connect):
		return true
	case errors.As(err, &refused):
		return len(refused.Code) == 5 && (slices.Contains(outages, refused.Code) || slices.Contains(outages, refused.Code[:2]))
	}
	var network net.Error
	for _, lost := range []error{context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, puddle.ErrClosedPool} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return errors.As(err, &network) || pgconn.Timeout(err) || pgconn.SafeToRetry(err)
}
