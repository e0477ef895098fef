package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"stepwell"
)

func open(t testing.TB) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "a dir?#%20ü", "blobs")
	s, err := Open(t.Context(), DirectoryURL(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

// tree lists everything under dir, directories with a slash at their end.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir {
			name, _ := filepath.Rel(dir, path)
			if e.IsDir() {
				name += "/"
			}
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPutGetDelete(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	ctx := t.Context()
	body := bytes.Repeat([]byte("stepwell "), 100_000)
	for key, data := range map[string][]byte{"org/run/page-1": body, "org/run/empty": {}, "org/run~2/a.b_C-1": []byte("x")} {
		if err := s.Put(ctx, key, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		got, err := readAll(ctx, s, key)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	r, err := s.Get(ctx, "org/run/page-1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	want := []string{"org/", "org/run/", "org/run/empty", "org/run/page-1", "org/run~2/", "org/run~2/a.b_C-1"}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("tree %q, want %q", got, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "org/run")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory %v, %v", info.Mode(), err)
	}
	if _, err := s.Delete(ctx, "org/run/page-1", "org/run/none", "none/none", "org/run/empty"); err != nil {
		t.Fatal(err)
	}
	if got, want := tree(t, dir), []string{"org/", "org/run~2/", "org/run~2/a.b_C-1"}; !slices.Equal(got, want) {
		t.Errorf("tree %q, want %q", got, want)
	}
	if _, err := s.Delete(ctx, "org/run~2/a.b_C-1"); err != nil || len(tree(t, dir)) != 0 {
		t.Errorf("tree %q, %v", tree(t, dir), err)
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	if err := s.Put(t.Context(), "org/x", strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"org/none", "none/x", "org"} {
		if _, err := s.Get(t.Context(), key); stepwell.KindOf(err) != stepwell.KindLost {
			t.Errorf("get %s: %v", key, err)
		}
	}
	// Without the whole directory it is the store that is away, and no blob is known to be lost.
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "org/x"); !stepwell.IsBlobStoreAway(err) {
		t.Errorf("without the directory: %v", err)
	}
}

// readAll reads a whole blob.
func readAll(ctx context.Context, s *Store, key string) ([]byte, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestFailedPutLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	if err := s.Put(t.Context(), "org/run/x", strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	broken := errors.New("broken")
	reader := func() io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("new", 100_000)), iotest.ErrReader(broken))
	}
	if err := s.Put(t.Context(), "org/run/x", reader()); !errors.Is(err, broken) {
		t.Errorf("put: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, "org/run/x", strings.NewReader("new")); err == nil {
		t.Error("a cancelled put succeeds")
	}
	s.syncFile = func(f *os.File) error {
		if info, err := f.Stat(); err == nil && !info.IsDir() {
			return broken
		}
		return f.Sync()
	}
	if err := s.Put(t.Context(), "org/run/x", strings.NewReader("new")); !errors.Is(err, broken) {
		t.Errorf("put without sync: %v", err)
	}
	if got, err := readAll(t.Context(), s, "org/run/x"); err != nil || string(got) != "old" {
		t.Errorf("%q, %v", got, err)
	}
	if got := tree(t, dir); !slices.Equal(got, before) {
		t.Errorf("tree %q, want %q", got, before)
	}
}

func TestPutSyncsFileThenDirectories(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	target := filepath.Join(dir, "org", "run", "x")
	var synced []string
	s.syncFile = func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		_, err = os.Stat(target)
		visible := err == nil
		if info.IsDir() {
			name, _ := filepath.Rel(dir, f.Name())
			synced = append(synced, fmt.Sprintf("%s visible=%v", name, visible))
		} else {
			synced = append(synced, fmt.Sprintf("file of %d visible=%v", info.Size(), visible))
		}
		return f.Sync()
	}
	if err := s.Put(t.Context(), "org/run/x", strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
	want := []string{"file of 5 visible=false", "org/run visible=true", "org visible=true", ". visible=true"}
	if !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
}

func TestReadersSeeWholeBlobsOnly(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	const size = 300_000
	version := func(i int) io.Reader { return bytes.NewReader(bytes.Repeat([]byte{byte('a' + i)}, size)) }
	if err := s.Put(t.Context(), "o/r/x", version(0)); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for range 5 {
				if err := s.Put(t.Context(), "o/r/x", version(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		data, err := readAll(t.Context(), s, "o/r/x")
		if err != nil || len(data) != size || bytes.Count(data, data[:1]) != size {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
	}
}

func TestPutSurvivesTheRemovalOfEmptyDirectories(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	s.syncFile = func(*os.File) error { return nil } // speed: the race is elsewhere
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() {
			key := fmt.Sprintf("org/run/%d", i)
			for range 200 {
				if err := s.Put(t.Context(), key, strings.NewReader("x")); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
}

func TestRemoveUnfinished(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	if err := s.Put(t.Context(), "org/run/x", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	// A writer that never ends: its file is there, under the driver's own name.
	stop, stopped := make(chan struct{}), make(chan struct{})
	reading := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = s.Put(t.Context(), "org/run/y", readerFunc(func([]byte) (int, error) {
			close(reading)
			<-stop
			return 0, errors.New("given up")
		}))
	}()
	<-reading
	if err := s.RemoveUnfinished(t.Context(), time.Hour); err != nil || len(tree(t, dir)) != 4 {
		t.Errorf("a young file is removed: %q, %v", tree(t, dir), err)
	}
	if err := s.RemoveUnfinished(t.Context(), -time.Hour); err != nil {
		t.Error(err)
	}
	if got, want := tree(t, dir), []string{"org/", "org/run/", "org/run/x"}; !slices.Equal(got, want) {
		t.Errorf("tree %q, want %q", got, want)
	}
	close(stop)
	<-stopped
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestKeysAreChecked(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	for _, key := range []string{
		"", "/", "/x", "x/", "a//b", ".", "..", "../x", "a/../../x", "a/./b", "a b", "a\\b", "a\x00b", "ä", "a:b",
		"x.attrs", "x.tmp", "x.tmp/y", strings.Repeat("x", 231), strings.Repeat("x/", 500) + "x",
	} {
		if err := s.Put(t.Context(), key, strings.NewReader("x")); err == nil {
			t.Errorf("put %q succeeds", key)
		}
		if _, err := s.Get(t.Context(), key); err == nil || stepwell.KindOf(err) == stepwell.KindLost {
			t.Errorf("get %q: %v", key, err)
		}
		if _, err := s.Delete(t.Context(), key); err == nil {
			t.Errorf("delete %q succeeds", key)
		}
	}
	if got := tree(t, dir); len(got) != 0 {
		t.Errorf("tree %q", got)
	}
	if err := s.Put(t.Context(), strings.Repeat("x", 230), strings.NewReader("x")); err != nil {
		t.Error(err)
	}
}

func TestOpenExisting(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "blobs")
	if _, err := OpenExisting(t.Context(), DirectoryURL(dir)); err == nil {
		t.Error("a directory that is missing is opened")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("looking made the directory: %v", err)
	}
	for _, open := range []func(context.Context, string) (*Store, error){Open, OpenExisting} {
		s, err := open(t.Context(), DirectoryURL(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenErrorsHideTheURL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"s3://bucket?secret=hush", "s3://hush:hush@bucket?region=x", "s3://bucket/hush?region=x", "s3://bucket?region=x&endpoint=hush", "s3://bucket?region=x&use_path_style=hush", "gs://hush", "hush", "://hush", "file://hush/x", "file://" + file, "file:///tmp?hush=1\x7f"} {
		if _, err := Open(t.Context(), u); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	s, _ := open(b)
	body := bytes.Repeat([]byte("x"), 1<<20)
	b.SetBytes(int64(len(body)))
	for i := 0; b.Loop(); i++ {
		if err := s.Put(b.Context(), fmt.Sprintf("org/run-%d/page", i), bytes.NewReader(body)); err != nil {
			b.Fatal(err)
		}
	}
}
