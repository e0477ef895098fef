package service

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"

	"stepwell"
	"stepwell/api"
	"stepwell/results"
	"stepwell/store"
)

// What of runs is kept in memory: clients ask for the same ones again and again.
const (
	endedKept   = 4000     // ended runs, of which
	endedBytes  = 16 << 10 // each has at most so many bytes of inputs and data
	endedFor    = time.Minute
	progressFor = 200 * time.Millisecond // a sum over all pages of a run, which may be many
)

// Get gives a run with its tool, its progress while it is running, and its data when
// that is small enough to stand inline. An ended run never changes, so it may come from
// memory; whether a run has ended is always asked.
func (s *Service) Get(ctx context.Context, org, id string) (*stepwell.Run, error) {
	ref := store.RunRef{Org: org, Run: id}
	if run, ok := s.ended.get(ref); ok {
		v, err := s.version(ctx, org, run.ToolVersion)
		if err != nil {
			return nil, err
		}
		run.Tool = v.def
		return &run, nil
	}
	run, err := s.read(ctx, org, id)
	if err == nil && run.Status.Final() && len(run.Inputs)+len(run.Data) <= endedBytes {
		kept := *run
		kept.Tool = nil // versions have a cache of their own
		s.ended.put(ref, kept)
	}
	return run, err
}

// load reads a run with its tool and its files, and the version that it is pinned to.
func (s *Service) load(ctx context.Context, org, id string) (*stepwell.Run, *version, error) {
	run, err := s.Store.Run(ctx, org, id)
	if err != nil {
		return nil, nil, err
	}
	v, err := s.version(ctx, org, run.ToolVersion)
	if err != nil {
		return nil, nil, err
	}
	run.Tool = v.def
	return run, v, s.addFiles(ctx, run)
}

// read is Get from the store.
func (s *Service) read(ctx context.Context, org, id string) (*stepwell.Run, error) {
	run, _, err := s.load(ctx, org, id)
	if err != nil {
		return nil, err
	}
	if run.Status == stepwell.RunRunning {
		run.Progress, err = s.progress(ctx, run)
		return run, err
	}
	if run.Status == stepwell.RunSuccess && run.DataSize <= stepwell.MaxInlineData {
		run.Data, err = s.data(ctx, run)
	}
	return run, err
}

// data reads the whole data of a successful run.
func (s *Service) data(ctx context.Context, run *stepwell.Run) (json.RawMessage, error) {
	r, err := s.Store.ReadResult(ctx, run.OrgID, run.ID)
	if err != nil || r == nil {
		return nil, err
	}
	if r.Step == nil {
		return r.Body, nil
	}
	v, err := s.results.Step(ctx, run.OrgID, run.ID, *r.Step, run.Tool.Steps[*r.Step].DataSelector != "")
	if err != nil || v == nil {
		return nil, err
	}
	return v.Data, nil
}

// heldData is up to how many bytes of JSON the answer to a synchronous run is made in
// memory; what is larger is streamed. Stored pages of more bytes than that are also over
// any inline limit.
const heldData = 2 << 20

// final gives an ended run as a synchronous caller gets it: with its step results, and
// with its data up to heldData.
func (s *Service) final(ctx context.Context, org, id string) (*stepwell.Run, error) {
	run, v, err := s.load(ctx, org, id)
	if err != nil {
		return nil, err
	}
	if run.Status == stepwell.RunSuccess && run.DataSize <= heldData {
		if run.Data, err = s.data(ctx, run); err != nil {
			return nil, err
		}
	}
	err = s.rows(ctx, run, func(row stepwell.StepResult, sum store.StepRow) error {
		if (row.Success || sum.Loop) && sum.Bytes <= heldData {
			value, err := s.results.Step(ctx, org, id, sum.Step, sum.Selects)
			if err != nil {
				return err
			}
			row.Data = results.RowData(v.filters, value)
		}
		run.StepResults = append(run.StepResults, row)
		return nil
	})
	return run, err
}

// rows walks over the rows of stepResults of a run, without their data.
func (s *Service) rows(ctx context.Context, run *stepwell.Run, visit func(stepwell.StepResult, store.StepRow) error) error {
	rows, err := s.Store.StepRows(ctx, run.OrgID, run.ID)
	if err != nil {
		return err
	}
	for _, r := range rows {
		def := &run.Tool.Steps[r.Step]
		r.Selects = def.DataSelector != ""
		failed := r.Failed > 0 && (!r.Loop || !def.ContinueOnFailure())
		if r.Done == 0 && !r.Loop {
			failed = true // cut off in the middle of a pull
		}
		row := stepwell.StepResult{StepID: def.ID, Success: !failed, Error: r.FirstError}
		if r.Loop && def.ContinueOnFailure() {
			row.Error = ""
		}
		if def.Paginated() {
			row.Pages, row.Items = r.Pages-r.Failed, r.Records // a failure is stored as a page of its own
			if !r.Loop {
				row.EndedBy = r.EndedBy
			}
		}
		if err := visit(row, r); err != nil {
			return err
		}
	}
	return nil
}

