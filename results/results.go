// Package results turns stored pages back into what they mean: a step's value for
// later expressions, the rows of stepResults, the data of a run. It reads the store
// and merges with engine; it decides nothing about runs and sends nothing.
package results

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"stepwell"
	"stepwell/engine"
)

// Store is what is read.
type Store interface {
	PageBodies(ctx context.Context, org, run string, step int, visit func(*stepwell.Page) error) error
	ItemBodies(ctx context.Context, org, run string, step, item int, visit func(*stepwell.Page) error) error
	Selection(ctx context.Context, org, run string, step int) (*stepwell.Selection, error)
	SelectionItems(ctx context.Context, org, run string, step, item int) (first int, items []json.RawMessage, err error)
}

// MaxValue is how many bytes of JSON the value of one step may have for Step to give it:
// as many as one answer may have. Write has no such limit.
const MaxValue = 100 << 20

// ErrTooLarge is met by a value over MaxValue.
var ErrTooLarge = errors.New("a value of more than 100 MiB")

// heldItem is up to how many stored bytes an item is merged in memory while a loop is
// written.
const heldItem = 8 << 20

// Reader reads results. It is safe for concurrent use.
type Reader struct{ store Store }

// NewReader makes a reader.
func NewReader(s Store) *Reader { return &Reader{store: s} }

// Value is what a finished step came to.
type Value struct {
	Loop bool
	// Envelope is what later expressions see under the step's id: `{currentItem,
	// data, success}`, or an array of these for a loop.
	Envelope json.RawMessage
	// Data is what stepResults and the run's data show: the merged answer of a plain
	// step, the array of envelopes of a loop. Nil for a plain step that failed.
	Data    json.RawMessage
	Success bool
}

// Step reads the value of a step; selects says whether it has a dataSelector. Nil when
// the step stored nothing; ErrTooLarge when it is over MaxValue.
func (r *Reader) Step(ctx context.Context, org, run string, step int, selects bool) (*Value, error) {
	items := &itemReader{reader: r, org: org, run: run, step: step}
	loop, total := false, 1
	if selects {
		sel, err := r.store.Selection(ctx, org, run, step)
		if err != nil || sel == nil {
			return nil, err
		}
		loop, total = sel.Loop, sel.Total
		items.selected = true
	}
	if loop {
		return r.loop(ctx, items, total)
	}
	var value *Value
	err := r.items(ctx, org, run, step, MaxValue, func(item int, merged json.RawMessage, failed string, large bool) error {
		if large {
			return ErrTooLarge
		}
		current, err := items.get(ctx, item)
		if err != nil {
			return err
		}
		value = Plain(current, merged, failed)
		return nil
	})
	return value, err
}

// Plain is the value of a step without a loop: of its item and data, or its error.
func Plain(current, data json.RawMessage, failed string) *Value {
	if failed != "" {
		return &Value{Envelope: engine.FailedEnvelope(current, failed)}
	}
	return &Value{Envelope: engine.Envelope(current, data), Data: data, Success: true}
}

func (r *Reader) loop(ctx context.Context, items *itemReader, total int) (*Value, error) {
	out, count := []byte{'['}, 0
	err := r.items(ctx, items.org, items.run, items.step, MaxValue, func(item int, merged json.RawMessage, failed string, large bool) error {
		if large || len(out)+len(merged) > MaxValue {
			return ErrTooLarge
		}
		current, err := items.get(ctx, item)
		if err != nil {
			return err
		}
		if count++; count > 1 {
			out = append(out, ',')
		}
		out = append(out, Plain(current, merged, failed).Envelope...)
		return nil
	})
	out = append(out, ']')
	return &Value{Loop: true, Envelope: out, Data: out, Success: count == total}, err
}

// items walks over the items of a step: each with its merged pages, or its error, or as a
// large one without either when its pages have more bytes than most.
func (r *Reader) items(ctx context.Context, org, run string, step int, most int64, visit func(item int, merged json.RawMessage, failed string, large bool) error) error {
	next, stop := iter.Pull2(r.pages(ctx, org, run, step))
	defer stop()
	p, err, ok := next()
	for ok && err == nil {
		item, failed, bytes := p.Item, "", int64(0)
		merged, mergeErr := engine.Merge(func(yield func(json.RawMessage, error) bool) {
			for ok && err == nil && p.Item == item {
				if bytes += p.Bytes; bytes > most {
					return
				}
				if p.Error != "" {
					failed = p.Error
				} else if !yield(p.Body, nil) {
					return
				}
				p, err, ok = next()
			}
		})
		if bytes > most {
			merged, mergeErr = nil, nil
			for ok && err == nil && p.Item == item {
				failed = p.Error // the last page of one that failed
				p, err, ok = next()
			}
		}
		if err != nil {
			return err
		}
		if mergeErr != nil {
			return mergeErr
		}
		if err := visit(item, merged, failed, bytes > most && failed == ""); err != nil {
			return err
		}
	}
	return err
}

