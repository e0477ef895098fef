package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

const insertPage = `
INSERT INTO pages (org_id, run_id, step, item, page, error, records, bytes, encoding, body, blob, next, cursor, done, ended_by, state)
SELECT r.org_id, r.id, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16
FROM runs r WHERE r.org_id = $1 AND r.id = $2 AND r.status = 'running'
ON CONFLICT DO NOTHING`

func (s *Store) pageArgs(ctx context.Context, k stepwell.PageKey, p *stepwell.Page) (args []any, blob *string, err error) {
	key := fmt.Sprintf("%s/pages/%d-%d-%d", blobDir(k.Org, k.Run), k.Step, k.Item, k.Page)
	body, err := s.encodeBody(ctx, key, p.Body)
	if err != nil {
		return nil, nil, err
	}
	var state json.RawMessage
	if !p.State.Empty() {
		if state, err = json.Marshal(p.State); err != nil {
			return nil, nil, err
		}
	}
	args = []any{k.Org, k.Run, k.Step, k.Item, k.Page, null(p.Error), p.Records, int64(len(p.Body)),
		body.encoding, body.inline, body.blob, nullJSON(p.Next), null(p.Cursor), p.Done, null(p.EndedBy), nullJSON(state)}
	return args, body.blob, nil
}

// SavePage stores a page while its run is running. saved is false when it was not
// stored: the run has ended, or the page is stored already; read it back then.
// The page's claim goes in the same transaction, its files come in it.
func (s *Store) SavePage(ctx context.Context, k stepwell.PageKey, p *stepwell.Page, claimed bool) (saved bool, err error) {
	args, blob, err := s.pageArgs(ctx, k, p)
	if err != nil {
		return false, s.wrap("save page", err)
	}
	insert, used := insertPage, []*string{blob}
	if len(p.Files) > 0 {
		columns, blobs, err := s.storeFiles(ctx, k.Org, k.Run, p.Files)
		if err != nil {
			return false, s.wrap("save page", err)
		}
		insert, args = insertPageWithFiles, append(args, columns...)
		for i := range blobs {
			used = append(used, &blobs[i])
		}
	}
	saved, err = s.insertPage(ctx, k, insert, args, claimed)
	for _, blob := range used {
		if err == nil && !saved {
			s.discard(ctx, k.Org, k.Run, blob)
		}
	}
	return saved, s.wrap("save page", err)
}

func (s *Store) insertPage(ctx context.Context, k stepwell.PageKey, insert string, args []any, claimed bool) (saved bool, err error) {
	if !claimed {
		tag, err := s.pool.Exec(ctx, insert, args...)
		return tag.RowsAffected() > 0, err
	}
	var b pgx.Batch
	b.Queue(insert, args...)
	b.Queue(deleteClaim, k.Org, k.Run, k.Step, k.Item, k.Page)
	res := s.pool.SendBatch(ctx, &b)
	tag, err := res.Exec()
	if cerr := res.Close(); err == nil {
		err = cerr
	}
	return tag.RowsAffected() > 0, err
}

const pageHead = `step, item, page, coalesce(error, ''), records, bytes, next, coalesce(cursor, ''), done, coalesce(ended_by, '')`

func scanHead(row pgx.Row, p *stepwell.Page, more ...any) error {
	return row.Scan(append([]any{&p.Step, &p.Item, &p.Page, &p.Error, &p.Records, &p.Bytes, &p.Next, &p.Cursor, &p.Done, &p.EndedBy}, more...)...)
}

// PageHead reads a page without its body; nil when it is not stored.
func (s *Store) PageHead(ctx context.Context, k stepwell.PageKey) (*stepwell.Page, error) {
	var p stepwell.Page
	err := scanHead(s.pool.QueryRow(ctx, `SELECT `+pageHead+` FROM pages
		WHERE org_id = $1 AND run_id = $2 AND step = $3 AND item = $4 AND page = $5`, k.Org, k.Run, k.Step, k.Item, k.Page), &p)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &p, s.wrap("read page", err)
}

// PageHeads walks over the pages of one item of a step after a page, in order and
// without bodies.
func (s *Store) PageHeads(ctx context.Context, org, run string, step, item, after int, visit func(*stepwell.Page) error) error {
	rows, err := s.pool.Query(ctx, `SELECT `+pageHead+` FROM pages
		WHERE org_id = $1 AND run_id = $2 AND step = $3 AND item = $4 AND page > $5 ORDER BY page`, org, run, step, item, after)
	if err != nil {
		return s.wrap("read pages", err)
	}
	defer rows.Close()
	for rows.Next() {
		var p stepwell.Page
		if err := scanHead(rows, &p); err != nil {
			return s.wrap("read pages", err)
		}
		if err := visit(&p); err != nil {
			return err
		}
	}
	return s.wrap("read pages", rows.Err())
}

