package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"
)

// Optional is a field of a PUT or PATCH body, which knows three states: absent (the
// zero value: leave the field as it is), null (clear the field), and a value.
// Give it the tag omitzero.
type Optional[T any] struct {
	Set   bool // the field is there, as null or as a value
	Null  bool
	Value T // meaningful when Set and not Null
}

// Some is a field with a value.
func Some[T any](v T) Optional[T] { return Optional[T]{Set: true, Value: v} }

// Null is a field that clears what is stored.
func Null[T any]() Optional[T] { return Optional[T]{Set: true, Null: true} }

// IsZero reports whether the field is absent, for omitzero.
func (o Optional[T]) IsZero() bool { return !o.Set }

// MarshalJSON writes null or the value.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.Set || o.Null {
		return []byte("null"), nil
	}
	return json.Marshal(o.Value)
}

// UnmarshalJSON reads null or a value: the field is there.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	o.Set, o.Null = true, string(text) == "null"
	if o.Null {
		return nil
	}
	return json.Unmarshal(text, &o.Value)
}

// Time is written as RFC 3339 in UTC with milliseconds, such as
// 2030-01-02T03:04:05.678Z. Give it the tag omitzero.
type Time struct{ time.Time }

// TimeFormat is the layout of every time in answers.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON writes the time in TimeFormat.
func (t Time) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(TimeFormat)+2)
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, TimeFormat)
	return append(b, '"'), nil
}

// UnmarshalJSON reads any RFC 3339 time; null leaves the time as it is.
func (t *Time) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return errors.New("a time must be text")
	}
	parsed, err := time.Parse(time.RFC3339, string(b[1:len(b)-1]))
	if err != nil {
		return err
	}
	t.Time = parsed
	return nil
}
