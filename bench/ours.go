package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"stepwell/api/v1"
	"stepwell/client"
)

// Tools that are measured.
const (
	oneStep   = "one-step"
	fiveSteps = "five-steps"
	pulling   = "pulling"
)

// pageSize is the records of a page, about 18 KB of JSON together.
const pageSize = 100

// ours calls stepwell as a client does.
type ours struct {
	base string
	key  string
	http *http.Client
	db   *pgx.Conn // for what the API does not show: when each page was stored

	ended string // id of a one-step run that has ended
	api   *client.Client
}

func newOurs(ctx context.Context, s *stack) (*ours, error) {
	o := &ours{base: s.node.BaseURL(), key: s.admin,
		http: &http.Client{Transport: &http.Transport{MaxIdleConns: 100, MaxIdleConnsPerHost: 100, DisableCompression: true}}}
	var err error
	if o.db, err = pgx.Connect(ctx, s.database); err != nil {
		return nil, fmt.Errorf("connect to the database")
	}
	o.api = client.New(o.base, o.key)
	return o, o.createTools(ctx, o.api, s.upstream.url)
}

func (o *ours) close() {
	_ = o.db.Close(context.Background())
	o.http.CloseIdleConnections()
}

func (o *ours) createTools(ctx context.Context, c *client.Client, upstream string) error {
	get := func(id string) v1.Step {
		return v1.Step{ID: id, Config: v1.StepConfig{URL: upstream + "/customers/cus_00001"}}
	}
	pages := v1.Step{ID: "orders", Config: v1.StepConfig{
		URL: upstream + "/orders",
		QueryParams: map[string]json.RawMessage{
			"cursor": text("<<cursor>>"), "limit": text("<<limit>>"), "pages": text("100000"),
		},
		Pagination: &v1.Pagination{Type: "cursorBased", PageSize: json.RawMessage(strconv.Itoa(pageSize)), CursorPath: "next_cursor",
			StopCondition: "(response, pageInfo, sourceData) => pageInfo.totalFetched >= sourceData.records"},
	}}
	for _, t := range []v1.ToolCreate{
		{ID: oneStep, Steps: []v1.Step{get("s1")}},
		{ID: fiveSteps, Steps: []v1.Step{get("s1"), get("s2"), get("s3"), get("s4"), get("s5")}},
		{ID: pulling, Steps: []v1.Step{pages}},
	} {
		if _, err := c.CreateTool(ctx, t); err != nil {
			return fmt.Errorf("create the tool %s: %w", t.ID, err)
		}
	}
	return nil
}

func text(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string has JSON
	return b
}

// run makes one synchronous run and reads its whole answer.
func (o *ours) run(ctx context.Context, tool, body string) error {
	_, err := o.post(ctx, tool, body, http.StatusOK, []byte(`"status":"success"`))
	return err
}

// findEnded remembers a one-step run to be read.
func (o *ours) findEnded(ctx context.Context) error {
	runs, err := o.api.ListRuns(ctx, client.Page{Limit: 1}, client.RunFilter{ToolID: oneStep, Status: "success"})
	if err != nil {
		return err
	}
	if len(runs.Data) == 0 {
		return fmt.Errorf("no one-step run has ended")
	}
	o.ended = runs.Data[0].RunID
	return nil
}

// get reads an answer whole; it must be 200.
func (o *ours) get(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+o.key)
	res, err := o.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: HTTP %d", path, res.StatusCode)
	}
	return nil
}

// saveTool saves a new tool of one step.
func (o *ours) saveTool(ctx context.Context) error {
	_, err := o.api.CreateTool(ctx, v1.ToolCreate{Steps: []v1.Step{{ID: "get", Config: v1.StepConfig{URL: "http://upstream.example/<<id>>"}}}})
	return err
}

