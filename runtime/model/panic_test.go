package model

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sie-engine/sie/runtime/arch"
)

// A panic while a program is recorded, which ends its request and not the server, ends those that
// wait for the program too, and the next request records it again.
func TestPanicWhileRecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, recordings := make(chan struct{}), 0
		l := &Model{weights: &arch.Model{Task: arch.Classify},
			host: &Host{records: func() { recordings++; <-open; panic("planted") }}}
		l.variants.Store(&variants{})
		ask := func() (err error, panicked bool) {
			defer func() { panicked = recover() != nil }()
			_, err = l.Variant(arch.Want{Give: arch.Give(arch.OutLogits)})
			return err, false
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, panicked := ask(); !panicked {
				t.Error("the first did not panic")
			}
		})
		synctest.Wait() // it records
		all.Go(func() {
			if err, panicked := ask(); panicked || !errors.Is(err, errNotRecorded) {
				t.Errorf("one that waited: %v, panicked %v", err, panicked)
			}
		})
		synctest.Wait() // it waits
		close(open)
		all.Wait()
		if _, panicked := ask(); !panicked || recordings != 2 {
			t.Errorf("the next did not record: %d recordings", recordings)
		}
	})
}
