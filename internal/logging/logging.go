// Package logging makes the process's logger. It owns the form of log lines; what may
// not be logged is the business of whoever logs, libraries apart: see New.
package logging

import (
	"bytes"
	"fmt"
	stdlog "log"
	"os"

	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New makes the logger of the process, which writes lines to the standard error. What
// libraries print through the standard library's own log goes to its debug lines,
// without what they quote: net/http quotes there what an upstream sent unasked.
func New(level string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", level)
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(os.Stderr), parsed)
	l := zap.New(core)
	redirectStandard(l)
	return l, nil
}

// redirectStandard makes the standard library's log print to debug lines of l.
func redirectStandard(l *zap.Logger) {
	stdlog.SetFlags(0)
	stdlog.SetPrefix("")
	stdlog.SetOutput(standardWriter{l})
}

// standardWriter takes the lines of the standard library's log.
type standardWriter struct{ log *zap.Logger }

// maxStandard bounds what is kept of a line.
const maxStandard = 200

// Write logs a line up to the first quotation mark: behind it stand the bytes of
// others, which may be secret.
func (w standardWriter) Write(line []byte) (int, error) {
	text, _, cut := bytes.Cut(line, []byte(`"`))
	if len(text) > maxStandard {
		text, cut = text[:maxStandard], true
	}
	w.log.Debug("a library logged", zap.ByteString("text", bytes.TrimSpace(text)), zap.Bool("cut", cut))
	return len(line), nil
}

// Temporal is a logger for Temporal's SDK: its chatter about what is repeated anyway
// goes to debug.
func Temporal(l *zap.Logger) log.Logger { return temporalLogger{l.Sugar()} }

type temporalLogger struct{ l *zap.SugaredLogger }

func (t temporalLogger) Debug(msg string, kv ...any) {}
func (t temporalLogger) Info(msg string, kv ...any)  { t.l.Debugw(msg, kv...) }
func (t temporalLogger) Warn(msg string, kv ...any)  { t.l.Debugw(msg, kv...) }
func (t temporalLogger) Error(msg string, kv ...any) { t.l.Warnw(msg, kv...) }
