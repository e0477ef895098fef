package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// resealBatch is how many rows are read, sealed again and written in one go.
const resealBatch = 500

// Resealed says how far the rotation of keys is in a table.
type Resealed struct {
	Table    string
	Seen     int // rows looked at in this pass
	Resealed int // rows sealed again in this pass
}

// Reseal seals every sealed value under the current key that is not yet, in batches, while
// others read and write. It goes over all tables until it finds nothing more to do: a
// value that changes meanwhile is left to its new owner and looked at again. progress is
// told after each batch. What cannot be opened is left as it is, and the error names it;
// everything else is done.
func (s *Store) Reseal(ctx context.Context, progress func(Resealed)) (resealed int, err error) {
	for {
		var again, done int
		var failed []error
		for _, t := range sealedTables {
			n, missed, err := s.resealTable(ctx, t, progress, &failed)
			if err != nil {
				return resealed, s.wrap("seal again", err)
			}
			done += n
			again += missed
		}
		resealed += done
		if again == 0 {
			return resealed, errors.Join(failed...)
		}
	}
}

// sealedRow is a value and its place.
type sealedRow struct {
	key    []string // of the primary key, as text
	sealed []byte
}

// resealTable is one pass over a table. missed are the rows that somebody else changed
// under its hands.
func (s *Store) resealTable(ctx context.Context, t sealedTable, progress func(Resealed), failed *[]error) (done, missed int, err error) {
	at := Resealed{Table: t.name}
	var after []string
	for {
		rows, err := s.sealedRows(ctx, t, after)
		if err != nil || len(rows) == 0 {
			return at.Resealed, missed, err
		}
		after = rows[len(rows)-1].key
		n, lost, err := s.resealRows(ctx, t, rows, failed)
		if err != nil {
			return at.Resealed, missed, err
		}
		at.Seen += len(rows)
		at.Resealed += n
		missed += lost
		progress(at)
	}
}

// sealedRows reads the rows that follow a key.
func (s *Store) sealedRows(ctx context.Context, t sealedTable, after []string) ([]sealedRow, error) {
	texts := make([]string, len(t.key))
	marks := make([]string, len(t.key))
	var args []any
	for i, column := range t.key {
		texts[i], marks[i] = column+"::text", fmt.Sprintf("$%d", i+1)
		if after != nil {
			args = append(args, after[i])
		}
	}
	keys := strings.Join(t.key, ", ")
	where := ""
	if after != nil {
		where = ` WHERE (` + keys + `) > (` + strings.Join(marks, ", ") + `)`
	}
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`SELECT ARRAY[%s], sealed FROM %s%s ORDER BY %s LIMIT %d`,
		strings.Join(texts, ", "), t.name, where, keys, resealBatch), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r sealedRow, err error) {
		return r, row.Scan(&r.key, &r.sealed)
	})
}

// resealRows seals rows again that are not under the current key, unless they have changed
// since they were read.
func (s *Store) resealRows(ctx context.Context, t sealedTable, rows []sealedRow, failed *[]error) (done, missed int, err error) {
	var b pgx.Batch
	where := ""
	for i, column := range t.key {
		where += fmt.Sprintf("%s = $%d AND ", column, i+1)
	}
	sql := fmt.Sprintf(`UPDATE %s SET sealed = $%d WHERE %ssealed = $%d`, t.name, len(t.key)+1, where, len(t.key)+2)
	for _, r := range rows {
		if !s.sealer.NeedsRotation(r.sealed) {
			continue
		}
		place := slices.Insert(slices.Clone(r.key), 0, t.name)
		plain, err := s.sealer.Open(r.sealed, place...)
		if err != nil {
			*failed = append(*failed, fmt.Errorf("%s %s: %w", t.name, strings.Join(r.key, " "), err))
			continue
		}
		sealed, err := s.sealer.Seal(plain, place...)
		if err != nil {
			return done, missed, err
		}
		var args []any
		for _, k := range r.key {
			args = append(args, k)
		}
		b.Queue(sql, append(args, sealed, r.sealed)...)
	}
	if b.Len() == 0 {
		return 0, 0, nil
	}
	results := s.pool.SendBatch(ctx, &b)
	for range b.Len() {
		tag, err := results.Exec()
		if err != nil {
			return done, missed, errors.Join(err, results.Close())
		}
		done += int(tag.RowsAffected())
	}
	return done, b.Len() - done, results.Close()
}
