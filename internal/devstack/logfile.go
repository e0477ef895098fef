package devstack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"
)

// A child's log is cut when it is longer than maxLogSize bytes, which is looked
// at every logCheckInterval. The part before is kept once, as <name>.1.
const (
	maxLogSize       = 16 << 20
	logCheckInterval = 30 * time.Second
)

// logTail is how many bytes of a log an error shows.
const logTail = 2000

// logFile is the file that a child writes to, itself: no pipe that would block
// it or break when its parent stalls or dies.
type logFile struct {
	file  *os.File
	start int64 // where the current start's output begins
}

// openLog opens a log for another start, whose output begins at its end.
func openLog(path string) (*logFile, error) {
	// Appending: a truncated file is written from its new end.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	l := &logFile{file: file}
	l.trim()
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open the log: %w", err)
	}
	l.start = info.Size()
	return l, nil
}

// tail gives the last output since the log was opened.
func (l *logFile) tail() string {
	info, err := l.file.Stat()
	if err != nil {
		return ""
	}
	from := max(l.start, info.Size()-logTail)
	data, err := io.ReadAll(io.NewSectionReader(l.file, from, logTail))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}

// trim cuts a log that has become too long. What is written between the copy
// and the cut is lost, and a failure leaves a long log: both are harmless.
func (l *logFile) trim() {
	info, err := l.file.Stat()
	if err != nil || info.Size() <= maxLogSize {
		return
	}
	old, err := os.OpenFile(l.file.Name()+".1", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = old.Close() }()
	_, _ = io.Copy(old, io.NewSectionReader(l.file, 0, info.Size()))
	_ = l.file.Truncate(0)
}

func (l *logFile) close() { _ = l.file.Close() }
