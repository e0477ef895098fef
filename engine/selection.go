package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Selection is what a dataSelector gives: one item, or the items of a loop.
type Selection struct {
	Loop  bool
	Items []json.RawMessage // of a loop, maybe none; they share memory with the selected array
	Item  json.RawMessage   // currentItem when there is no loop, `{}` by default
}

// Select runs the dataSelector: none, null and undefined give one request with
// currentItem {}; an object or scalar one with it; an array a loop over it. A
// selector that throws is a *StepError.
func (s *Step) Select(ctx context.Context, ev Evaluator, scope Scope) (Selection, error) {
	if s.selector == nil {
		return Selection{Item: emptyObj}, nil
	}
	vals, err := s.evaluate(ctx, ev, scope, s.template, []*code{s.selector})
	if err != nil {
		return Selection{}, err
	}
	v := vals[s.selector]
	switch {
	case isNull(v):
		return Selection{Item: emptyObj}, nil
	case kindOf(v) != '[':
		return Selection{Item: v}, nil
	}
	sel := Selection{Loop: true, Items: []json.RawMessage{}}
	eachElement(v, func(e []byte) bool { sel.Items = append(sel.Items, e); return true })
	return sel, nil
}

// Envelope is a finished step as later expressions see it.
func Envelope(currentItem, data json.RawMessage) json.RawMessage {
	out := make([]byte, 0, len(currentItem)+len(data)+48)
	out = append(append(out, `{"currentItem":`...), orEmpty(currentItem)...)
	out = append(append(out, `,"data":`...), orNull(data)...)
	return append(out, `,"success":true}`...)
}

// EnvelopeTo is Envelope into a writer, for data that write writes there.
func EnvelopeTo(w io.Writer, currentItem json.RawMessage, write func() error) error {
	if _, err := fmt.Fprintf(w, `{"currentItem":%s,"data":`, orEmpty(currentItem)); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	_, err := io.WriteString(w, `,"success":true}`)
	return err
}

// FailedEnvelope is a failed step or item under failureBehavior continue. err must
// be public and masked.
func FailedEnvelope(currentItem json.RawMessage, err string) json.RawMessage {
	out := append([]byte(`{"currentItem":`), orEmpty(currentItem)...)
	out = append(out, `,"success":false,"error":`...)
	return append(appendQuoted(out, err), '}')
}

func orNull(v json.RawMessage) json.RawMessage {
	if len(v) == 0 {
		return jsonNull
	}
	return v
}

// IdempotencyKey names one request of a run, the same for every attempt: item
// counts from 0, page from 1. Over 255 characters it is its SHA-256 in hex.
func IdempotencyKey(runID, stepID string, item, page int) string {
	key := runID + "/" + stepID + "/" + strconv.Itoa(item) + "/" + strconv.Itoa(page)
	if len(key) <= 255 {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
