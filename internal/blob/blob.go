// Package blob owns bodies that are too large for a row: whole files under keys,
// in a directory or in an object store that a URL names.
//
// A blob is there whole or not at all, and once Put has returned it survives a
// crash of the machine, so that a row may point at it. The package knows no
// organizations and runs (keys are the caller's), and it must not decide what
// may be deleted. What a driver's error means is decided here alone: that the
// store is away (stepwell.KindUnavailable with stepwell.CodeBlobStore), or that
// a blob is gone (stepwell.KindLost).
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // the directory driver

	"stepwell"
)

// Limits of keys, in bytes. A file name may have 255, and a blob that is being
// written carries 21 more.
const (
	maxKey     = 1000
	maxSegment = 230
)

// contentType is that of every blob: what is in it is the caller's to know.
const contentType = "application/octet-stream"

// unfinished is how the driver ends the names of files that are being written.
const unfinished = ".tmp"

// Store keeps blobs. It is safe for concurrent use, also by several processes.
type Store struct {
	bucket *blob.Bucket
	dir    string  // of the directory driver, else empty
	s3     *bucket // of the S3 driver, else nil

	syncFile func(*os.File) error // (*os.File).Sync; a test watches the order
}

// Open opens the store that a URL names: file:///directory (made when it is
// missing, readable by its owner alone), or s3://bucket (see openS3), which is not
// asked for anything yet. Errors name no more of the URL than its scheme.
func Open(ctx context.Context, rawURL string) (*Store, error) { return openStore(ctx, rawURL, true) }

// OpenExisting is Open for who only looks: a directory that is missing is an error.
func OpenExisting(ctx context.Context, rawURL string) (*Store, error) {
	return openStore(ctx, rawURL, false)
}

func openStore(ctx context.Context, rawURL string, create bool) (*Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil { // the parser's error quotes the URL, which may hold keys
		return nil, errors.New("blob: the URL of the store is not valid")
	}
	s := &Store{syncFile: (*os.File).Sync}
	switch u.Scheme {
	case "file":
		err = s.openDirectory(ctx, u, create)
	case "s3":
		err = s.openS3(ctx, u)
	default:
		err = errors.New("no driver: use file or s3")
	}
	if err != nil {
		return nil, fmt.Errorf("blob: open a store by %s://: %w", u.Scheme, err)
	}
	return s, nil
}

// DirectoryURL is the URL with which Open opens a directory. dir is absolute and
// may hold any characters.
func DirectoryURL(dir string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()
}

// openDirectory opens the directory driver: unfinished files stand beside their
// targets (a rename across file systems would not work), and no attribute files.
func (s *Store) openDirectory(ctx context.Context, u *url.URL, create bool) error {
	dir := filepath.FromSlash(u.Path)
	if u.Host == "." {
		dir = strings.TrimPrefix(dir, string(filepath.Separator))
	} else if u.Host != "" && u.Host != "localhost" {
		return errors.New("want file:///directory, or file://./directory for a relative one")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := s.syncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	} else if _, err := os.Stat(dir); err != nil {
		return err
	}
	q := u.Query()
	q.Set("no_tmp_dir", "true")
	q.Set("metadata", "skip")
	q.Set("dir_file_mode", "0700")
	abs := url.URL{Scheme: "file", Path: filepath.ToSlash(dir), RawQuery: q.Encode()}
	s.dir = dir
	s.bucket, err = blob.OpenBucket(ctx, abs.String())
	return err
}

// Close releases the store's connections.
func (s *Store) Close() error { return s.bucket.Close() }

// Put stores what r gives under key, replacing what was there. Keys are
// segments of letters, digits and `. _ ~ -` separated by slashes, for example
// `org/run/step-1`; a segment has at most 230 bytes, is neither `.` nor
// `..`, and does not end in .attrs or .tmp. When Put returns nil the blob is on stable
// storage; after an error the key has what it had before.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if body, ok := r.(io.ReadSeeker); ok && s.s3 != nil {
		size, err := body.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = body.Seek(0, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("blob: put %s: read what is to be stored: %w", key, err)
		}
		if size <= onePut {
			return s.failure("put", key, s.s3.put(ctx, key, body, size))
		}
	}
	source := &source{r: r}
	err := s.put(ctx, key, source)
	if source.err != nil { // not the store's
		return fmt.Errorf("blob: put %s: read what is to be stored: %w", key, source.err)
	}
	return s.failure("put", key, err)
}

func (s *Store) put(ctx context.Context, key string, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, file, err := s.writer(ctx, key)
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, r); err == nil && file != nil {
		err = s.syncFile(file) // before the rename that makes it visible
	}
	if err != nil {
		cancel() // so that closing removes instead of publishing
		_ = w.Close()
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return s.syncDirs(key)
}

