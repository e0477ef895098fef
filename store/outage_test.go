package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"stepwell"
)

// TestOutages tells what is worth waiting for from what will never work.
func TestOutages(t *testing.T) {
	t.Parallel()
	postgres := func(code string) error { return &pgconn.PgError{Code: code} }
	for _, test := range []struct {
		err  error
		want bool
	}{
		{postgres("53100"), true},  // disk full
		{postgres("53200"), true},  // out of memory
		{postgres("53300"), true},  // too many connections
		{postgres("57P01"), true},  // shutting down
		{postgres("57P03"), true},  // starting
		{postgres("58030"), true},  // input and output
		{postgres("25006"), true},  // read-only
		{postgres("40P01"), true},  // deadlock
		{postgres("42P01"), false}, // no such table
		{postgres("23505"), false}, // taken
		{postgres("22P05"), false}, // a text that cannot be stored
		{postgres("XX001"), false}, // damaged data
		{postgres(""), false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		{io.ErrUnexpectedEOF, true},
		{context.DeadlineExceeded, true},
		{context.Canceled, false},
		{pgx.ErrNoRows, false},
		{pgx.ScanArgError{ColumnIndex: 1, Err: errors.New("cannot scan")}, false},
		{errors.New("json: no such thing"), false},
	} {
		err := fmt.Errorf("read page: %w", test.err)
		if got := isOutage(err); got != test.want {
			t.Errorf("%v (%T) is an outage: %v", test.err, test.err, got)
		}
	}
}

// TestConnectionsThatEnd has a real Postgres end, refuse and time out connections.
func TestConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), ts.url))
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`)
	wantOutage(t, "a session that was ended", err)
	_, err = conn.Exec(t.Context(), `SELECT 1`)
	wantOutage(t, "a connection that is closed", err)

	slow := must[*pgx.Conn](t)(pgx.Connect(t.Context(), ts.url))
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	_, err = slow.Exec(ctx, `SELECT pg_sleep(60)`)
	wantOutage(t, "a limit", err)
	_, err = slow.Exec(t.Context(), `SELECT 1`)
	if err != nil {
		wantOutage(t, "after a limit", err)
	}
	_ = slow.Close(t.Context())

	_, err = pgx.Connect(t.Context(), "postgres://u@127.0.0.1:1/nobody")
	wantOutage(t, "an address where nobody is", err)

	_, err = pgx.Connect(t.Context(), regexp.MustCompile(`:[^:/]+@`).ReplaceAllString(ts.url, ":wrong@"))
	if err == nil || isOutage(err) {
		t.Errorf("a wrong password is an outage: %v", err)
	}
	_, err = pgx.Connect(t.Context(), ts.url+"&options=-c%20work_mem%3Dnone")
	wantOutage(t, "a session that cannot begin", err)

	closed := openStore(t, ts.url, t.TempDir())
	closed.Close()
	wantKind(t, "a pool that is closed", closed.Ping(t.Context()), stepwell.KindUnavailable)
}

func wantOutage(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !isOutage(err) {
		t.Errorf("%s is no outage: %v (%T)", what, err, err)
	}
}
