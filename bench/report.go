package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// figure is a line of the report: the median of the rounds and their spread.
type figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Target *float64  `json:"target,omitempty"`
	Least  bool      `json:"least,omitempty"` // the target is a lower bound
	Time   bool      `json:"time,omitempty"`  // the target is a time: it says little on a busy machine
	OK     *bool     `json:"ok,omitempty"`
	Rounds []float64 `json:"rounds"`
}

// report is all that a run of the benchmark found.
type report struct {
	At       time.Time        `json:"at"`
	Took     string           `json:"took"`
	CPUs     int              `json:"cpus"`
	Go       string           `json:"go"`
	System   string           `json:"system"`
	Disk     string           `json:"disk"`
	Plan     plan             `json:"plan"`
	Measured []figure         `json:"measured"`
	Targets  []figure         `json:"targets"`
	Memory   []memoryGrowth   `json:"memory"`
	CPU      map[string]usage `json:"cpu"` // of one operation with 32 callers, means of the rounds, ms
}

// The targets. Ratios are of one round: the machine's state is the same for both sides.
const (
	targetOneStep    = 1.5  // × raw local
	targetThroughput = 0.7  // × raw local
	targetFiveSteps  = 1.6  // × one step
	targetPage       = 1.5  // ms
	targetSlowdown   = 1.15 // last thousand over the first
	targetMemory     = 32   // MiB, from page 100 to the last
	targetPageRatio  = 0.29 // × raw local: 1.5 ms by the 5.2 ms of the machine that the targets come from
)

func newReport(p plan, r *results, took time.Duration) *report {
	v := r.values
	rep := &report{At: time.Now().UTC().Truncate(time.Second), Took: took.Round(time.Second).String(), CPUs: runtime.NumCPU(),
		Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, Plan: p, Memory: r.memory}
	for _, name := range []string{rawRegularMS, rawLocalMS, rawLocalEarlyMS, oneStepMS, fiveStepsMS} {
		rep.Measured = append(rep.Measured, newFigure(name, "ms", v[name]))
	}
	for _, name := range []string{rawRegularRate, rawLocalRate, oneStepRate} {
		rep.Measured = append(rep.Measured, newFigure(name, "/s", v[name]))
	}
	rep.CPU = map[string]usage{}
	totals := map[string][]float64{}
	for _, name := range []string{rawRegularRate, rawLocalRate, oneStepRate} {
		rep.CPU[name] = mean(r.cpu[name])
		for _, u := range r.cpu[name] {
			totals[name] = append(totals[name], u.total())
		}
		rep.Measured = append(rep.Measured, newFigure("processor time of each: "+name, "ms", totals[name]))
	}
	for _, name := range []string{getRunRate, listRunsRate} {
		rep.Measured = append(rep.Measured, newFigure(name, "/s", v[name]))
	}
	for _, name := range []string{getRunMS, listRunsMS, saveToolMS, pageMS, wholePageMS, longPageMS} {
		rep.Measured = append(rep.Measured, newFigure(name, "ms", v[name]))
	}
	var grown []float64
	for _, m := range r.memory {
		grown = append(grown, m.End-m.Begin)
	}
	most := func(name, unit string, values []float64, target float64) {
		rep.Targets = append(rep.Targets, newFigure(name, unit, values).against(target, false))
	}
	most("one step / raw local", "×", ratios(v[oneStepMS], v[rawLocalMS]), targetOneStep)
	rep.Targets = append(rep.Targets,
		newFigure("one step at 32 / raw local at 32", "×", ratios(v[oneStepRate], v[rawLocalRate])).against(targetThroughput, true))
	most("five steps / one step", "×", ratios(v[fiveStepsMS], v[oneStepMS]), targetFiveSteps)
	page := newFigure(fmt.Sprintf("a page of %d", p.Pages), "ms", v[pageMS]).against(targetPage, false)
	page.Time = true
	rep.Targets = append(rep.Targets, page)
	most(fmt.Sprintf("a page of %d / raw local", p.Pages), "×", ratios(v[pageMS], v[rawLocalMS]), targetPageRatio)
	most(fmt.Sprintf("last / first thousand of %d pages", p.LongPages), "×", v[slowdown], targetSlowdown)
	most(fmt.Sprintf("memory, page 100 to %d, first pull", p.LongPages), "MiB", grown[:min(1, len(grown))], targetMemory)
	rep.Targets = append(rep.Targets, newFigure("one step / raw regular", "×", ratios(v[oneStepMS], v[rawRegularMS])),
		newFigure("one step at 32 / raw regular at 32", "×", ratios(v[oneStepRate], v[rawRegularRate])),
		newFigure("processor time, one step / raw local", "×", ratios(totals[oneStepRate], totals[rawLocalRate])),
		newFigure("one step / raw local told early", "×", ratios(v[oneStepMS], v[rawLocalEarlyMS])))
	return rep
}

