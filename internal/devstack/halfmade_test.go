package devstack

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// TestRemoveHalfMade removes a directory into which somebody still writes for a moment.
func TestRemoveHalfMade(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data.new")
	base := filepath.Join(dir, "base")
	if err := os.MkdirAll(base, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for ctx.Err() == nil {
				if f, err := os.CreateTemp(base, "table"); err == nil {
					_ = f.Close()
				}
			}
		})
	}
	if err := removeHalfMade(t.Context(), dir); err != nil {
		t.Error(err)
	}
	writers.Wait()
	if err := removeHalfMade(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there: %v", err)
	}
}