// source is what is stored, and why it could not be read.
type source struct {
	r   io.Reader
	err error
}

// Read reads and remembers a failure.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// writer opens a writer, and the file behind it when there is one.
func (s *Store) writer(ctx context.Context, key string) (*blob.Writer, *os.File, error) {
	var file *os.File
	options := &blob.WriterOptions{
		ContentType:    contentType, // given, so that nothing is sniffed and the file is opened now
		MaxConcurrency: 2,           // parts of 8 MiB in memory
		BeforeWrite:    func(as func(any) bool) error { as(&file); return nil },
	}
	// Delete removes empty directories, perhaps while the driver makes one or
	// before it opens a file in it.
	for attempt := 1; ; attempt++ {
		w, err := s.bucket.NewWriter(ctx, key, options)
		vanished := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist)
		if vanished && s.dir != "" && attempt < 100 {
			continue
		}
		if err == nil && s.dir != "" && file == nil {
			_ = w.Close()
			return nil, nil, errors.New("the directory driver gives no file to sync")
		}
		return w, file, err
	}
}

// syncDirs makes the names that lead to a key durable: the file's, and those of
// the directories, which this or another process may just have made.
func (s *Store) syncDirs(key string) error {
	if s.dir == "" {
		return nil
	}
	for dir := filepath.Dir(s.path(key)); ; dir = filepath.Dir(dir) {
		if err := s.syncDir(dir); err != nil {
			return err
		}
		if dir == s.dir {
			return nil
		}
	}
}

func (s *Store) syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = s.syncFile(f)
	return errors.Join(err, f.Close())
}

// path is the file of a key. Keys have only characters that the driver leaves alone.
func (s *Store) path(key string) string {
	return filepath.Join(s.dir, filepath.FromSlash(key))
}

// Get opens a blob for reading. The caller closes it. A missing one is a
// stepwell.KindLost error.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	r, err := s.bucket.NewReader(ctx, key, nil)
	if ctx.Err() != nil && err != nil { // a driver may say that there is none
		err = ctx.Err()
	}
	if err != nil {
		return nil, s.failure("get", key, err)
	}
	return &reader{r, s, key}, nil
}

// reader reads a blob; its errors have kinds.
type reader struct {
	io.ReadCloser
	store *Store
	key   string
}

// Read reads on.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.store.failure("read", r.key, err)
	}
	return n, err
}

// Delete removes blobs; one that is not there counts as removed. It goes on after an
// error, and gives the keys that were not removed with it.
func (s *Store) Delete(ctx context.Context, keys ...string) (failed []string, err error) {
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return keys, err
		}
	}
	if s.s3 != nil {
		failed, err = s.s3.remove(ctx, keys)
		return failed, s.failure("delete", fmt.Sprintf("%d of %d blobs", len(failed), len(keys)), err)
	}
	var failures []error
	for _, key := range keys {
		if err := s.remove(ctx, key); err != nil {
			failed = append(failed, key)
			failures = append(failures, err)
		}
	}
	return failed, errors.Join(failures...)
}

// remove removes one file, and the directories that it leaves empty.
func (s *Store) remove(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.failure("delete", key, s.bucket.Delete(ctx, key)); err != nil && stepwell.KindOf(err) != stepwell.KindLost {
		return err
	}
	// Millions of runs would leave as many empty directories.
	for dir := filepath.Dir(s.path(key)); dir != s.dir; dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			return nil // not empty, or already gone: nothing that matters
		}
	}
	return nil
}

// RemoveUnfinished removes what writers that died have left behind: unfinished files
// and uploads in parts that began, or that nobody wrote to, for age, which should be hours.
func (s *Store) RemoveUnfinished(ctx context.Context, age time.Duration) error {
	before := time.Now().Add(-age)
	if s.s3 != nil {
		return s.failure("remove", "unfinished uploads", s.s3.abortUnfinished(ctx, before))
	}
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || e.IsDir() || filepath.Ext(path) != unfinished {
			return ignoreMissing(err)
		}
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(path)
		}
		return ignoreMissing(err)
	})
	if err != nil {
		return fmt.Errorf("blob: remove unfinished files: %w", err)
	}
	return nil
}

// ignoreMissing forgives that another process removed something first.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func checkKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("blob: a key has 1 to %d bytes, not %d", maxKey, len(key))
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment == "." || segment == ".." || len(segment) > maxSegment ||
			strings.HasSuffix(segment, ".attrs") || strings.HasSuffix(segment, unfinished) || strings.ContainsFunc(segment, notInKey) {
			return fmt.Errorf("blob: the key %.60q is not valid", key)
		}
	}
	return nil
}

func notInKey(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("._~-", r)
}
