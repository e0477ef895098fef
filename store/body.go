package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
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
// durable blob under key.
func (s *Store) encodeBody(ctx context.Context, key string, body []byte) (storedBody, error) {
	out := storedBody{inline: body}
	if len(body) >= compressFrom {
		out.inline, out.encoding = zstdEncoder.EncodeAll(body, make([]byte, 0, len(body)/3)), encodingZstd
	}
	if len(out.inline) <= maxRowBody {
		return out, nil
	}
	if err := s.blobs.Put(ctx, key, bytes.NewReader(out.inline)); err != nil {
		return out, fmt.Errorf("store body: %w", err)
	}
	out.inline, out.blob = nil, &key
	return out, nil
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
		return nil, fmt.Errorf("read body: %w", err)
	}
	return out, nil
}

// blobDir is where the blobs of a run are. Run ids hold characters that no file name
// may, so a digest stands for them.
func blobDir(org, run string) string {
	sum := sha256.Sum256([]byte(run))
	return org + "/" + hex.EncodeToString(sum[:16])
}
