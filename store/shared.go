package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"stepwell"
)

// A rerun's page does not copy a body of more than a few bytes: where a blob's key stands
// otherwise there is a reference to the page that has the body, `page:<step>:<run>`. Keys
// of blobs have no colon. The run that is referred to is the one that fetched the page, and
// retention keeps it for as long as any rerun that goes back to it.
//
// It is no column of its own for the sake of the release before, which knows nothing of
// it: it copies such a row as it is, and fails to read it, instead of reading it as empty.
const (
	pageReference = "page:"
	copiedBody    = 256 // stored bytes up to which a body is copied
)

// sharedPages copies the pages of an ended run's steps to a rerun, bodies by reference.
const sharedPages = `
INSERT INTO pages (org_id, run_id, step, item, page, error, records, bytes, encoding, body, blob, next, cursor, done, ended_by, state)
SELECT p.org_id, $3, s.step, p.item, p.page, p.error, p.records, p.bytes, p.encoding,
       CASE WHEN octet_length(p.body) <= $7 THEN p.body END,
       CASE WHEN octet_length(p.body) > $7 THEN $8 || p.step || ':' || p.run_id ELSE p.blob END,
       p.next, p.cursor, p.done, p.ended_by,
       CASE WHEN EXISTS (SELECT FROM run_states x WHERE x.org_id = $1 AND x.run_id = $2) THEN p.state END
FROM unnest($4::int[], $5::int[], $6::bool[]) AS s (old, step, part)
JOIN pages p ON p.org_id = $1 AND p.run_id = $2 AND p.step = s.old
WHERE p.error IS NULL OR NOT s.part`

// origin is where the body of a page is.
type origin struct {
	run  string
	step int
}

// originOf reads a reference; ok is false for a body that is no reference.
func originOf(b storedBody) (o origin, ok bool, err error) {
	if b.blob == nil || !strings.HasPrefix(*b.blob, pageReference) {
		return o, false, nil
	}
	step, run, _ := strings.Cut((*b.blob)[len(pageReference):], ":")
	if o.step, err = strconv.Atoi(step); err != nil {
		return o, true, fmt.Errorf("a page refers to %q", *b.blob)
	}
	o.run = run
	return o, true, nil
}

// resolve puts the bodies of other runs' pages in the place of the references to them.
func (s *Store) resolve(ctx context.Context, org string, pages []storedPage) error {
	byOrigin := map[origin][]*storedPage{}
	for i := range pages {
		o, shared, err := originOf(pages[i].body)
		if err != nil {
			return err
		}
		if shared {
			byOrigin[o] = append(byOrigin[o], &pages[i])
		}
	}
	for o, shared := range byOrigin {
		if err := s.resolveFrom(ctx, org, o, shared); err != nil {
			return err
		}
	}
	return nil
}

// resolveFrom is resolve for pages whose bodies are at one origin.
func (s *Store) resolveFrom(ctx context.Context, org string, o origin, shared []*storedPage) error {
	type place struct{ item, page int }
	wanted := map[place]*storedPage{}
	var items, numbers []int
	for _, p := range shared {
		wanted[place{p.Item, p.Page.Page}] = p
		items, numbers = append(items, p.Item), append(numbers, p.Page.Page)
	}
	rows, err := s.pool.Query(ctx, `SELECT p.item, p.page, p.encoding, p.body, p.blob FROM unnest($4::int[], $5::int[]) AS x (item, page)
		JOIN pages p ON p.org_id = $1 AND p.run_id = $2 AND p.step = $3 AND p.item = x.item AND p.page = x.page`, org, o.run, o.step, items, numbers)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var at place
		var body storedBody
		if err := rows.Scan(&at.item, &at.page, &body.encoding, &body.inline, &body.blob); err != nil {
			return err
		}
		wanted[at].body = body
		delete(wanted, at)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for at := range wanted {
		return &stepwell.Error{Kind: stepwell.KindLost, Code: "body_missing",
			Message: "A stored body is missing: restore it from a backup, or run the tool again",
			Cause:   fmt.Errorf("page %d of item %d of step %d of run %s is gone", at.page, at.item, o.step, o.run)}
	}
	return nil
}
