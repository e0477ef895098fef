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
	if len(c.by) >= c.most {
		clear(c.by)
	}
	c.by[key] = cached[V]{value, time.Now().Add(c.keep)}
}

func (c *cache[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, key)
}

func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.by)
}
