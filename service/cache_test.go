package service

import (
	"testing"
	"time"
)

// TestCacheKeepsNothingReadBeforeAChange is the order in which a revoked key could stay
// good for ten seconds: it is read, it is revoked, and then what was read is kept.
func TestCacheKeepsNothingReadBeforeAChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cache[string, int]){
		"clear": func(c *cache[string, int]) { c.clear() },
		"drop":  func(c *cache[string, int]) { c.drop("key") },
	} {
		c := newCache[string, int](10, time.Hour)
		before := c.before()
		change(c)
		c.putSince(before, "key", 1)
		if _, ok := c.get("key"); ok {
			t.Errorf("%s: a value read before the change is kept", name)
		}
		c.putSince(c.before(), "key", 2)
		if v, ok := c.get("key"); !ok || v != 2 {
			t.Errorf("%s: a value read after the change is not kept", name)
		}
	}
}
