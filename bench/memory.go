package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// memorySample is the memory of this process (resident set) at a time.
type memorySample struct {
	at  time.Time
	mib float64
}

// memoryWatch takes samples of this process's memory until it is stopped.
type memoryWatch struct {
	quit    chan struct{}
	wg      sync.WaitGroup
	samples []memorySample
}

func watchMemory() *memoryWatch {
	w := &memoryWatch{quit: make(chan struct{})}
	w.wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if mib, err := residentMemory("self"); err == nil {
				w.samples = append(w.samples, memorySample{time.Now(), mib})
			}
			select {
			case <-w.quit:
				return
			case <-tick.C:
			}
		}
	})
	return w
}

func (w *memoryWatch) stop() []memorySample {
	close(w.quit)
	w.wg.Wait()
	return w.samples
}

// memoryGrowth is the memory in MiB of this process, which holds server, worker and the
// caller, between two moments of a pull; all 0 where the system does not tell.
type memoryGrowth struct {
	Begin      float64   `json:"begin"`
	End        float64   `json:"end"`
	Peak       float64   `json:"peak"` // between them
	Evaluators []float64 `json:"evaluators,omitempty"`
}

// growth finds the samples nearest to two moments, and the peak between.
func growth(samples []memorySample, from, to time.Time) memoryGrowth {
	var g memoryGrowth
	if len(samples) == 0 {
		return g
	}
	nearest := func(at time.Time) float64 {
		best := samples[0]
		for _, s := range samples {
			if s.at.Sub(at).Abs() < best.at.Sub(at).Abs() {
				best = s
			}
		}
		return best.mib
	}
	g.Begin, g.End = nearest(from), nearest(to)
	g.Peak = max(g.Begin, g.End)
	for _, s := range samples {
		if !s.at.Before(from) && !s.at.After(to) {
			g.Peak = max(g.Peak, s.mib)
		}
	}
	return g
}

// residentMemory reads the resident set of a process from Linux's /proc, in MiB.
func residentMemory(pid string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "statm"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%s/statm has another form", pid)
	}
	pages, err := strconv.Atoi(fields[1])
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20), err
}

// evaluatorMemory is the resident set in MiB of each evaluator of this process.
func evaluatorMemory() []float64 {
	var out []float64
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.HasPrefix(command, []byte("evaluator\x00")) {
			continue
		}
		if p, ok := readProcess(dir); !ok || p.parent != os.Getpid() {
			continue
		}
		if mib, err := residentMemory(filepath.Base(dir)); err == nil {
			out = append(out, mib)
		}
	}
	return out
}
