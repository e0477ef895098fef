package stacktest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestRemoveStale(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	make := func(name string, age time.Duration) string {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(dir, then, then); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	lockOf := func(dir string) string { return filepath.Join(dir, "lock") }
	stale, young, used := make("stale", 25*time.Hour), make("young", time.Hour), make("used", 25*time.Hour)
	unlock, err := lock(lockOf(used))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	removeStale(filepath.Join(base, "*"), lockOf)
	for dir, want := range map[string]bool{stale: false, young: true, used: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", filepath.Base(dir), err == nil, want)
		}
	}
}