// mean is the mean of readings.
func mean(all []usage) usage {
	var sum usage
	for _, u := range all {
		sum = usage{sum.Node + u.Node, sum.Temporald + u.Temporald, sum.Postgres + u.Postgres, sum.Children + u.Children}
	}
	return sum.each(usage{}, int64(len(all)))
}

// ratios divides round by round.
func ratios(a, b []float64) []float64 {
	out := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

func newFigure(name, unit string, rounds []float64) figure {
	f := figure{Name: name, Unit: unit, Rounds: rounds, Median: median(rounds)}
	if len(rounds) > 0 {
		f.Min, f.Max = slices.Min(rounds), slices.Max(rounds)
	}
	return f
}

// against compares a figure with a target. A figure without values misses it.
func (f figure) against(target float64, least bool) figure {
	f.Target, f.Least = &target, least
	ok := f.within(1)
	f.OK = &ok
	return f
}

// within reports whether the median is within a factor of the target.
func (f figure) within(factor float64) bool {
	if f.Target == nil {
		return true
	}
	if len(f.Rounds) == 0 {
		return false
	}
	if f.Least {
		return f.Median >= *f.Target/factor
	}
	return f.Median <= *f.Target*factor
}

func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "\n%d rounds in %s, %d CPUs, %s, %s; %s\n\n", r.Plan.Rounds, r.Took, r.CPUs, r.System, r.Go, r.Disk)
	fmt.Fprintf(w, "%-48s %10s %22s\n", "measured", "median", "min – max")
	for _, f := range r.Measured {
		f.writeTo(w)
	}
	fmt.Fprintf(w, "\n%-48s %10s %22s   %s\n", "against", "median", "min – max", "target")
	for _, f := range r.Targets {
		f.writeTo(w)
	}
	fmt.Fprintln(w)
	for _, name := range []string{rawLocalRate, oneStepRate} {
		u := r.CPU[name]
		fmt.Fprintf(w, "processor time, %s: this process %.2f ms (its callers are in it), temporald %.2f, postgres %.2f, children %.2f\n",
			name, u.Node, u.Temporald, u.Postgres, u.Children)
	}
	for i, m := range r.Memory {
		fmt.Fprintf(w, "memory of long pull %d: %.1f MiB at page 100, %.1f at the end, peak %.1f", i+1, m.Begin, m.End, m.Peak)
		if len(m.Evaluators) > 0 {
			fmt.Fprintf(w, "; evaluators, each: %s", joined(m.Evaluators))
		}
		fmt.Fprintln(w)
	}
}

func (f figure) writeTo(w io.Writer) {
	spread := fmt.Sprintf("%.2f – %.2f", f.Min, f.Max)
	fmt.Fprintf(w, "%-48s %10.2f %22s %-3s", f.Name, f.Median, spread, f.Unit)
	if f.Target != nil {
		sign, verdict := "≤", "ok"
		if f.Least {
			sign = "≥"
		}
		if !*f.OK {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, " %s %-6g %s", sign, *f.Target, verdict)
	}
	fmt.Fprintln(w)
}

func joined(values []float64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprintf("%.1f", v)
	}
	return strings.Join(texts, ", ")
}

func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// check gives an error that names the figures that are worse than factor times their
// target; factor 0 accepts everything. Times are left out: their ratio to a raw workflow
// stands beside them.
func (r *report) check(factor float64) error {
	if factor == 0 {
		return nil
	}
	var missed []string
	for _, f := range r.Targets {
		if !f.Time && !f.within(factor) {
			missed = append(missed, f.Name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("worse than %g × the target: %s", factor, strings.Join(missed, "; "))
	}
	return nil
}
