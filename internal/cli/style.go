package cli

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// style writes text in colour on a terminal, and plainly elsewhere.
type style struct{ colour bool }

// newStyle uses colour on a terminal, unless NO_COLOR has a value
// (https://no-color.org) or the terminal is a dumb one.
func newStyle(tty bool, getenv func(string) string) style {
	return style{tty && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

func (s style) bold(text string) string  { return s.wrap("1", text) }
func (s style) dim(text string) string   { return s.wrap("2", text) }
func (s style) green(text string) string { return s.wrap("32", text) }
func (s style) red(text string) string   { return s.wrap("31", text) }
func (s style) cyan(text string) string  { return s.wrap("36", text) }

func (s style) wrap(code, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// count writes a whole number with commas between the thousands: 12,345.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return sign + b.String()
}

// size writes a number of bytes in the largest decimal unit that fits: 3.6 MB.
func size(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, units := float64(n)/1000, []string{"kB", "MB", "GB", "TB"}
	for value >= 999.95 && len(units) > 1 {
		value, units = value/1000, units[1:]
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[0]
}

// duration writes a length of time as people read it: 840 ms, 3.4 s, 2m05s.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 99950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	}
	d = d.Round(time.Second)
	text := strings.TrimSuffix(d.String(), "0s")
	if d%time.Minute != 0 {
		text = d.String()
	}
	return text
}

// cents writes hundredths of a currency as its units: 1,234.50.
func cents(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	return sign + count(n/100) + "." + strconv.FormatInt(n%100+100, 10)[1:]
}

// fit makes text exactly width characters wide: padded behind, or cut with an ellipsis.
func fit(text string, width int) string {
	n := utf8.RuneCountInString(text)
	if n <= width {
		return text + strings.Repeat(" ", width-n)
	}
	return string([]rune(text)[:width-1]) + "…"
}

// right makes text at least width characters wide: padded in front.
func right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text))) + text
}
