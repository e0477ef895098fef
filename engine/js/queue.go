package js

import (
	"context"
	"sync"
)

// class is the children of one memory limit. Each slot holds a child or room
// for one.
//
// Who waits, waits by key (the code that is to run): keys take turns, so code
// that always runs into its time limit and is asked for a thousand times holds
// up other code for one turn, at most its time limit, and not for a thousand.
type class struct {
	memory  int64
	mu      sync.Mutex
	free    []*slot
	closed  bool
	waiting map[string][]*waiter
	turns   []string // keys that wait, in the order of their turns
}

// slot is the right to run one evaluation.
type slot struct{ process *process }

type waiter struct {
	ready chan struct{} // closed when slot is set, or the class is closed
	slot  *slot
}

func newClass(memory int64, size int) *class {
	c := &class{memory: memory, waiting: make(map[string][]*waiter)}
	for range size {
		c.free = append(c.free, &slot{})
	}
	return c
}

// take waits for a slot.
func (c *class) take(ctx context.Context, key string) (*slot, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if n := len(c.free); n > 0 {
		s := c.free[n-1]
		c.free = c.free[:n-1]
		c.mu.Unlock()
		return s, nil
	}
	w := &waiter{ready: make(chan struct{})}
	if len(c.waiting[key]) == 0 {
		c.turns = append(c.turns, key)
	}
	c.waiting[key] = append(c.waiting[key], w)
	c.mu.Unlock()
	select {
	case <-w.ready:
		if w.slot == nil {
			return nil, errClosed
		}
		return w.slot, nil
	case <-ctx.Done():
		c.forget(key, w)
		return nil, ctx.Err()
	}
}

// forget takes a waiter out that gave up; a slot that it got meanwhile goes back.
func (c *class) forget(key string, w *waiter) {
	c.mu.Lock()
	got := w.slot
	list := c.waiting[key]
	for i, other := range list {
		if other == w {
			c.waiting[key] = append(list[:i:i], list[i+1:]...)
		}
	}
	c.mu.Unlock()
	if got != nil {
		c.give(got)
	}
}

// give takes a slot back: to the first waiter of the key whose turn it is.
func (c *class) give(s *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.turns) > 0 {
		key := c.turns[0]
		c.turns = c.turns[1:]
		list := c.waiting[key]
		if len(list) == 0 {
			delete(c.waiting, key)
			continue
		}
		w := list[0]
		if len(list) == 1 {
			delete(c.waiting, key)
		} else {
			c.waiting[key] = list[1:]
			c.turns = append(c.turns, key)
		}
		w.slot = s
		close(w.ready)
		return
	}
	if !c.closed {
		// The child used last stands at the end and is the next to be taken.
		c.free = append(c.free, s)
	} else if s.process != nil {
		s.process.kill()
	}
}

// close turns waiters away and kills idle children; one at work is killed when
// its slot comes back.
func (c *class) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, list := range c.waiting {
		for _, w := range list {
			close(w.ready)
		}
	}
	clear(c.waiting)
	c.turns = nil
	for _, s := range c.free {
		if s.process != nil {
			s.process.kill()
		}
	}
	c.free = nil
}
