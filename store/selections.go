package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// selectionChunk is how many items of a loop share a stored row.
const selectionChunk = 500

// SaveSelection stores what a dataSelector chose, while the run is running, all of it in
// one transaction: of two workers' choices, which may differ, one stands whole. saved is
// false when a selection was there before or the run has ended.
func (s *Store) SaveSelection(ctx context.Context, org, run string, step int, sel *stepwell.Selection) (saved bool, err error) {
	var b pgx.Batch
	var blobs []*string
	for chunk := range max(1, (len(sel.Items)+selectionChunk-1)/selectionChunk) {
		first := chunk * selectionChunk
		items := sel.Items[first:min(first+selectionChunk, len(sel.Items))]
		body, err := json.Marshal(items)
		if err != nil {
			return false, err
		}
		stored, err := s.encodeBody(ctx, fmt.Sprintf("%s/selections/%d-%d", blobDir(org, run), step, chunk), body)
		if err != nil {
			return false, s.wrap("save selection", err)
		}
		blobs = append(blobs, stored.blob)
		// The first chunk goes first: a second worker waits there for the first one's commit.
		b.Queue(`
INSERT INTO selections (org_id, run_id, step, chunk, looped, total, first_item, encoding, body, blob)
SELECT r.org_id, r.id, $3, $4, $5, $6, $7, $8, $9, $10 FROM runs r WHERE r.org_id = $1 AND r.id = $2 AND r.status = 'running'
ON CONFLICT DO NOTHING`, org, run, step, chunk, sel.Loop, sel.Total, first, stored.encoding, stored.inline, stored.blob)
	}
	if sel.Error != "" {
		failed := &stepwell.Page{Error: sel.Error, Done: true}
		args, _, err := s.pageArgs(ctx, stepwell.PageKey{Org: org, Run: run, Step: step, Page: 1}, failed)
		if err != nil {
			return false, s.wrap("save selection", err)
		}
		b.Queue(insertPage, args...)
	}
	results := s.pool.SendBatch(ctx, &b)
	tag, err := results.Exec()
	if cerr := results.Close(); err == nil {
		err = cerr
	}
	saved = err == nil && tag.RowsAffected() == 1
	for _, blob := range blobs {
		if err == nil && !saved {
			s.discard(ctx, org, run, blob)
		}
	}
	return saved, s.wrap("save selection", err)
}

// Selection reads the head of a stored selection; nil when there is none.
func (s *Store) Selection(ctx context.Context, org, run string, step int) (*stepwell.Selection, error) {
	rows, err := s.pool.Query(ctx, `SELECT looped, total FROM selections
		WHERE org_id = $1 AND run_id = $2 AND step = $3 AND chunk = 0`, org, run, step)
	if err != nil {
		return nil, s.wrap("read selection", err)
	}
	heads, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*stepwell.Selection, error) {
		var sel stepwell.Selection
		return &sel, row.Scan(&sel.Loop, &sel.Total)
	})
	if err != nil || len(heads) == 0 {
		return nil, s.wrap("read selection", err)
	}
	return heads[0], nil
}

// SelectionItems reads the chunk of items that holds item: its first item's number
// and the items.
func (s *Store) SelectionItems(ctx context.Context, org, run string, step, item int) (first int, items []json.RawMessage, err error) {
	var b storedBody
	err = s.pool.QueryRow(ctx, `SELECT first_item, encoding, body, blob FROM selections
		WHERE org_id = $1 AND run_id = $2 AND step = $3 AND chunk = $4`, org, run, step, item/selectionChunk).Scan(&first, &b.encoding, &b.inline, &b.blob)
	if err != nil {
		return 0, nil, s.wrap("read selection", err)
	}
	body, err := s.decodeBody(ctx, b, -1)
	if err != nil {
		return 0, nil, s.wrap("read selection", err)
	}
	return first, items, json.Unmarshal(body, &items)
}
