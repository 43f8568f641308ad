package hub

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// heldDisk is a disk with one model that stays in use, of which free bytes are free. size is what
// the model takes.
func heldDisk(t *testing.T, free *int64) (d disk, size int64) {
	small := newSmallDisk(t, 10*modelBytes)
	held, err := small.get("t/held")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	d = disk{
		dir:       small.cache,
		locks:     newLocks(nil),
		threshold: 0.85,
		log:       slog.New(slog.DiscardHandler),
		userWait:  time.Minute,
		space:     func(string) (int64, int64, bool) { return *free, 10 * modelBytes, true },
	}
	found := d.candidates("")
	if len(found) != 1 {
		t.Fatalf("%d models may be removed once nobody uses them, want one", len(found))
	}
	return d, d.size(found[0])
}

// TestExactlyEnoughRoomIsWaitedFor: what fits to the byte once a model in use is gone is waited
// for; one byte more fails at once.
func TestExactlyEnoughRoomIsWaitedFor(t *testing.T) {
	free := int64(1000)
	d, size := heldDisk(t, &free)
	if a, err := d.tryReserve(t.Context(), spaceNeed{bytes: free + size}); err != nil ||
		a.got != nil || a.never {
		t.Errorf("what just fits beside a model in use: %+v, %v", a, err)
	}
	if a, err := d.tryReserve(t.Context(), spaceNeed{bytes: free + size + 1}); err != nil ||
		a.got != nil || !a.never {
		t.Errorf("a byte more than there can be: %+v, %v", a, err)
	}
}

// TestUserWaitBeginsAfterTheLastDownload: the time that a download waits for models in use begins
// when no other download runs, also where it has waited for such a one before.
func TestUserWaitBeginsAfterTheLastDownload(t *testing.T) {
	free := int64(modelBytes)
	d, _ := heldDisk(t, &free)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		first, err := d.reserve(t.Context(), spaceNeed{bytes: modelBytes}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan time.Duration)
		go func() {
			_, err := d.reserve(t.Context(), spaceNeed{bytes: modelBytes + 1}, nil)
			if err == nil {
				t.Error("there was no room")
			}
			done <- time.Since(start)
		}()
		time.Sleep(d.userWait / 2) // beside a download
		first.release()
		time.Sleep(d.userWait / 2) // alone
		second, err := d.reserve(t.Context(), spaceNeed{bytes: modelBytes}, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d.userWait) // beside another one
		second.release()
		if took := <-done; took < 3*d.userWait || took > 3*d.userWait+time.Second {
			t.Errorf("it gave up after %v, %v after the last download ended; want %v",
				took, took-2*d.userWait, d.userWait)
		}
	})
}
