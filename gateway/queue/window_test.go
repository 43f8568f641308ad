package queue

import (
	"testing"
	"time"
)

// busy is a share in which some cost is out, and others wait or not.
type busy struct {
	out     int
	limited bool
}

func (b busy) Out() int      { return b.out }
func (b busy) Limited() bool { return b.limited }

// The window grows while something waits for room and the stream is empty, shrinks when work lies
// in the stream for longer than a device batch, and settles where the workers are busy and little
// waits, from above and from below.
func TestWindow(t *testing.T) {
	const batch, rate = 40 * time.Millisecond, 1 << 20 // bytes in a second
	for _, from := range []int{leastWindow, firstWindow, 64 << 20} {
		w := window{size: from}
		now := time.Now()
		lag := time.Duration(0)
		for range 2000 {
			// a worker has two batches in hand, and what is beyond waits in the stream
			inHand := int(2 * rate * batch / time.Second)
			lag = time.Duration(max(w.size-inHand, 0)) * time.Second / rate
			ran := 2 * batch
			if w.size < inHand {
				ran = batch
			}
			sent := now
			now = now.Add(lag + ran)
			w.answered(sent, lag, ran, batch, busy{w.size, true}, now)
			now = now.Add(batch)
			w.answered(now.Add(-1), lag, ran, batch, busy{w.size, true}, now)
		}
		if lag > 2*batch || w.size < int(rate*batch/time.Second) {
			t.Errorf("from %d: %d bytes, %v in the stream", from, w.size, lag)
		}
	}
}

// What was sent before the last change tells nothing, and without anybody who waits the window
// keeps its size.
func TestWindowWithoutNews(t *testing.T) {
	now := time.Now()
	w := window{size: 1000, changed: now}
	for range 100 {
		now = now.Add(time.Second)
		if w.answered(w.changed.Add(-1), time.Minute, 0, 0, busy{w.size, true}, now) {
			t.Fatal("old slices changed it")
		}
	}
	for range 100 {
		now = now.Add(time.Second)
		w.answered(now, 0, 0, 0, busy{w.size, false}, now)
	}
	if w.size != 1000 {
		t.Errorf("nobody waited, and it is %d", w.size)
	}
}
