package cli

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var began = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// at is a moment some milliseconds after the run began.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[mK]")

func TestProgressOnATerminalRedrawsOneLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newProgressLine(&out, true, style{}, began)
	p.show(at(0), snapshot{})
	p.show(at(100), snapshot{step: "customers", page: 1, items: 100, bytes: 9_800})
	p.show(at(1100), snapshot{step: "orders", page: 1, items: 100, bytes: 18_000})
	p.show(at(4100), snapshot{step: "orders", page: 123, items: 12_300, bytes: 2_214_000})
	p.end()
	want := []string{
		"",
		"  starting      " + strings.Repeat(" ", middle) + "     0 ms",
		"  customers     page      1       100 records    9.8 kB    1,000/s   100 ms",
		"  orders        page      1       100 records   18.0 kB        0/s    1.1 s",
		"  orders        page    123    12,300 records    2.2 MB    4,066/s    4.1 s",
		"",
	}
	if got := out.String(); got != strings.Join(want, "\r\x1b[2K") {
		t.Errorf("the terminal got\n%s\nwant\n%s", strings.ReplaceAll(got, "\r\x1b[2K", "\n"), strings.Join(want, "\n"))
	}
}

func TestProgressElsewhereIsALineASecondAndForEachStep(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newProgressLine(&out, false, style{}, began)
	for ms := 0; ms <= 2500; ms += 100 {
		s := snapshot{step: "customers", page: 1, items: 100, bytes: 10_000}
		if ms >= 300 {
			s = snapshot{step: "orders", page: ms / 10, items: int64(ms * 10), bytes: int64(ms * 1800)}
		}
		p.show(at(ms), s)
	}
	p.end()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 { // at 0, 300, 1300 and 2300 ms
		t.Fatalf("%d lines, want 4:\n%s", len(lines), out.String())
	}
	if strings.ContainsAny(out.String(), "\r\x1b") {
		t.Errorf("control characters in plain output: %q", out.String())
	}
	if want := "  orders        page    130    13,000 records    2.3 MB   10,000/s    1.3 s"; lines[2] != want {
		t.Errorf("line 3 is\n%s\nwant\n%s", lines[2], want)
	}
}

func TestProgressFitsInto80Columns(t *testing.T) {
	t.Parallel()
	p := newProgressLine(&strings.Builder{}, true, style{colour: true}, began)
	for name, s := range map[string]snapshot{
		"nothing yet": {},
		"long name":   {step: "a-step-with-quite-a-long-name", page: 7, items: 70, bytes: 700},
		"large":       {step: "orders", page: 99_999, items: 99_999_900, bytes: 999_900_000_000},
		"waiting":     {step: "orders", page: 3, waiting: "GET http://127.0.0.1/orders answered 429, asked to wait; much more text than fits", until: at(9000)},
		"waited":      {step: "orders", page: 3, waiting: "rate limit", until: at(10)},
	} {
		line := p.line(at(59_000), s)
		if got := utf8.RuneCountInString(escapes.ReplaceAllString(line, "")); got > lineWidth {
			t.Errorf("%s: %d columns: %q", name, got, line)
		}
	}
	got := (&progressLine{began: began}).line(at(1000), snapshot{step: "orders", waiting: "429", until: at(3500)})
	if !strings.HasPrefix(got, "  orders        waits 2.5 s: 429 ") {
		t.Errorf("a wait is shown as %q", got)
	}
}

func TestColoursOnlyWhereWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tty  bool
		env  map[string]string
		want bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"NO_COLOR": ""}, true},
		{true, map[string]string{"TERM": "dumb"}, false},
	} {
		st := newStyle(c.tty, func(name string) string { return c.env[name] })
		if got := st.bold("x") != "x"; got != c.want {
			t.Errorf("tty %v, %v: colour %v, want %v", c.tty, c.env, got, c.want)
		}
	}
}

func TestNumbersAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(1234567): "1,234,567", count(-1000): "-1,000",
		size(0): "0 B", size(999): "999 B", size(1000): "1.0 kB", size(999_949): "999.9 kB", size(999_950): "1.0 MB", size(3_600_000): "3.6 MB",
		duration(840 * time.Millisecond): "840 ms", duration(3400 * time.Millisecond): "3.4 s", duration(125 * time.Second): "2m5s",
		duration(120 * time.Second): "2m", duration(2 * time.Hour): "2h0m",
		cents(5): "0.05", cents(123450): "1,234.50", cents(-250): "-2.50",
		fit("abc", 5): "abc  ", fit("abcdef", 4): "abc…", right("7", 3): "  7",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