// Results opens the stored results of an ended run; nil while it is running and when it
// stored nothing.
func (s *Service) Results(ctx context.Context, org, id string) (*api.Results, error) {
	run, err := s.Store.Run(ctx, org, id)
	if err != nil || run.Status == stepwell.RunRunning {
		return nil, err
	}
	v, err := s.version(ctx, org, run.ToolVersion)
	if err != nil {
		return nil, err
	}
	run.Tool = v.def
	out := &api.Results{StoredAt: run.CompletedAt}
	if run.Status == stepwell.RunSuccess {
		out.Data = func(ctx context.Context, w io.Writer) error { return s.WriteData(ctx, w, run) }
	}
	err = s.rows(ctx, run, func(row stepwell.StepResult, r store.StepRow) error {
		row.Data = nil
		sr := api.StepResults{StepResult: row}
		if r.Pages > r.Failed || r.Loop {
			sr.Write, err = s.writerOf(ctx, run, v, r)
		}
		out.Steps = append(out.Steps, sr)
		return err
	})
	if err == nil && out.Data == nil && len(out.Steps) == 0 {
		return nil, nil
	}
	return out, err
}

// writerOf streams a step's data; it is nothing when a filter refuses the data. Filtered
// data is made whole twice, to see whether it is refused and when it is written, rather
// than kept while what stands before it goes to a slow reader.
func (s *Service) writerOf(ctx context.Context, run *stepwell.Run, v *version, r store.StepRow) (api.JSONWriter, error) {
	if !v.filters.Empty() && r.Bytes > results.MaxValue {
		return nil, nil // it cannot be filtered as a whole, and must not leave as it is
	}
	if v.filters.Empty() {
		return func(ctx context.Context, w io.Writer) error {
			return s.writeStep(ctx, w, run, r.Step, r.Selects, r.Bytes)
		}, nil
	}
	filtered := func(ctx context.Context, w io.Writer) (refused bool, err error) {
		err = s.reserved(ctx, min(r.Bytes, resultMemory), func() error {
			var whole bytes.Buffer
			if err := s.results.Write(ctx, &whole, run.OrgID, run.ID, r.Step, r.Selects); err != nil {
				return err
			}
			data, err := v.filters.Apply(whole.Bytes())
			if err != nil {
				refused = true
				return nil
			}
			_, err = w.Write(data)
			return err
		})
		return refused, err
	}
	if refused, err := filtered(ctx, io.Discard); err != nil || refused {
		return nil, err
	}
	return func(ctx context.Context, w io.Writer) error {
		_, err := filtered(ctx, w)
		return err
	}, nil
}

// WriteData streams the data of a successful run.
func (s *Service) WriteData(ctx context.Context, w io.Writer, run *stepwell.Run) error {
	r, body, err := s.Store.OpenResult(ctx, run.OrgID, run.ID)
	if err != nil {
		return err
	}
	if r == nil {
		return stepwell.NotFound("Run") // removed meanwhile
	}
	if body == nil {
		return s.writeStep(ctx, w, run, *r.Step, run.Tool.Steps[*r.Step].DataSelector != "", r.Bytes)
	}
	defer body.Close()
	return s.reserved(ctx, min(r.Bytes, streamMemory), func() error {
		_, err := io.Copy(w, body)
		return err
	})
}

// writeStep streams a step's data of about so many bytes.
func (s *Service) writeStep(ctx context.Context, w io.Writer, run *stepwell.Run, step int, selects bool, bytes int64) error {
	return s.reserved(ctx, min(bytes, pageMemory), func() error {
		return s.results.Write(ctx, w, run.OrgID, run.ID, step, selects)
	})
}

// What streams of results take of memory, however slowly their readers take them.
const (
	resultMemory   = 256 << 20       // of all of a process
	streamMemory   = 5 << 20         // of one that is decompressed as it is sent
	pageMemory     = 32 << 20        // of one that is merged page by page
	memoryPatience = 5 * time.Second // for which one waits for the others
)

// reserved does something that takes memory when the others leave enough.
func (s *Service) reserved(ctx context.Context, bytes int64, do func() error) error {
	waiting, cancel := context.WithTimeout(ctx, memoryPatience)
	defer cancel()
	if s.memory.Acquire(waiting, bytes) != nil {
		return stepwell.Errorf(stepwell.KindUnavailable, "overloaded", "Too many large results are being read: try again after the seconds in Retry-After")
	}
	defer s.memory.Release(bytes)
	return do()
}

// List gives a page of runs.
func (s *Service) List(ctx context.Context, org string, q api.RunQuery) (api.Listed[*stepwell.Run], error) {
	runs, total, more, err := s.Store.ListRuns(ctx, org, storeQuery(q))
	if err == nil && len(runs) > 0 {
		err = s.addFiles(ctx, runs...)
	}
	return api.Listed[*stepwell.Run]{Items: runs, Total: total, More: more}, err
}