// pageBatch is how many stored pages are read at once: bounds memory while a
// result of any length streams.
const pageBatch = 64

// PageBodies walks over the pages of a step with their bodies, by item and page.
// It holds no connection while visit runs, and the memory of a body is used
// again after it. A missing page in a row is an error.
func (s *Store) PageBodies(ctx context.Context, org, run string, step int, visit func(*stepwell.Page) error) error {
	return s.bodies(ctx, org, run, step, 0, math.MaxInt32, visit)
}

// ItemBodies is PageBodies for one item of a step.
func (s *Store) ItemBodies(ctx context.Context, org, run string, step, item int, visit func(*stepwell.Page) error) error {
	return s.bodies(ctx, org, run, step, item, item, visit)
}

// bodies is PageBodies for the items from one to another.
func (s *Store) bodies(ctx context.Context, org, run string, step, item, last int, visit func(*stepwell.Page) error) error {
	page := 0
	var large []byte // holds one large body after the other
	for {
		pages, err := s.pageBatch(ctx, org, run, step, item, page, last)
		if err != nil {
			return s.wrap("read pages", err)
		}
		for i := range pages {
			p := &pages[i].Page
			if err := checkNext(item, page, p); err != nil {
				return err
			}
			if p.Body, err = s.decodePage(ctx, &pages[i], &large); err != nil {
				return s.wrap("read pages", err)
			}
			if err := visit(p); err != nil {
				return err
			}
			item, page = p.Item, p.Page
			pages[i] = storedPage{} // its body is not kept while the others are walked over
		}
		if len(pages) < pageBatch {
			return nil
		}
	}
}

func checkNext(item, page int, p *stepwell.Page) error {
	if p.Item == item && p.Page == page+1 || p.Item > item && p.Page == 1 {
		return nil
	}
	return fmt.Errorf("read pages: page %d of item %d is missing", page+1, p.Item)
}

// decodePage gives the body of a page; a large one is put into the memory that large
// keeps.
func (s *Store) decodePage(ctx context.Context, p *storedPage, large *[]byte) ([]byte, error) {
	if p.Bytes < streamFrom {
		return s.decodeBody(ctx, p.body, p.Bytes)
	}
	if int64(cap(*large)) < p.Bytes {
		*large = nil // it can go before the new one comes
		*large = make([]byte, p.Bytes)
	}
	*large = (*large)[:p.Bytes]
	return *large, s.decodeInto(ctx, p.body, *large)
}

// storedPage is a page with its body as the row holds it.
type storedPage struct {
	stepwell.Page
	body storedBody
}

func (s *Store) pageBatch(ctx context.Context, org, run string, step, item, page, last int) ([]storedPage, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+pageHead+`, encoding, body, blob FROM pages
		WHERE org_id = $1 AND run_id = $2 AND step = $3 AND (item, page) > ($4, $5) AND item <= $6
		ORDER BY item, page LIMIT $7`, org, run, step, item, page, last, pageBatch)
	if err != nil {
		return nil, err
	}
	pages, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (storedPage, error) {
		var p storedPage
		err := scanHead(row, &p.Page, &p.body.encoding, &p.body.inline, &p.body.blob)
		return p, err
	})
	if err != nil {
		return nil, err
	}
	return pages, s.resolve(ctx, org, pages)
}

// SetWait records what an item of a run waits for, and until when.
func (s *Store) SetWait(ctx context.Context, k stepwell.PageKey, w stepwell.Waiting) error {
	_, err := s.pool.Exec(ctx, `
INSERT INTO waits (org_id, run_id, step, item, reason, wait_until)
SELECT r.org_id, r.id, $3, $4, $5, $6 FROM runs r WHERE r.org_id = $1 AND r.id = $2 AND r.status = 'running'
ON CONFLICT (org_id, run_id, step, item) DO UPDATE SET reason = excluded.reason, wait_until = excluded.wait_until`,
		k.Org, k.Run, k.Step, k.Item, w.Reason, w.Until)
	return s.wrap("record wait", err)
}

// WaitLeft is how much is left of the wait of an item; 0 when it waits for nothing.
func (s *Store) WaitLeft(ctx context.Context, k stepwell.PageKey) (time.Duration, error) {
	var left time.Duration
	err := s.pool.QueryRow(ctx, `SELECT wait_until - clock_timestamp() FROM waits
		WHERE org_id = $1 AND run_id = $2 AND step = $3 AND item = $4 AND wait_until > clock_timestamp()`, k.Org, k.Run, k.Step, k.Item).Scan(&left)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return left, s.wrap("read wait", err)
}

func null(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func nullJSON(raw json.RawMessage) any {
	if raw == nil {
		return nil
	}
	return raw
}

func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
