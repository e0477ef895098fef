package dev

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"stepwell/internal/app"
	"stepwell/internal/blob"
	"stepwell/internal/cli"
	"stepwell/internal/config"
	"stepwell/internal/doctor"
	"stepwell/internal/temporalsetup"
	"stepwell/store"
	"stepwell/workflows"
)

// Doctor looks at the installation that the environment names, or at that of a data
// directory. It starts nothing: what is down is a finding.
func Doctor(ctx context.Context, cfg config.Config, dir string) ([]cli.Finding, error) {
	cfg.DataDir = dir
	for name, value := range map[string]*string{urlFile: &cfg.DatabaseURL, temporalFile: &cfg.TemporalAddress} {
		if *value != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, errors.New("no installation is known: set STEPWELL_DATABASE_URL and STEPWELL_TEMPORAL_ADDRESS, or --data-dir to a directory in which stepwell dev has run")
		}
		*value = strings.TrimSpace(string(text))
	}
	log := zap.NewNop() // the findings say what is to be said
	s, err := store.Open(ctx, store.Config{URL: cfg.DatabaseURL, MaxConns: 4, Log: log})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	temporal, err := temporalsetup.Connect(cfg.TemporalAddress, log, nil, nil)
	if err != nil {
		return nil, err
	}
	defer temporal.Close()
	in := doctor.Installation{Store: s, Workflows: workflows.NewClient(temporal, workflows.DefaultSettings()), Evaluate: app.Evaluates}
	if cfg.BlobURL == "" {
		if dir, err = filepath.Abs(filepath.Join(dir, "blobs")); err != nil {
			return nil, err
		}
		cfg.BlobURL = blob.DirectoryURL(dir)
	}
	if in.Blobs, err = blob.OpenExisting(ctx, cfg.BlobURL); err == nil {
		defer in.Blobs.Close()
	}
	var out []cli.Finding
	for _, f := range in.Examine(ctx) {
		out = append(out, cli.Finding{Check: f.Check, Level: string(f.Level), Summary: f.Summary, Advice: f.Advice, Examples: f.Examples})
	}
	return out, nil
}
