//go:build lockcheck

package lockorder

import (
	"strings"
	"testing"
)

// panics returns the text of f's panic, "" if there is none.
func panics(f func()) (said string) {
	defer func() {
		if p := recover(); p != nil {
			said = p.(string)
		}
	}()
	f()
	return ""
}

func TestTheOrderIsEnforced(t *testing.T) {
	var registry Mutex[Registry]
	var queue, other Mutex[Scheduler]
	want := func(f func(), parts ...string) {
		t.Helper()
		said := panics(f)
		if (said == "") != (len(parts) == 0) {
			t.Errorf("panics with %q, want %q", said, parts)
		}
		for _, part := range parts {
			if !strings.Contains(said, part) {
				t.Errorf("panics with %q, want %q", said, part)
			}
		}
	}
	want(func() { registry.Lock(); queue.Lock(); registry.Unlock(); queue.Unlock() })
	want(func() { AssertNoneHeld("nothing is held") })

	queue.Lock()
	want(registry.Lock, "registry.Registry.mu is taken while batch.Scheduler.mu is held")
	want(func() { registry.TryLock() }, "registry.Registry.mu is taken while batch.Scheduler.mu is held")
	want(other.Lock, "batch.Scheduler.mu is taken while batch.Scheduler.mu is held")
	want(queue.Lock, "batch.Scheduler.mu is taken while batch.Scheduler.mu is held")
	want(func() { AssertNoneHeld("packing") }, "batch.Scheduler.mu is held over work: packing")
	done := make(chan struct{})
	go func() { // locks of other goroutines do not count
		defer close(done)
		want(func() { registry.Lock(); registry.Unlock(); AssertNoneHeld("packing") })
		want(queue.Unlock, "unlocked by a goroutine that did not lock it")
		if queue.TryLock() {
			t.Error("locked twice")
		}
	}()
	<-done
	queue.Unlock()
	want(func() { registry.Lock(); registry.Unlock(); AssertNoneHeld("packing") })
	if !other.TryLock() {
		t.Error("a free lock was not to be had")
	}
	want(func() { AssertNoneHeld("packing") }, "batch.Scheduler.mu")
	other.Unlock()
	for i := range held {
		if n := len(held[i].by); n != 0 {
			t.Errorf("%d goroutines count as holding a lock", n)
		}
	}
}