// start begins an asynchronous run and gives its id.
func (o *ours) start(ctx context.Context, tool, body string) (string, error) {
	answer, err := o.post(ctx, tool, body, http.StatusAccepted, nil)
	if err != nil {
		return "", err
	}
	var run v1.Run
	return run.RunID, decodeInto(answer, &run)
}

func decodeInto(answer []byte, run *v1.Run) error {
	if err := json.Unmarshal(answer, run); err != nil || run.RunID == "" {
		return fmt.Errorf("the answer to a start names no run")
	}
	return nil
}

// answerKept bounds what is kept of an answer: the rest is read and forgotten.
const answerKept = 64 << 10

// post makes a call whose answer must have a status and hold a text near its beginning
// (or be long).
func (o *ours) post(ctx context.Context, tool, body string, status int, holds []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base+"/tools/"+tool+"/run", bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+o.key)
	req.Header.Set("Content-Type", "application/json")
	res, err := o.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, answerKept))
	if err != nil {
		return nil, err
	}
	rest, err := io.Copy(io.Discard, res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != status || (rest == 0 && !bytes.Contains(answer, holds)) {
		return nil, fmt.Errorf("run of %s: HTTP %d: %.500s", tool, res.StatusCode, answer)
	}
	return answer, nil
}

// pull runs a pull of pages asynchronously and gives its times when it has succeeded.
func (o *ours) pull(ctx context.Context, pages int) (*pulled, error) {
	id, err := o.start(ctx, pulling, pullBody(pages, true))
	if err != nil {
		return nil, err
	}
	p := &pulled{}
	for status := ""; status != "success"; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		var failure string
		var began, ended *time.Time
		err := o.db.QueryRow(ctx, `SELECT status, coalesce(error, ''), started_at, completed_at FROM runs WHERE id = $1`, id).Scan(&status, &failure, &began, &ended)
		if err != nil {
			return nil, err
		}
		if status != "running" && status != "success" {
			return nil, fmt.Errorf("a pull of %d pages ended as %s: %s", pages, status, failure)
		}
		if status == "success" {
			p.began, p.ended = *began, *ended
		}
	}
	rows, err := o.db.Query(ctx, `SELECT created_at FROM pages WHERE run_id = $1 ORDER BY page`, id)
	if err != nil {
		return nil, err
	}
	if p.stored, err = pgx.CollectRows(rows, pgx.RowTo[time.Time]); err != nil {
		return nil, err
	}
	if len(p.stored) != pages {
		return nil, fmt.Errorf("a pull of %d pages stored %d", pages, len(p.stored))
	}
	return p, nil
}

// pullBody is the body of a run that pulls a number of pages.
func pullBody(pages int, async bool) string {
	return fmt.Sprintf(`{"inputs":{"records":%d},"options":{"async":%t}}`, pages*pageSize, async)
}

// pulled is a pull that succeeded.
type pulled struct {
	began, ended time.Time   // of the run
	stored       []time.Time // when each page was stored
}

// perPage is the time of the whole run for each page, in milliseconds.
func (p *pulled) perPage() float64 {
	return milliseconds(p.ended.Sub(p.began)) / float64(len(p.stored))
}

// slowdown is the time of the last n pages over that of the first n.
func (p *pulled) slowdown(n int) float64 {
	last := len(p.stored) - 1
	return float64(p.stored[last].Sub(p.stored[last-n])) / float64(p.stored[n].Sub(p.stored[0]))
}

// observed is one synchronous run seen by its caller.
type observed struct{ began, sent, first, ended time.Time }

// observe makes a run and notes when its request was sent and its answer began and ended.
func (o *ours) observe(ctx context.Context, tool string) (observed, error) {
	var seen observed
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest:         func(httptrace.WroteRequestInfo) { seen.sent = time.Now() },
		GotFirstResponseByte: func() { seen.first = time.Now() },
	})
	seen.began = time.Now()
	err := o.run(ctx, tool, "{}")
	seen.ended = time.Now()
	return seen, err
}
