package activities

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"stepwell"
	"stepwell/internal/fault"
	"stepwell/internal/outbound"
)

const (
	receiverTimeout = 15 * time.Second   // for a receiver to answer
	longestAsked    = 7 * 24 * time.Hour // that a receiver's Retry-After is believed
	lateness        = 0.1                // jitter: by up to so much of it a wait is longer, never shorter
)

// Attempt makes one attempt of a callback and records it. It is harmless to repeat: what
// is recorded is not sent again, unless this process died between the two.
func (a *Activities) Attempt(ctx context.Context, req AttemptRequest) (AttemptResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	defer beating.Wait()
	defer cancel()
	beating.Go(func() { beat(ctx) })
	res, err := a.attempt(ctx, req)
	if err == nil {
		return res, nil
	}
	if ctx.Err() == nil {
		a.Log.Warn("an attempt of a callback ended without an outcome and is repeated", zap.String("delivery", req.Delivery), zap.Error(err))
	}
	return res, temporal.NewApplicationError("the attempt ended without an outcome; it is repeated", "unavailable")
}

// beat heartbeats until ctx ends: a worker that dies is noticed in seconds.
func beat(ctx context.Context) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			activity.RecordHeartbeat(ctx)
		}
	}
}

func (a *Activities) attempt(ctx context.Context, req AttemptRequest) (AttemptResult, error) {
	d, err := a.Store.Delivery(ctx, req.Org, req.Delivery)
	if stepwell.KindOf(err) == stepwell.KindNotFound {
		return AttemptResult{Over: true}, nil // deleted with its run
	}
	if err != nil {
		return AttemptResult{}, err
	}
	done := slices.ContainsFunc(d.Attempts, func(at stepwell.DeliveryAttempt) bool { return at.Round == req.Round && at.Number == req.Number })
	if req.Round == 1 && (d.Status != stepwell.DeliveryPending || !d.Scheduled) || done && req.Last {
		return AttemptResult{Over: true}, nil
	}
	if done {
		return AttemptResult{AfterMS: max(time.Until(d.NextAttemptAt), 0).Milliseconds()}, nil
	}
	made, asked, err := a.post(ctx, d)
	if err != nil {
		return AttemptResult{}, err
	}
	made.Round, made.Number = req.Round, req.Number
	ends := made.Status == http.StatusGone || req.Round == 1 && req.Last
	wait := time.Duration(float64(req.NextMS) * (1 + lateness*rand.Float64()) * float64(time.Millisecond))
	wait = max(wait, min(asked, longestAsked))
	var next time.Time
	if req.Round == 1 && !ends {
		next = time.Now().Add(wait)
	}
	for wait := 50 * time.Millisecond; ; wait = min(wait*2, time.Second) {
		err := a.Store.RecordAttempt(ctx, req.Org, req.Delivery, made, ends, next)
		if err == nil {
			break
		}
		if stepwell.KindOf(err) != stepwell.KindUnavailable || ctx.Err() != nil {
			return AttemptResult{}, err
		}
		select { // what was sent is not sent again because Postgres is away for a moment
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	fault.Point(fault.AttemptRecorded)
	return AttemptResult{Over: made.Error == "" || ends || req.Last, AfterMS: wait.Milliseconds()}, nil
}

// post sends a callback once. asked is the wait that the receiver's Retry-After asks for.
// An error says that there was no attempt.
func (a *Activities) post(ctx context.Context, d *stepwell.Delivery) (made stepwell.DeliveryAttempt, asked time.Duration, err error) {
	body, err := a.CallbackBody(ctx, d.OrgID, d.RunID)
	if stepwell.KindOf(err) == stepwell.KindLost { // an attempt that failed: repeating it for ever would help nobody
		made.StartedAt, made.Error = time.Now(), stepwell.MessageOf(err)
		a.Log.Error("a callback has nothing to send", zap.String("delivery", d.ID), zap.String("run", d.RunID), zap.Error(err))
		return made, 0, nil
	}
	if err != nil {
		return made, 0, err
	}
	secrets, err := a.Store.WebhookSecrets(ctx, d.OrgID)
	if err != nil {
		return made, 0, err
	}
	made.StartedAt = time.Now()
	header := http.Header{
		"Content-Type":      {"application/json"},
		"Webhook-Id":        {d.WebhookID()},
		"Webhook-Timestamp": {strconv.FormatInt(made.StartedAt.Unix(), 10)},
		"Webhook-Signature": {signatures(secrets, d.WebhookID(), made.StartedAt, body)},
	}
	fault.Point(fault.AttemptUnsent)
	answer, failure := a.Sender.Do(ctx, outbound.Request{Method: http.MethodPost, URL: d.URL, Header: header, Body: body,
		Repeatable: true, HeadOnly: true, Timeout: receiverTimeout})
	fault.Point(fault.AttemptAnswered)
	made.Duration = time.Since(made.StartedAt)
	if failure != nil {
		var why *outbound.Error
		if !errors.As(failure, &why) || why.Reason == outbound.Cancelled {
			return made, 0, failure
		}
		made.Error = why.Message
		a.Metrics.Delivered(0, string(why.Reason), made.Duration)
		return made, 0, nil
	}
	defer answer.Close()
	made.Status = answer.Status
	a.Metrics.Delivered(answer.Status, "", made.Duration)
	switch {
	case answer.Status >= 200 && answer.Status < 300:
		return made, 0, nil
	case answer.Status >= 300 && answer.Status < 400:
		made.Error = fmt.Sprintf("the receiver answered %d: redirects are not followed", answer.Status)
	default:
		made.Error = fmt.Sprintf("the receiver answered %d", answer.Status)
	}
	asked, _ = outbound.ParseRetryAfter(answer.Header.Get("Retry-After"), time.Now())
	return made, asked, nil
}

// signatures are those of Standard Webhooks 1.0 by each secret, separated by spaces.
func signatures(secrets []stepwell.WebhookSecret, id string, at time.Time, body []byte) string {
	all := make([]string, len(secrets))
	for i, s := range secrets {
		mac := hmac.New(sha256.New, s.Key)
		fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
		mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
