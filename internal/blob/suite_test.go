package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"stepwell"
	"stepwell/internal/devstack/stacktest"
)

// TestStores holds every driver to the same promises.
func TestStores(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *Store{
		"directory": func(t testing.TB) *Store {
			s, _ := open(t)
			return s
		},
		"S3": func(t testing.TB) *Store {
			s, _ := openBucket(t)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			for promise, keep := range map[string]func(*testing.T, *Store){
				"whole": wholeBodies, "missing": missingBodies, "failed put": failedPuts, "replaced": replacedBodies, "deleted": deletedBodies, "unfinished": unfinishedBodies,
			} {
				t.Run(promise, func(t *testing.T) {
					t.Parallel()
					keep(t, s)
				})
			}
		})
	}
}

// openBucket opens a bucket of a server of its own.
func openBucket(t testing.TB) (*Store, *stacktest.S3) {
	t.Helper()
	server := stacktest.StartS3(t)
	s, err := Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, server
}

// random gives bytes in which any loss shows.
func random(size int) []byte {
	out := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(out) // never fails
	return out
}

// wholeBodies stores bodies of any size and gives them back byte for byte: by one request
// or in parts, from memory or from a stream.
func wholeBodies(t *testing.T, s *Store) {
	for _, size := range []int{0, 1, 1000, 300_000, 9 << 20, onePut + 1} {
		body := random(size)
		for _, from := range []io.Reader{bytes.NewReader(body), io.MultiReader(bytes.NewReader(body))} { // the second cannot seek
			key := fmt.Sprintf("org/whole.~_-/%d-%T", size, from)
			key = strings.ReplaceAll(key, "*", "")
			if err := s.Put(t.Context(), key, from); err != nil {
				t.Fatal(err)
			}
			if got, err := readAll(t.Context(), s, key); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s: %d bytes, %v", key, len(got), err)
			}
		}
	}
}

func missingBodies(t *testing.T, s *Store) {
	if _, err := s.Get(t.Context(), "org/none/x"); stepwell.KindOf(err) != stepwell.KindLost {
		t.Errorf("get: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "org/none/x"); err == nil || stepwell.KindOf(err) != stepwell.KindInternal {
		t.Errorf("a cancelled get says something of the store: %v", err)
	}
}

// failedPuts leave what the key had before, and no part of what they would have stored.
func failedPuts(t *testing.T, s *Store) {
	const key = "org/failed/x"
	broken := errors.New("broken")
	for _, before := range []string{"", "old"} {
		if before != "" {
			if err := s.Put(t.Context(), key, strings.NewReader(before)); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{10, 20 << 20} {
			err := s.Put(t.Context(), key, io.MultiReader(bytes.NewReader(random(size)), iotest.ErrReader(broken)))
			if !errors.Is(err, broken) || stepwell.KindOf(err) != stepwell.KindInternal {
				t.Errorf("after %d bytes: %v", size, err)
			}
			got, err := readAll(t.Context(), s, key)
			if before == "" && stepwell.KindOf(err) != stepwell.KindLost || before != "" && (err != nil || string(got) != before) {
				t.Errorf("after %d bytes: there are %d, %v", size, len(got), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Put(ctx, key, strings.NewReader("new")); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled put: %v", err)
		}
	}
}

// replacedBodies are seen whole while others write the same again, as two workers do.
func replacedBodies(t *testing.T, s *Store) {
	const size = 200_000
	body := random(size)
	if err := s.Put(t.Context(), "org/replaced/x", bytes.NewReader(body)); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for range 4 {
				if err := s.Put(t.Context(), "org/replaced/x", bytes.NewReader(body)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		got, err := readAll(t.Context(), s, "org/replaced/x")
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	writers.Wait()
}

// deletedBodies go, more at once than one request of S3 takes; those that are not there
// count as gone.
func deletedBodies(t *testing.T, s *Store) {
	var keys []string
	for i := range deletedAtOnce + 5 {
		keys = append(keys, fmt.Sprintf("org/deleted/%d", i))
	}
	there := []string{keys[0], keys[deletedAtOnce-1], keys[deletedAtOnce+4]}
	for _, key := range append(there, "org/deleted/stays") {
		if err := s.Put(t.Context(), key, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if failed, err := s.Delete(t.Context(), keys...); err != nil || len(failed) > 0 {
		t.Fatalf("%d failed: %v", len(failed), err)
	}
	for _, key := range there {
		if _, err := s.Get(t.Context(), key); stepwell.KindOf(err) != stepwell.KindLost {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := readAll(t.Context(), s, "org/deleted/stays"); err != nil {
		t.Error(err)
	}
	if failed, err := s.Delete(t.Context()); err != nil || len(failed) > 0 {
		t.Errorf("nothing: %v", err)
	}
}

// unfinishedBodies are not seen, also when somebody tidies up while they are written.
func unfinishedBodies(t *testing.T, s *Store) {
	writing, goOn := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(writing) })
	body := io.MultiReader(bytes.NewReader(random(20<<20)), readerFunc(func([]byte) (int, error) {
		begun()
		<-goOn
		return 0, io.EOF
	}))
	stored := make(chan error, 1)
	go func() { stored <- s.Put(t.Context(), "org/unfinished/x", body) }()
	<-writing
	if _, err := s.Get(t.Context(), "org/unfinished/x"); stepwell.KindOf(err) != stepwell.KindLost {
		t.Errorf("while it is written: %v", err)
	}
	if err := s.RemoveUnfinished(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	close(goOn)
	if err := <-stored; err != nil {
		t.Error(err)
	}
	if got, err := readAll(t.Context(), s, "org/unfinished/x"); err != nil || len(got) != 20<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
