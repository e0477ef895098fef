package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// insertPageWithFiles is insertPage and its files in one: none without the other. It
// counts the files.
const insertPageWithFiles = `WITH page AS (` + insertPage + ` RETURNING 1)
INSERT INTO files (org_id, run_id, step, item, page, key, filename, content_type, size, blob)
SELECT $1, $2, $3, $4, $5, f.* FROM unnest($17::text[], $18::text[], $19::text[], $20::bigint[], $21::text[]) AS f
WHERE EXISTS (SELECT 1 FROM page)`

// insertOutputFiles stores the files of an outputTransform when the run is a success:
// in the transaction that makes it one.
const insertOutputFiles = `
INSERT INTO files (org_id, run_id, key, filename, content_type, size, blob)
SELECT r.org_id, r.id, f.* FROM runs r, unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[]) AS f
WHERE r.org_id = $1 AND r.id = $2 AND r.status = 'success' ON CONFLICT DO NOTHING`

// storeFiles makes the contents of files durable and gives the columns of their rows.
func (s *Store) storeFiles(ctx context.Context, org, run string, files []stepwell.File) (columns []any, blobs []string, err error) {
	var keys, names, types []string
	var sizes []int64
	for _, f := range files {
		sum := sha256.Sum256(f.Content)
		blob := fmt.Sprintf("%s/files/%s-%s", blobDir(org, run), f.Key, hex.EncodeToString(sum[:8]))
		if err := s.blobs.Put(ctx, blob, bytes.NewReader(f.Content)); err != nil {
			return nil, blobs, fmt.Errorf("store file: %w", err)
		}
		keys, names, types = append(keys, f.Key), append(names, f.Name), append(types, f.ContentType)
		sizes, blobs = append(sizes, int64(len(f.Content))), append(blobs, blob)
	}
	return []any{keys, names, types, sizes, blobs}, blobs, nil
}

// Files lists the files of a run, by page and key, without their content.
func (s *Store) Files(ctx context.Context, org, run string) ([]stepwell.File, error) {
	byRun, err := s.FilesOf(ctx, []RunRef{{Org: org, Run: run}})
	return byRun[RunRef{Org: org, Run: run}], err
}

// FilesOf lists the files of several runs.
func (s *Store) FilesOf(ctx context.Context, runs []RunRef) (map[RunRef][]stepwell.File, error) {
	orgs, ids := split(runs)
	rows, err := s.pool.Query(ctx, `
SELECT f.org_id, f.run_id, f.key, f.filename, f.content_type, f.size FROM unnest($1::text[], $2::text[]) AS x (org, id)
JOIN files f ON f.org_id = x.org AND f.run_id = x.id ORDER BY f.step NULLS LAST, f.item, f.page, f.key`, orgs, ids)
	if err != nil {
		return nil, s.wrap("list files", err)
	}
	var out map[RunRef][]stepwell.File
	var ref RunRef
	var f stepwell.File
	_, err = pgx.ForEachRow(rows, []any{&ref.Org, &ref.Run, &f.Key, &f.Name, &f.ContentType, &f.Size}, func() error {
		if out == nil {
			out = map[RunRef][]stepwell.File{}
		}
		out[ref] = append(out[ref], f)
		return nil
	})
	return out, s.wrap("list files", err)
}

// OpenFile finds a file and opens its content, which the caller closes; a KindNotFound
// error when there is none.
func (s *Store) OpenFile(ctx context.Context, org, run, key string) (*stepwell.File, io.ReadCloser, error) {
	f := stepwell.File{Key: key}
	var blob string
	err := s.pool.QueryRow(ctx, `SELECT filename, content_type, size, blob FROM files WHERE org_id = $1 AND run_id = $2 AND key = $3`,
		org, run, key).Scan(&f.Name, &f.ContentType, &f.Size, &blob)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, stepwell.NotFound("File")
	}
	if err != nil {
		return nil, nil, s.wrap("read file", err)
	}
	content, err := s.blobs.Get(ctx, blob)
	if err != nil {
		return nil, nil, fmt.Errorf("read file: %w", err)
	}
	return &f, content, nil
}
