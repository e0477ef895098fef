package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stepwell/api/v1"
)

// maxEventLine bounds one line of a stream of events, in bytes.
const maxEventLine = 32 << 20

// Watch calls visit with the events of a run as they come: its status at first, then its
// progress, and ends after a final status. A stream that breaks off is resumed after the
// last event, as often as other calls are repeated without anything coming.
func (c *Client) Watch(ctx context.Context, id string, visit func(v1.Event) error) error {
	return c.WatchAfter(ctx, id, "", visit)
}

// WatchAfter is Watch for who has seen events up to one: it goes on after that. There is
// nothing to visit when that was a final status.
func (c *Client) WatchAfter(ctx context.Context, id, last string, visit func(v1.Event) error) error {
	final := false
	pause, fruitless := c.pause, 0
	for {
		before := last
		broken, err := c.events(ctx, id, last, func(e v1.Event) error {
			last = e.ID
			final = e.Run != nil && e.Run.Status != "running"
			return visit(e)
		})
		if final || !broken {
			return err
		}
		if last != before {
			fruitless, pause = 0, c.pause
		}
		if fruitless++; fruitless > c.retries {
			return errors.Join(errors.New("the stream of events breaks off again and again"), err)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause *= 2
	}
}

// events reads one stream after an event; broken says that it ended too early, and that
// another may go on.
func (c *Client) events(ctx context.Context, id, after string, visit func(v1.Event) error) (broken bool, err error) {
	in := call{method: "GET", path: runPath(id) + "/events", repeatable: true}
	if after != "" {
		in.header = http.Header{"Last-Event-Id": {after}}
	}
	res, err := c.send(ctx, in)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent { // the end was seen before
		return false, nil
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEventLine)
	var e v1.Event
	name := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			e.ID = value
		case "data":
			if err := readEvent(&e, name, value); err != nil {
				return false, fmt.Errorf("read the events of run %s: %w", id, err)
			}
		case "":
			if e.Run != nil || e.Progress != nil {
				if err := visit(e); err != nil {
					return false, err
				}
			}
			e, name = v1.Event{}, ""
		}
	}
	return ctx.Err() == nil, errors.Join(ctx.Err(), lines.Err())
}

func readEvent(e *v1.Event, name, data string) error {
	switch name {
	case "status":
		e.Run = &v1.Run{}
		return json.Unmarshal([]byte(data), e.Run)
	case "progress":
		e.Progress = &v1.Progress{}
		return json.Unmarshal([]byte(data), e.Progress)
	}
	return nil // of a later release
}
