package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"stepwell"
	"stepwell/engine"
)

type pullKey struct{ step, item int }

// pull is what is known of the stored pages of one item. Its lock is held while a page
// is asked for; known may be read at any time.
type pull struct {
	mu    sync.Mutex
	known atomic.Pointer[known]
	seen  map[string]bool // cursors
	met   bool            // claims of others were looked for
	sent  int             // the last page whose request began to be sent
	until time.Time       // before which nothing is sent, because a request is to be repeated then
	at    time.Time       // when known was last known to be all
}

// known is a state of a pull.
type known struct {
	high    int              // pages stored, contiguous from 1
	last    stepwell.Page    // page high, without its body
	state   engine.PageState // for the page after high
	records int64
	bytes   int64
}

// pull gives what is stored of an item, read again when that is too old to be relied
// on; the caller holds its lock until it is done with the page.
func (s *session) pull(ctx context.Context, step, item int, again bool) (*pull, error) {
	s.mu.Lock()
	p := s.pulls[pullKey{step, item}]
	if p == nil {
		p = &pull{seen: map[string]bool{}, met: s.unclaimed && time.Since(s.openedAt) < pullFresh}
		if s.empty {
			p.at = s.openedAt
		}
		p.known.Store(&known{state: engine.PageState{Page: 1}})
		s.prune()
		s.pulls[pullKey{step, item}] = p
	}
	s.mu.Unlock()
	p.mu.Lock()
	if !again && time.Since(p.at) < pullFresh {
		return p, nil
	}
	began := time.Now()
	err := s.all.a.Store.PageHeads(ctx, s.key.org, s.key.run, step, item, p.known.Load().high, func(head *stepwell.Page) error {
		return p.advance(head)
	})
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	p.at = began
	return p, nil
}

// prune forgets the pulls of loop items that are done, for a loop may have millions; the
// caller holds s.mu. It keeps those that are still relied on without being read again:
// so a pull that is made anew is read from the store.
func (s *session) prune() {
	if len(s.pulls) < max(s.pruneAt, minPulls) {
		return
	}
	for key, p := range s.pulls {
		if key.item == 0 || !p.mu.TryLock() {
			continue
		}
		if p.known.Load().last.Done && time.Since(p.at) >= pullFresh {
			delete(s.pulls, key)
		}
		p.mu.Unlock()
	}
	s.pruneAt = 2 * len(s.pulls)
}

// advance takes in the next stored page.
func (p *pull) advance(head *stepwell.Page) error {
	k := *p.known.Load()
	if head.Page != k.high+1 {
		return fmt.Errorf("page %d of item %d of step %d is missing", k.high+1, head.Item, head.Step)
	}
	k.high, k.last = head.Page, *head
	k.last.Body, k.last.Files = nil, nil
	k.records += head.Records
	k.bytes += head.Bytes
	if head.Cursor != "" {
		p.seen[head.Cursor] = true
	}
	if head.Next != nil {
		k.state = engine.PageState{}
		if err := json.Unmarshal(head.Next, &k.state); err != nil {
			return fmt.Errorf("page %d: its state: %w", head.Page, err)
		}
	}
	p.known.Store(&k)
	return nil
}
