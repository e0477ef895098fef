package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

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

// discard removes the blob of a body that was not stored, because another's stands in its
// place or the run has ended. Nobody can come to refer to it any more.
func (s *Store) discard(ctx context.Context, org, run string, key *string) {
	if key == nil {
		return
	}
	used, err := s.refersTo(ctx, org, run, *key)
	if err == nil && !used {
		err = s.blobs.Delete(ctx, *key)
	}
	if err != nil {
		s.log.Warn("a blob that nothing refers to was not removed", zap.String("key", *key), zap.Error(err))
	}
}

// refersTo reports whether a row of a run refers to a blob.
func (s *Store) refersTo(ctx context.Context, org, run, key string) (used bool, err error) {
	err = s.pool.QueryRow(ctx, `
SELECT EXISTS (SELECT 1 FROM pages WHERE org_id = $1 AND run_id = $2 AND blob = $3)
    OR EXISTS (SELECT 1 FROM files WHERE org_id = $1 AND run_id = $2 AND blob = $3)
    OR EXISTS (SELECT 1 FROM hook_calls WHERE org_id = $1 AND run_id = $2 AND blob = $3)
    OR EXISTS (SELECT 1 FROM selections WHERE org_id = $1 AND run_id = $2 AND blob = $3)
    OR EXISTS (SELECT 1 FROM runs WHERE org_id = $1 AND id = $2 AND data_blob = $3)`, org, run, key).Scan(&used)
	return used, err
}

// decodeBody gives the bytes of a stored body.
func (s *Store) decodeBody(ctx context.Context, b storedBody) ([]byte, error) {
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
	out, err := zstdDecoder.DecodeAll(raw, nil)
	if err != nil {
		return nil, &stepwell.Error{Kind: stepwell.KindLost, Code: "body_damaged",
			Message: "A stored body is damaged: restore it from a backup, or run the tool again", Cause: fmt.Errorf("read body: %w", err)}
	}
	return out, nil
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
