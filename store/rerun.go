package store

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"stepwell"
)

// Reuse says with which stored results of an ended run a rerun begins.
type Reuse struct {
	Steps []ReusedStep
}

// ReusedStep is one step whose stored results a rerun takes over: From is its place in
// the run that ended, To in the new one.
type ReusedStep struct {
	From, To  int
	Selection bool // what its dataSelector chose, too
	Part      bool // not the failures in it: they are tried again
}

// InsertRerun is InsertRun for a rerun of r.RerunOf: in the same transaction the rows
// that it reuses are copied, so whoever goes on with the run simply finds them stored.
// Bodies are shared, so it takes about 1 s for 100,000 pages of any size. The run that
// ended is locked meanwhile; it is a KindNotFound error when it is gone.
func (s *Store) InsertRerun(ctx context.Context, r *stepwell.Run, credentials json.RawMessage, reuse Reuse) error {
	var from, to []int
	var selection, part []bool
	for _, step := range reuse.Steps {
		from, to = append(from, step.From), append(to, step.To)
		selection, part = append(selection, step.Selection), append(part, step.Part)
	}
	return s.inTx(ctx, "record rerun", func(tx pgx.Tx) error {
		var there int
		err := tx.QueryRow(ctx, `SELECT 1 FROM runs WHERE org_id = $1 AND id = $2 AND status <> 'running' FOR SHARE`, r.OrgID, r.RerunOf).Scan(&there)
		if errors.Is(err, pgx.ErrNoRows) {
			return stepwell.NotFound("Run")
		}
		if err != nil {
			return err
		}
		if err := s.insertRun(ctx, tx, r, credentials); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
INSERT INTO hook_calls (org_id, run_id, headers, is_text, encoding, body, blob)
SELECT org_id, $3, headers, is_text, encoding, body, blob FROM hook_calls WHERE org_id = $1 AND run_id = $2`, r.OrgID, r.RerunOf, r.ID)
		if err != nil || len(from) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, sharedPages, r.OrgID, r.RerunOf, r.ID, from, to, part, copiedBody, pageReference)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, copyRunState, r.OrgID, r.RerunOf, r.ID); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
INSERT INTO files (org_id, run_id, key, step, item, page, filename, content_type, size, blob)
SELECT f.org_id, $3, f.key, s.step, f.item, f.page, f.filename, f.content_type, f.size, f.blob
FROM unnest($4::int[], $5::int[]) AS s (old, step)
JOIN files f ON f.org_id = $1 AND f.run_id = $2 AND f.step = s.old`, r.OrgID, r.RerunOf, r.ID, from, to)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
INSERT INTO selections (org_id, run_id, step, chunk, looped, total, first_item, encoding, body, blob)
SELECT x.org_id, $3, s.step, x.chunk, x.looped, x.total, x.first_item, x.encoding, x.body, x.blob
FROM unnest($4::int[], $5::int[], $6::bool[]) AS s (old, step, selection)
JOIN selections x ON x.org_id = $1 AND x.run_id = $2 AND x.step = s.old
WHERE s.selection`, r.OrgID, r.RerunOf, r.ID, from, to, selection)
		return err
	})
}
