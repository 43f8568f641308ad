package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/runtime/model"
)

// runRig drives a reloader by hand: the test decides when files change and what a reading returns.
type runRig struct {
	*testing.T
	hup     chan os.Signal
	changed chan struct{}
	log     *testrig.Log
	read    func(ctx context.Context, before *catalog.Catalog) reading // of the test
	begun   int
	given   []*catalog.Catalog // to the worker
	free    []chan struct{}    // closed when the reloader is closed
}

func (r *runRig) SetCatalog(c *catalog.Catalog) (model.Changes, error) {
	r.given = append(r.given, c)
	return model.Changes{}, nil
}

func (r *runRig) SetBundleHash(string) {}

// runReloader calls test in a synctest bubble with a running reloader. Readings succeed unless the
// test changes that.
func runReloader(t *testing.T, test func(r *runRig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &runRig{T: t, hup: make(chan os.Signal, 1), changed: make(chan struct{}, 1), log: &testrig.Log{}}
		r.read = func(context.Context, *catalog.Catalog) reading { return succeed() }
		ctx, stop := context.WithCancel(context.Background())
		reload := &reloader{
			to:   r,
			hash: r,
			log:  slog.New(slog.NewTextHandler(r.log, nil)),
			stop: stop,
			read: func(ctx context.Context, before *catalog.Catalog) reading {
				r.begun++
				return r.read(ctx, before)
			},
		}
		reload.done.Go(func() { reload.run(ctx, &catalog.Catalog{}, r.hup, r.changed) })
		test(r)
		start := time.Now()
		reload.close()
		if took := time.Since(start); took != 0 {
			t.Errorf("closing took %v", took)
		}
		for _, c := range r.free { // the bubble waits for its goroutines, but close does not
			close(c)
		}
	})
}

func succeed() reading {
	c := &catalog.Catalog{}
	return reading{all: c, use: modelSelection{catalog: c}}
}

func (r *runRig) change() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
	synctest.Wait()
}

func (r *runRig) hangUp() {
	r.hup <- syscall.SIGHUP
	synctest.Wait()
}

// sleep lets time pass and waits for its effects.
func (r *runRig) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *runRig) want(begun, given int) {
	r.Helper()
	if r.begun != begun || len(r.given) != given {
		r.Errorf("%d readings began and %d catalogs were given, want %d and %d; log:\n%s",
			r.begun, len(r.given), begun, given, r.log)
	}
}

func (r *runRig) says(n int, text string) {
	r.Helper()
	if got := strings.Count(r.log.String(), text); got != n {
		r.Errorf("the log says %d times %q, want %d:\n%s", got, text, n, r.log)
	}
}

// Many writes in a row lead to one reading, a second after the last write.
func TestChangesAreGathered(t *testing.T) {
	runReloader(t, func(r *runRig) {
		r.sleep(time.Hour)
		r.want(0, 0)
		for range 5 {
			r.change()
			r.sleep(reloadPause - time.Millisecond)
		}
		r.want(0, 0)
		r.sleep(time.Millisecond)
		r.want(1, 1)
		r.sleep(time.Hour)
		r.want(1, 1)
		r.says(0, "does not answer")
	})
}

// A directory that is never quiet is still read, every maxPause.
func TestChangesWithoutEnd(t *testing.T) {
	runReloader(t, func(r *runRig) {
		for range 10 * int(maxPause/time.Second) * 2 {
			r.change()
			r.sleep(time.Second / 2)
		}
		if r.begun < 9 || r.begun > 11 {
			t.Errorf("%d readings in ten times %v", r.begun, maxPause)
		}
	})
}

// SIGHUP always leads to a log line; a change of files only if the models changed.
func TestHangUpIsAnswered(t *testing.T) {
	runReloader(t, func(r *runRig) {
		r.change()
		r.sleep(reloadPause)
		r.says(0, "models read again")
		r.hangUp()
		r.want(2, 2)
		r.says(1, "models read again")
		r.change()
		r.sleep(reloadPause)
		r.want(3, 3)
		r.says(1, "models read again")
	})
}

// Changes during a reading lead to one more reading after it.
func TestChangesDuringAReading(t *testing.T) {
	runReloader(t, func(r *runRig) {
		r.read = func(context.Context, *catalog.Catalog) reading { time.Sleep(time.Minute); return succeed() }
		r.hangUp()
		for range 3 {
			r.hangUp()
			r.change()
			r.sleep(reloadPause)
		}
		r.want(1, 0)
		r.sleep(time.Minute)
		r.want(2, 1)
		r.sleep(time.Hour)
		r.want(2, 2)
		r.says(2, "models read again")
	})
}

// Each reading gets the catalog of the last reading that succeeded, and its own time limit.
func TestReadingsFollowEachOther(t *testing.T) {
	runReloader(t, func(r *runRig) {
		var before []*catalog.Catalog
		r.read = func(ctx context.Context, b *catalog.Catalog) reading {
			before = append(before, b)
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != readTime {
				t.Errorf("a reading has until %v", end)
			}
			if len(before) == 2 {
				return reading{err: errors.New("the files are away")}
			}
			return succeed()
		}
		for range 4 {
			r.hangUp()
		}
		if len(before) != 4 || before[1] != r.given[0] || before[2] != r.given[0] || before[3] != r.given[1] {
			t.Errorf("readings began from %p, gave %p", before, r.given)
		}
		r.says(1, "the files are away")
	})
}

// A reading that never returns is given up and reported, and the next change is read. Once maxStuck
// readings are stuck, no more begin until one returns; its return is logged and leads to a reading.
// Shutting down waits for none.
func TestStuckReadings(t *testing.T) {
	free := make([]chan struct{}, maxStuck)
	runReloader(t, func(r *runRig) {
		for i := range free {
			free[i] = make(chan struct{})
			r.read = func(context.Context, *catalog.Catalog) reading { <-free[i]; return succeed() }
			r.change()
			r.sleep(reloadPause)
			r.want(i+1, i)
			r.sleep(giveUpTime - time.Nanosecond)
			r.says(i, "does not answer")
			r.sleep(time.Nanosecond)
			r.says(i+1, "does not answer")
			if i < maxStuck-1 { // the file system answers the next readings
				r.read = func(context.Context, *catalog.Catalog) reading { return succeed() }
				r.hangUp()
				r.begun--
				r.want(i+1, i+1)
			}
		}
		r.read = func(context.Context, *catalog.Catalog) reading { return succeed() }
		given := len(r.given)
		r.hangUp()
		r.says(1, "earlier readings are stuck")
		r.change()
		r.sleep(time.Hour)
		r.want(maxStuck, given)
		close(free[2])
		synctest.Wait()
		r.says(1, "has ended")
		r.want(maxStuck+1, given+1) // the new reading's catalog, not the old one's
		close(free[1])              // no reading is wanted, but its return leads to one
		synctest.Wait()
		r.says(2, "has ended")
		r.want(maxStuck+2, given+2)
		r.hangUp()
		r.want(maxStuck+3, given+3)
		r.free = append(free[:1:1], free[3:]...)
	})
}

// Shutting down does not wait for a running reading.
func TestCloseDuringAReading(t *testing.T) {
	runReloader(t, func(r *runRig) {
		free := make(chan struct{})
		r.read = func(context.Context, *catalog.Catalog) reading { <-free; return reading{} }
		r.hangUp()
		r.want(1, 0)
		r.free = append(r.free, free)
	})
}
