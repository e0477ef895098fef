package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestChaos is the long form of the tests of kills and stalls, `make chaos`: each
// scenario -rounds times on one installation, all moments random. A round is one run.
func TestChaos(t *testing.T) {
	if *rounds == 0 {
		t.Skip("without -rounds; `make chaos` runs it")
	}
	t.Run("kills", func(t *testing.T) {
		for _, c := range []struct {
			layout  string
			start   func(testing.TB) *installation
			victims []part // each twice in a run
		}{
			{"dev", func(t testing.TB) *installation { return startDev(t, 0) }, []part{partDev, partTemporald, partPostgres, partSession}},
			{"dev, regular activities", func(t testing.TB) *installation { return startDev(t, 0, "STEPWELL_ACTIVITIES=regular") }, []part{partDev, partTemporald, partPostgres}},
			{"dev and a worker", func(t testing.TB) *installation { return startDev(t, 1) }, []part{partDev, partWorker, partTemporald, partPostgres}},
			{"server and one worker", func(t testing.TB) *installation { return startSplit(t, 1) }, []part{partServer, partWorker, partTemporald, partPostgres}},
			{"server and two workers", func(t testing.TB) *installation { return startSplit(t, 2) }, []part{partWorker, partWorker, partTemporald, partPostgres}},
		} {
			for _, shape := range shapes {
				t.Run(c.layout+", "+shape.name, func(t *testing.T) {
					t.Parallel()
					in, r := c.start(t), random(t)
					for range *rounds {
						victims := append(append([]part{}, c.victims...), c.victims...)
						in.survive(shape.pages, shape.delay, r, victims...)
					}
				})
			}
		}
	})
	t.Run("stalls", func(t *testing.T) {
		for workers := range 3 {
			for _, shape := range shapes {
				t.Run(fmt.Sprintf("%d further workers, %s", workers, shape.name), func(t *testing.T) {
					t.Parallel()
					in, r := startDev(t, workers), random(t)
					for range *rounds {
						stalls := []stall{{partSender, 7 * time.Second}, {partSender, 12 * time.Second},
							{partTemporald, 12 * time.Second}, {partPostgres, 12 * time.Second}}
						r.Shuffle(len(stalls), func(i, j int) { stalls[i], stalls[j] = stalls[j], stalls[i] })
						stalls = stalls[:min(len(stalls), shape.pages)]
						in.surviveStalls(shape.pages, shape.delay, r, stalls...)
					}
				})
			}
		}
	})
}

// shapes are the runs of the long form.
var shapes = []struct {
	name  string
	pages int
	delay time.Duration // of each page
}{
	{"300 pages of 20 ms", 300, 20 * time.Millisecond},
	{"8 pages of 1.5 s", 8, 1500 * time.Millisecond}, // near the limit of local activities
	{"3 pages of 6 s", 3, 6 * time.Second},
	{"2 pages of 20 s", 2, 20 * time.Second},
}
