package stacktest_test

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell/internal/devstack"
	"stepwell/internal/devstack/stacktest"
)

func TestMain(m *testing.M) { os.Exit(stacktest.Main(m)) }

func TestSharedStack(t *testing.T) {
	t.Parallel()
	stack := stacktest.Shared(t)
	if again := stacktest.Shared(t); again != stack {
		t.Error("a second call gave another stack")
	}
	if err := stacktest.Probe(t.Context(), stack.TemporalAddress()); err != nil {
		t.Error("temporal:", err)
	}
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	stack := stacktest.Shared(t)
	for range 2 { // the second CREATE would fail in the first one's database
		conn, err := pgx.Connect(t.Context(), stacktest.Database(t, stack))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `CREATE TABLE one ()`); err != nil {
			t.Error(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestOwnStackWithSettings(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	stack := stacktest.Start(t, devstack.Options{
		PostgresSettings: map[string]string{"work_mem": "5MB"},
		TemporalSettings: map[string]string{"limit.blobSize.error": "4096"},
	})
	t.Log("started in", time.Since(begin))
	conn, err := pgx.Connect(t.Context(), stack.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var value string
	if err := conn.QueryRow(t.Context(), `SHOW work_mem`).Scan(&value); err != nil || value != "5MB" {
		t.Errorf("work_mem is %s (%v)", value, err)
	}
}
