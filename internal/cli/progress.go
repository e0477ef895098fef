package cli

import (
	"fmt"
	"io"
	"time"
)

// plainEvery is how often progress is written where lines cannot be redrawn.
const plainEvery = time.Second

// lineWidth is the most characters a progress line has: a terminal of 80
// columns wraps at the last one.
const lineWidth = 79

// middle is how many characters of a line stand between the step and the time.
const middle = 50

// snapshot is how far a run is at one moment. The numbers are of the current
// step; waiting is what the run waits for, "" when it does not.
type snapshot struct {
	step    string
	page    int
	items   int64
	bytes   int64
	waiting string
	until   time.Time
}

// progressLine shows the progress of one run: on a terminal one line that is
// redrawn, elsewhere a line a second and one for each new step. It is for one
// goroutine.
type progressLine struct {
	out   io.Writer
	style style
	tty   bool
	began time.Time

	last     snapshot
	drawn    bool      // the line on the terminal is ours to redraw
	written  time.Time // of the last plain line
	stepSeen time.Time // when the current step was first seen
	stepFrom int64     // and how many items it had then
}

// newProgressLine begins to show a run that began at a time.
func newProgressLine(out io.Writer, tty bool, st style, began time.Time) *progressLine {
	return &progressLine{out: out, style: st, tty: tty, began: began, stepSeen: began}
}

// show draws a snapshot. Errors of the writer are not reported: a progress that
// nobody can see is no reason to stop.
func (p *progressLine) show(now time.Time, s snapshot) {
	newStep := s.step != p.last.step
	if newStep {
		p.stepSeen, p.stepFrom = now, s.items
		if p.last.step == "" { // the first sight of the run: it counted from its start
			p.stepSeen, p.stepFrom = p.began, 0
		}
	}
	p.last = s
	if p.tty {
		p.drawn = true
		fmt.Fprint(p.out, "\r\x1b[2K"+p.line(now, s))
		return
	}
	if newStep || now.Sub(p.written) >= plainEvery {
		p.written = now
		fmt.Fprintln(p.out, p.line(now, s))
	}
}

// end leaves the line: on a terminal it is wiped, for what comes next says more.
func (p *progressLine) end() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[2K")
		p.drawn = false
	}
}

// line is the text of one snapshot, at most lineWidth characters, for example
//
//	orders        page   123     12,300 records    2.1 MB    4,120/s    3.2 s
func (p *progressLine) line(now time.Time, s snapshot) string {
	name := "  " + p.style.cyan(fit(orText(s.step, "starting"), 12)) + "  "
	elapsed := p.style.dim(right(duration(now.Sub(p.began)), 7))
	if s.waiting != "" {
		text := "waiting: " + s.waiting
		if left := s.until.Sub(now); left > 0 {
			text = "waits " + duration(left.Round(100*time.Millisecond)) + ": " + s.waiting
		}
		return name + fit(text, middle) + "  " + elapsed
	}
	if s.page == 0 && s.items == 0 {
		return name + fit("", middle) + "  " + elapsed
	}
	page := fit("", 11)
	if s.page > 0 {
		page = "page " + right(count(int64(s.page)), 6)
	}
	return name + page + right(count(s.items), 10) + " records" +
		right(size(s.bytes), 10) + right(count(p.rate(now, s.items)), 9) + "/s  " + elapsed
}

// rate is the records a second since the current step was first seen.
func (p *progressLine) rate(now time.Time, items int64) int64 {
	took := now.Sub(p.stepSeen).Seconds()
	if took < 0.05 { // too short to divide by
		return 0
	}
	return int64(float64(items-p.stepFrom) / took)
}

// orText is text, or another one when it is empty.
func orText(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}