var errStopped = errors.New("stopped")

// pages is PageBodies as a sequence.
func (r *Reader) pages(ctx context.Context, org, run string, step int) iter.Seq2[*stepwell.Page, error] {
	return sequence(func(visit func(*stepwell.Page) error) error { return r.store.PageBodies(ctx, org, run, step, visit) })
}

// sequence makes a walk over pages a sequence.
func sequence(walk func(visit func(*stepwell.Page) error) error) iter.Seq2[*stepwell.Page, error] {
	return func(yield func(*stepwell.Page, error) bool) {
		err := walk(func(p *stepwell.Page) error {
			if !yield(p, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(nil, err)
		}
	}
}

// bodies leaves the bodies of pages, but for failures.
func bodies(pages iter.Seq2[*stepwell.Page, error]) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for p, err := range pages {
			if err != nil {
				yield(nil, err)
				return
			}
			if p.Error == "" && !yield(p.Body, nil) {
				return
			}
		}
	}
}

// itemReader reads the selected items of a step, a chunk at a time.
type itemReader struct {
	reader   *Reader
	org, run string
	step     int
	selected bool // else every item is {}
	first    int
	items    []json.RawMessage
}

func (r *itemReader) get(ctx context.Context, item int) (json.RawMessage, error) {
	if !r.selected {
		return json.RawMessage("{}"), nil
	}
	if item < r.first || item >= r.first+len(r.items) {
		var err error
		if r.first, r.items, err = r.reader.store.SelectionItems(ctx, r.org, r.run, r.step, item); err != nil {
			return nil, err
		}
	}
	return r.items[item-r.first], nil
}

// RowData is the data of a step's row in stepResults as it may leave the service:
// filtered; nil when a filter refuses it, when it is too large to stand inline, and when
// the step has none.
func RowData(f *engine.Filters, v *Value) json.RawMessage {
	if v.Data == nil || len(v.Data) > stepwell.MaxInlineData && f.Empty() {
		return nil
	}
	data, err := f.Apply(v.Data)
	if err != nil || len(data) > stepwell.MaxInlineData {
		return nil
	}
	return data
}

// Write streams the data of a step: the merged pages of a plain one, the array of
// envelopes of a loop.
func (r *Reader) Write(ctx context.Context, w io.Writer, org, run string, step int, selects bool) error {
	if selects {
		sel, err := r.store.Selection(ctx, org, run, step)
		if err != nil {
			return err
		}
		if sel != nil && sel.Loop {
			return r.writeLoop(ctx, w, &itemReader{reader: r, org: org, run: run, step: step, selected: true})
		}
	}
	return engine.MergeTo(w, bodies(r.pages(ctx, org, run, step)))
}

func (r *Reader) writeLoop(ctx context.Context, w io.Writer, items *itemReader) error {
	separator := "["
	err := r.items(ctx, items.org, items.run, items.step, heldItem, func(item int, merged json.RawMessage, failed string, large bool) error {
		current, err := items.get(ctx, item)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, separator); err != nil {
			return err
		}
		separator = ","
		if large {
			return r.writeLarge(ctx, w, items, item, current)
		}
		_, err = w.Write(Plain(current, merged, failed).Envelope)
		return err
	})
	if err != nil {
		return err
	}
	end := "]"
	if separator == "[" {
		end = "[]"
	}
	_, err = io.WriteString(w, end)
	return err
}

// writeLarge writes the envelope of an item, whose pages are read again one by one.
func (r *Reader) writeLarge(ctx context.Context, w io.Writer, items *itemReader, item int, current json.RawMessage) error {
	pages := sequence(func(visit func(*stepwell.Page) error) error {
		return r.store.ItemBodies(ctx, items.org, items.run, items.step, item, visit)
	})
	return engine.EnvelopeTo(w, current, func() error { return engine.MergeTo(w, bodies(pages)) })
}
