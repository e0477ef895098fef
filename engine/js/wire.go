package js

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"
)

// Parent and child speak in frames: a length of four bytes, little endian, and
// that many bytes. Inside, numbers are unsigned varints, texts have their length
// before them. The child answers a request with one frame for each expression,
// in order, each flushed when it is ready, so that the parent knows which one
// met a limit.

// Requests, by their first byte.
const (
	opAnalyze  = 'A'
	opEvaluate = 'E'
)

// Kinds of the answers to opEvaluate.
const (
	kindValue = iota
	kindUndefined
	kindError
)

var errWire = errors.New("malformed frame")

// message builds a frame; its first four bytes are kept for the length.
type message struct{ b []byte }

func newMessage(op byte) *message { return &message{b: []byte{0, 0, 0, 0, op}} }

func (m *message) number(n int)   { m.b = binary.AppendUvarint(m.b, uint64(n)) }
func (m *message) text(s string)  { m.number(len(s)); m.b = append(m.b, s...) }
func (m *message) bytes(b []byte) { m.number(len(b)); m.b = append(m.b, b...) }
func (m *message) bool(v bool) {
	if v {
		m.b = append(m.b, 1)
	} else {
		m.b = append(m.b, 0)
	}
}

func (m *message) texts(list []string) {
	m.number(len(list))
	for _, s := range list {
		m.text(s)
	}
}

// frame gives the bytes to send.
func (m *message) frame() []byte {
	binary.LittleEndian.PutUint32(m.b, uint32(len(m.b)-4))
	return m.b
}

// reading takes a frame apart. After an error everything reads as zero.
type reading struct {
	rest string
	err  error
}

func (r *reading) fail() { r.err, r.rest = errWire, "" }

func (r *reading) byte() byte {
	if r.rest == "" {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reading) bool() bool { return r.byte() != 0 }

func (r *reading) number() int {
	var n uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int(n)
		}
	}
	r.fail()
	return 0
}

// count reads the number of the elements that follow, each of at least one byte.
func (r *reading) count() int {
	n := r.number()
	if n > len(r.rest) {
		r.fail()
		return 0
	}
	return n
}

func (r *reading) text() string {
	n := r.count()
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reading) texts() []string {
	n := r.count()
	var list []string
	for range n {
		list = append(list, r.text())
	}
	return list
}

// readFrame reads one frame of at most limit bytes. The texts read from it share
// its memory.
func readFrame(from io.Reader, limit int64) (*reading, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > limit {
		return nil, fmt.Errorf("%w: %d bytes", errWire, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(from, body); err != nil {
		return nil, err
	}
	return &reading{rest: unsafe.String(unsafe.SliceData(body), len(body))}, nil
}
