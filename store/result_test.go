package store

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"testing"

	"stepwell"
)

// TestOpenResult: data that is read bit by bit is the data that is read at once, in
// whichever way it is kept.
func TestOpenResult(t *testing.T) {
	t.Parallel()
	ts := newStore(t)
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise) // never fails
	for name, text := range map[string]string{
		"small":       "x",
		"compressed":  string(bytes.Repeat([]byte("again "), 200_000)),
		"in the blob": hex.EncodeToString(noise),
	} {
		body, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		ts.run(name, "")
		if !ts.finish(stepwell.Finish{Run: name, Status: stepwell.RunSuccess, Result: &stepwell.Result{Body: body, Bytes: int64(len(body))}}) {
			t.Fatalf("%s: the run was not finished", name)
		}
		whole := must[*stepwell.Result](t)(ts.ReadResult(t.Context(), ts.org, name))
		r, reader, err := ts.OpenResult(t.Context(), ts.org, name)
		if err != nil || reader == nil {
			t.Fatalf("%s: %v", name, err)
		}
		read, err := io.ReadAll(reader)
		if cerr := reader.Close(); err != nil || cerr != nil {
			t.Errorf("%s: %v, %v", name, err, cerr)
		}
		if !bytes.Equal(read, body) || !bytes.Equal(whole.Body, body) || r.Bytes != int64(len(body)) {
			t.Errorf("%s: %d bytes were stored, %d read at once and %d bit by bit", name, len(body), len(whole.Body), len(read))
		}
	}
}
