// Package logging makes the process's logger. It owns the form of log lines; what may
// not be logged is the business of whoever logs.
package logging

import (
	"fmt"
	"os"

	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New makes a logger that writes lines to the standard error.
func New(level string) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", level)
	}
	encoder := zap.NewProductionEncoderConfig()
	encoder.EncodeTime = zapcore.ISO8601TimeEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(encoder), zapcore.Lock(os.Stderr), l)
	return zap.New(core), nil
}

// Temporal is a logger for Temporal's SDK: its chatter about what is repeated anyway
// goes to debug.
func Temporal(l *zap.Logger) log.Logger { return temporalLogger{l.Sugar()} }

type temporalLogger struct{ l *zap.SugaredLogger }

func (t temporalLogger) Debug(msg string, kv ...any) {}
func (t temporalLogger) Info(msg string, kv ...any)  { t.l.Debugw(msg, kv...) }
func (t temporalLogger) Warn(msg string, kv ...any)  { t.l.Debugw(msg, kv...) }
func (t temporalLogger) Error(msg string, kv ...any) { t.l.Warnw(msg, kv...) }
