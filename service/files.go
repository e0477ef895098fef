package service

import (
	"context"
	"io"

	"stepwell"
	"stepwell/store"
)

// OpenFile opens a file of a run.
func (s *Service) OpenFile(ctx context.Context, org, run, key string) (*stepwell.File, io.ReadCloser, error) {
	return s.Store.OpenFile(ctx, org, run, key)
}

// addFiles lists the files of runs in them.
func (s *Service) addFiles(ctx context.Context, runs ...*stepwell.Run) error {
	refs := make([]store.RunRef, len(runs))
	for i, r := range runs {
		refs[i] = store.RunRef{Org: r.OrgID, Run: r.ID}
	}
	byRun, err := s.Store.FilesOf(ctx, refs)
	for i, r := range runs {
		r.Files = byRun[refs[i]]
	}
	return err
}
