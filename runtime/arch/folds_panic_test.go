package arch

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sie-engine/sie/runtime/fold"
)

// A panic while tables are made, which ends its request and not the server, ends those that wait
// for the tables too, and the next request makes them again.
func TestPanicWhileTablesAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f folds
		open, made := make(chan struct{}), 0
		ask := func() (err error, panicked bool) {
			defer func() { panicked = recover() != nil }()
			_, err = f.get(fold.SMVE{}, func(*foldTables) { made++; <-open; panic("planted") })
			return err, false
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, panicked := ask(); !panicked {
				t.Error("the first did not panic")
			}
		})
		synctest.Wait() // it makes them
		all.Go(func() {
			if err, panicked := ask(); panicked || !errors.Is(err, errNotMade) {
				t.Errorf("one that waited: %v, panicked %v", err, panicked)
			}
		})
		synctest.Wait() // it waits
		close(open)
		all.Wait()
		if _, panicked := ask(); !panicked || made != 2 {
			t.Errorf("the next made none: %d times in all", made)
		}
		if _, err := f.get(fold.SMVE{}, func(m *foldTables) { m.packer = &packer{bytes: 3} }); err != nil ||
			f.bytes.Load() != 3 {
			t.Errorf("%d bytes: %v", f.bytes.Load(), err)
		}
	})
}
