package store

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// channel is the one Postgres channel over which processes tell each other things.
const channel = "stepwell"

// notifyEvery is how long notices are collected before they are sent: NOTIFY takes a
// lock that all commits share, so it stands outside the runs' own transactions.
const notifyEvery = 3 * time.Millisecond

// maxPayload is below Postgres's limit of 8,000 bytes for a notification.
const maxPayload = 7000

// Notice is one thing that a process tells all others, itself included.
type Notice struct {
	Topic string   // no spaces
	Words []string // no spaces
}

// Topics of notices.
const (
	TopicFinished = "finished" // org, run: has its final status
	TopicCancel   = "cancel"   // org, run, canceller: stop what is in flight
	TopicStopped  = "stopped"  // org, run, worker: nothing is in flight for the run any more
	TopicTool     = "tool"     // org, tool: changed
	TopicKeys     = "keys"     // org: a key changed
)

// topicSent, in the first line of a batch, carries the sender's token and its clock's
// microseconds. Only the sender reads it: clocks of different machines differ.
const topicSent = "sent"

// Notifier sends notices in batches and listens for those of all processes.
type Notifier struct {
	store   *Store
	url     string
	handle  func(Notice)
	log     *zap.Logger
	mu      sync.Mutex
	pending []string
	first   time.Time // when the first of pending was queued
	wake    chan struct{}
	lost    func() // called when the listening connection is there, or back: what was sent before it is missed
	token   string // of this process

	// Set before Run by whoever measures. OnDelay is told how long a batch of notices took
	// until it came back, OnLost of each loss of the listening connection.
	OnDelay func(time.Duration)
	OnLost  func()
}

// NewNotifier prepares a notifier whose listening connection goes to url (a direct
// address: a transaction pooler carries no LISTEN). handle gets every notice and must
// not block; lost is called when notices may have been missed.
func NewNotifier(s *Store, url string, handle func(Notice), lost func(), log *zap.Logger) *Notifier {
	return &Notifier{store: s, url: url, handle: handle, lost: lost, log: log, wake: make(chan struct{}, 1), token: rand.Text()}
}

// Send queues a notice; it goes out within some milliseconds. It may be lost when the
// process or Postgres dies: who waits asks again by itself.
func (n *Notifier) Send(notice Notice) {
	n.mu.Lock()
	if len(n.pending) == 0 {
		n.first = time.Now()
	}
	n.pending = append(n.pending, strings.Join(append([]string{notice.Topic}, notice.Words...), " "))
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// SendNow sends a notice at once.
func (n *Notifier) SendNow(ctx context.Context, notice Notice) error {
	text := strings.Join(append([]string{notice.Topic}, notice.Words...), " ")
	_, err := n.store.pool.Exec(ctx, `SELECT pg_notify($1, $2)`, channel, text)
	return n.store.wrap("notify", err)
}

// Run sends and listens until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { n.sendLoop(ctx) })
	wg.Go(func() { n.listenLoop(ctx) })
	wg.Wait()
}

func (n *Notifier) sendLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(notifyEvery):
		}
		n.mu.Lock()
		pending := n.pending
		if n.OnDelay != nil && len(pending) > 0 {
			pending = append([]string{n.sentLine(n.first)}, pending...)
		}
		n.pending = nil
		n.mu.Unlock()
		for _, payload := range batches(pending) {
			if err := n.send(ctx, payload); err != nil && ctx.Err() == nil {
				n.log.Warn("notices were not sent; waiters find out by themselves within a second", zap.Error(err))
			}
		}
	}
}

func (n *Notifier) sentLine(at time.Time) string {
	return topicSent + " " + n.token + " " + strconv.FormatInt(at.UnixMicro(), 10)
}

// sent takes in the first line of a batch.
func (n *Notifier) sent(words []string) {
	if len(words) != 2 || words[0] != n.token || n.OnDelay == nil {
		return
	}
	if at, err := strconv.ParseInt(words[1], 10, 64); err == nil {
		n.OnDelay(time.Since(time.UnixMicro(at)))
	}
}

func batches(notices []string) []string {
	var out []string
	var b strings.Builder
	for _, text := range notices {
		if b.Len() > 0 && b.Len()+len(text) > maxPayload {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

func (n *Notifier) send(ctx context.Context, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var b pgx.Batch
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	b.Queue(`SELECT pg_notify($1, $2)`, channel, payload)
	return n.store.pool.SendBatch(ctx, &b).Close()
}

func (n *Notifier) listenLoop(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		n.log.Warn("the listening connection was lost; connecting again", zap.Error(err))
		if n.OnLost != nil {
			n.OnLost()
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (n *Notifier) listen(ctx context.Context) error {
	config, err := pgx.ParseConfig(n.url)
	if err != nil {
		return err
	}
	config.ConnectTimeout = 5 * time.Second
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `LISTEN `+channel); err != nil {
		return err
	}
	n.lost() // the first time too: requests may have come before
	for {
		note, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(note.Payload, "\n") {
			words := strings.Split(line, " ")
			if words[0] == topicSent {
				n.sent(words[1:])
				continue
			}
			n.handle(Notice{Topic: words[0], Words: words[1:]})
		}
	}
}

// FinalAmong gives those of runs that have ended, of one query for all waiters of a
// process.
func (s *Store) FinalAmong(ctx context.Context, runs []RunRef) ([]RunRef, error) {
	orgs, ids := split(runs)
	return s.runRefs(ctx, `SELECT r.org_id, r.id FROM unnest($1::text[], $2::text[]) AS x (org, id)
		JOIN runs r ON r.org_id = x.org AND r.id = x.id WHERE r.status <> 'running'`, orgs, ids)
}
