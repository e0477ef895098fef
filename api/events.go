package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"stepwell"
)

// aliveEvery is how often a stream of events that has nothing to say shows that it lives.
const aliveEvery = 15 * time.Second

// lastEvent is what a client has seen: the header that browsers send by themselves when
// they connect again.
type lastEvent string

// events streams how a run moves on as server-sent events: `status` (the run without its
// data) and `progress`, each with an id that says where the run stands, so that another
// process can go on with the stream. It ends after a final status; who has seen that
// already gets 204, which keeps browsers from coming back.
func (a *API) events(_ context.Context, req *request, _ none) (*response, error) {
	run, seen := req.run, lastEvent(req.header.Get("Last-Event-ID"))
	if run.Status.Final() && string(seen) == string(run.Status) {
		return &response{status: http.StatusNoContent}, nil
	}
	header := http.Header{"Content-Type": {"text/event-stream"}, "X-Accel-Buffering": {"no"}}
	return &response{header: header, stream: func(ctx context.Context, w io.Writer) error {
		return a.sendEvents(ctx, &eventWriter{to: w.(*streamWriter), seen: seen}, req)
	}}, nil
}

func (a *API) sendEvents(ctx context.Context, w *eventWriter, req *request) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	moves, ended := make(chan *stepwell.Run), make(chan error, 1)
	go func() { // ends with ctx, and is waited for
		ended <- a.Runs.Watch(ctx, req.run.OrgID, req.run.ID, func(run *stepwell.Run) error {
			select {
			case moves <- run:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		var err error
		select {
		case run := <-moves:
			if err = a.mayStillRead(ctx, req); err == nil {
				err = w.run(a, run, req)
			}
		case <-alive.C:
			if err = a.mayStillRead(ctx, req); err == nil {
				err = w.alive()
			}
		case err := <-ended:
			return err
		}
		if err == errRevoked {
			stop()
			<-ended //nolint:errcheck // it ended because of us
			return nil
		}
		if err != nil {
			stop()
			<-ended //nolint:errcheck // it ended because of err
			return err
		}
	}
}

// errRevoked ends a stream whose reader may not read on.
var errRevoked = errors.New("the key was revoked, or may no longer read the run")

// mayStillRead is asked before each event: a stream may outlive its key. Only a clear no
// ends it; what cannot be asked now is asked again with the next one.
func (a *API) mayStillRead(ctx context.Context, req *request) error {
	caller, err := a.Keys.Authenticate(ctx, req.key)
	if stepwell.KindOf(err) == stepwell.KindUnauthorized || err == nil && !readRun.allows(caller, runSubject(req.run)) {
		return errRevoked
	}
	return nil
}

// eventWriter writes events and knows which was the last.
type eventWriter struct {
	to   *streamWriter
	seen lastEvent
}

// run writes what a client has not seen of a run.
func (w *eventWriter) run(a *API, run *stepwell.Run, req *request) error {
	var out bytes.Buffer
	if status, _, _ := strings.Cut(string(w.seen), "/"); status != string(run.Status) {
		whole, err := a.wireWholeRun(run, req)
		if err == nil {
			err = w.event(&out, "status", string(run.Status), whole)
		}
		if err != nil {
			return err
		}
	}
	if p := wireProgress(run); p != nil {
		id := fmt.Sprintf("%s/%s.%d.%d.%d.%d", run.Status, run.Progress.Step, p.Item, p.Page, p.Items, p.Bytes)
		if p.WaitingFor != nil {
			id += "." + waitID(run.Progress.WaitingFor)
		}
		if id != string(w.seen) {
			if err := w.event(&out, "progress", id, p); err != nil {
				return err
			}
		}
	}
	if _, err := w.to.Write(out.Bytes()); err != nil {
		return err
	}
	return w.to.push()
}

// waitID tells one wait of a run from another: by its end, or its reason when nobody knows
// that.
func waitID(w *stepwell.Waiting) string {
	if w.Until.IsZero() {
		return w.Reason
	}
	return w.Until.UTC().Format("150405.000")
}

func (w *eventWriter) event(out *bytes.Buffer, name, id string, data any) error {
	text, err := encode(data) // one line: JSON has its line ends escaped
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "event: %s\nid: %s\ndata: %s\n", name, id, text)
	w.seen = lastEvent(id)
	return nil
}

// alive writes a comment: it keeps proxies from giving up, and shows whether the client
// is still there.
func (w *eventWriter) alive() error {
	if _, err := io.WriteString(w.to, ":\n\n"); err != nil {
		return err
	}
	return w.to.push()
}
