package service

import (
	"sync"
	"time"
)

// cache keeps values for a time, up to a number of them.
type cache[K comparable, V any] struct {
	most int
	keep time.Duration
	mu   sync.RWMutex
	by   map[K]cached[V]
	// dropped counts what was taken out because it had changed.
	dropped uint64
}

type cached[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any](most int, keep time.Duration) *cache[K, V] {
	return &cache[K, V]{most: most, keep: keep, by: map[K]cached[V]{}}
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	got, ok := c.by[key]
	if !ok || time.Now().After(got.until) {
		return value, false
	}
	return got.value, true
}

func (c *cache[K, V]) put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, value)
}

// before is to be asked for before a value is read that putSince is to keep.
func (c *cache[K, V]) before() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.dropped
}

// putSince keeps a value unless something was dropped since before: the value may have
// been read before that change.
func (c *cache[K, V]) putSince(before uint64, key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped == before {
		c.putLocked(key, value)
	}
}

func (c *cache[K, V]) putLocked(key K, value V) {
	if len(c.by) >= c.most {
		clear(c.by)
	}
	c.by[key] = cached[V]{value, time.Now().Add(c.keep)}
}

func (c *cache[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped++
	delete(c.by, key)
}

func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped++
	clear(c.by)
}
