package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"

	"stepwell"
)

// Encodings of a stored body.
const (
	encodingRaw  int16 = 0
	encodingZstd int16 = 1
)

const (
	compressFrom = 1 << 10   // bytes from which a body is compressed
	maxRowBody   = 256 << 10 // stored bytes up to which a body is a row (design, "Data")
	streamFrom   = 4 << 20   // bytes from which a body is compressed and decompressed bit by bit
)

// The encoder and decoder are made for EncodeAll and DecodeAll, which many
// goroutines may call. Speed matters more than ratio on the way of a run.
var (
	zstdEncoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	zstdDecoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(4<<30))
)

// storedBody is a body as a row holds it: inline, or by the key of a blob.
type storedBody struct {
	encoding int16
	inline   []byte
	blob     *string
}

// encodeBody compresses a body and, when it is too large for a row, makes it a
// durable blob. Its key is key and a digest of what it holds: of two workers that store
// different answers for one page, neither changes the other's blob, and one worker that
// tries again writes the same.
func (s *Store) encodeBody(ctx context.Context, key string, body []byte) (storedBody, error) {
	if len(body) >= streamFrom {
		return s.encodeLarge(ctx, key, body)
	}
	out := storedBody{inline: body}
	if len(body) >= compressFrom {
		out.inline, out.encoding = zstdEncoder.EncodeAll(body, make([]byte, 0, len(body)/3)), encodingZstd
	}
	if len(out.inline) <= maxRowBody {
		return out, nil
	}
	sum := sha256.Sum256(out.inline)
	key += "-" + hex.EncodeToString(sum[:8])
	if err := s.blobs.Put(ctx, key, bytes.NewReader(out.inline)); err != nil {
		return out, fmt.Errorf("store body: %w", err)
	}
	out.inline, out.blob = nil, &key
	return out, nil
}

// encodeLarge is encodeBody without a compressed copy in memory. The digest in the key is
// that of the body as it is: it must be known before the first byte is written.
func (s *Store) encodeLarge(ctx context.Context, key string, body []byte) (storedBody, error) {
	compressed := newCompressor(body)
	defer compressed.stop()
	head := make([]byte, maxRowBody+1)
	n, err := io.ReadFull(compressed, head)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return storedBody{inline: head[:n], encoding: encodingZstd}, nil
	}
	if err == nil {
		sum := sha256.Sum256(body)
		key += "-" + hex.EncodeToString(sum[:8])
		err = s.blobs.Put(ctx, key, io.MultiReader(bytes.NewReader(head), compressed))
	}
	if err != nil {
		return storedBody{}, fmt.Errorf("store body: %w", err)
	}
	return storedBody{encoding: encodingZstd, blob: &key}, nil
}

// compressor gives a body compressed, as it is read.
type compressor struct {
	*io.PipeReader
	done chan struct{} // closed when nothing works for it any more
}

func newCompressor(body []byte) *compressor {
	r, w := io.Pipe()
	c := &compressor{r, make(chan struct{})}
	go func() { // ends with the body or with stop, which waits for it
		defer close(c.done)
		encoder, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
			zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		if err == nil {
			if _, err = encoder.Write(body); err == nil {
				err = encoder.Close()
			}
		}
		_ = w.CloseWithError(err) // never fails
	}()
	return c
}

func (c *compressor) stop() {
	_ = c.Close() // never fails
	<-c.done
}

// discard removes the blob of a body that was not stored, because another's stands in its
// place or the run has ended. Nobody can come to refer to it any more.
func (s *Store) discard(ctx context.Context, org, run string, key *string) {
	if key == nil {
		return
	}
	used, err := s.refersTo(ctx, org, run, *key)
	if err == nil && !used {
		_, err = s.blobs.Delete(ctx, *key)
	}
	if err != nil {
		s.log.Warn("a blob that nothing refers to was not removed", zap.String("key", *key), zap.Error(err))
	}
}

// refersTo reports whether a row of a run refers to a blob.
func (s *Store) refersTo(ctx context.Context, org, run, key string) (used bool, err error) {
	err = s.pool.QueryRow(ctx, `SELECT `+referred("$1", "$2", "$3"), org, run, key).Scan(&used)
	return used, err
}

// referred is SQL that says whether a row of a run refers to a blob.
func referred(org, run, key string) string {
	return strings.NewReplacer("ORG", org, "RUN", run, "KEY", key).Replace(`(
    EXISTS (SELECT 1 FROM pages WHERE org_id = ORG AND run_id = RUN AND blob = KEY)
 OR EXISTS (SELECT 1 FROM files WHERE org_id = ORG AND run_id = RUN AND blob = KEY)
 OR EXISTS (SELECT 1 FROM hook_calls WHERE org_id = ORG AND run_id = RUN AND blob = KEY)
 OR EXISTS (SELECT 1 FROM selections WHERE org_id = ORG AND run_id = RUN AND blob = KEY)
 OR EXISTS (SELECT 1 FROM runs WHERE org_id = ORG AND id = RUN AND data_blob = KEY))`)
}

// decodeBody gives the bytes of a stored body; size is how many they are, -1 when that is
// not known.
func (s *Store) decodeBody(ctx context.Context, b storedBody, size int64) ([]byte, error) {
	if size >= streamFrom {
		out := make([]byte, size)
		return out, s.decodeInto(ctx, b, out)
	}
	raw := b.inline
	if b.blob != nil {
		r, err := s.blobs.Get(ctx, *b.blob)
		if err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
		defer r.Close()
		if raw, err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
	}
	if b.encoding != encodingZstd {
		return raw, nil
	}
	out, err := zstdDecoder.DecodeAll(raw, make([]byte, 0, max(size, 0)))
	if err != nil {
		return nil, damaged(err)
	}
	return out, nil
}

// damaged is the error for a stored body of which the decoder says err.
func damaged(err error) error {
	return &stepwell.Error{Kind: stepwell.KindLost, Code: "body_damaged",
		Message: "A stored body is damaged: restore it from a backup, or run the tool again", Cause: fmt.Errorf("read body: %w", err)}
}

// decodeInto is decodeBody with nothing in memory but the body, whose length is out's.
func (s *Store) decodeInto(ctx context.Context, b storedBody, out []byte) error {
	r, err := s.openBody(ctx, b)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.ReadFull(r, out)
	if err == nil {
		return nil
	}
	if known := (*stepwell.Error)(nil); errors.As(err, &known) || ctx.Err() != nil { // of the blob store
		return fmt.Errorf("read body: %w", err)
	}
	return damaged(err)
}

// openBody opens a stored body for reading bit by bit.
func (s *Store) openBody(ctx context.Context, b storedBody) (io.ReadCloser, error) {
	raw := io.NopCloser(bytes.NewReader(b.inline))
	if b.blob != nil {
		var err error
		if raw, err = s.blobs.Get(ctx, *b.blob); err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
	}
	if b.encoding != encodingZstd {
		return raw, nil
	}
	decoder, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("read body: %w", err)
	}
	return &decodedBody{decoder, raw}, nil
}

// decodedBody is a body that is decompressed as it is read.
type decodedBody struct {
	*zstd.Decoder
	raw io.Closer
}

// Close closes the body below too.
func (d *decodedBody) Close() error {
	d.Decoder.Close()
	return d.raw.Close()
}

// blobDir is where the blobs of a run are. Run ids hold characters that no file name
// may, so a digest stands for them.
func blobDir(org, run string) string {
	sum := sha256.Sum256([]byte(run))
	return org + "/" + hex.EncodeToString(sum[:16])
}
