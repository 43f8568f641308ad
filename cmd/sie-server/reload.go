package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/model"
	"github.com/sie-engine/sie/weights/bucket"
)

const (
	// reloadPause is how long a models directory must be quiet before it is read, because editors
	// and copies write in steps.
	reloadPause = time.Second
	// maxPause is how long after a change a directory is read even if it is never quiet.
	maxPause = 15 * time.Second
	// readTime bounds one reading of the model files. A reading in a file system that does not
	// answer cannot be stopped, only given up.
	readTime = 2 * time.Minute
	// giveUpTime is when a reading is given up. A reading that can be stopped has ended by then.
	giveUpTime = readTime + 30*time.Second
	// maxStuck bounds the readings that were given up and have not returned. Each of them holds a
	// thread.
	maxStuck = 4
)

// catalogSetter is the part of the worker that the reloader needs.
type catalogSetter interface {
	SetCatalog(*catalog.Catalog) (model.Changes, error)
}

// hashSetter is the part of the server that the reloader needs.
type hashSetter interface{ SetBundleHash(hash string) }

// reloader reads the models directory again when its files change and on SIGHUP. A directory in a
// bucket is read again on SIGHUP only. Models are told apart by their ids, not by the names of
// their files. A broken file is reported, and its model stays as it was.
//
// Each reading has its own goroutine, so that a file system that does not answer delays neither the
// next reading nor close. One reading runs at a time. Changes and signals that arrive meanwhile
// lead to one more reading.
type reloader struct {
	read func(ctx context.Context, before *catalog.Catalog) reading // may never return
	to   catalogSetter
	hash hashSetter
	log  *slog.Logger
	stop context.CancelFunc
	done sync.WaitGroup
}

// reading is the result of reading all model files.
type reading struct {
	number int              // number of this reading, from 1
	all    *catalog.Catalog // of the files
	use    modelSelection   // what the flags select of all
	broken *catalog.Problems
	err    error // set if there is no catalog
}

// newReloader starts the reloader; close ends it. It cannot fail: without a directory to watch,
// SIGHUP still works. all is the content of the files at the start.
func newReloader(
	flags *sourceFlags, all *catalog.Catalog, to catalogSetter, hash hashSetter, log *slog.Logger,
) *reloader {
	ctx, stop := context.WithCancel(context.Background())
	r := &reloader{read: flags.readAgain, to: to, hash: hash, log: log, stop: stop}
	hup := make(chan os.Signal, 1)
	// before the first reading: no signal is missed, and none kills the process
	signal.Notify(hup, syscall.SIGHUP)
	var changed <-chan struct{}
	if dir := flags.ModelsDir; dir != "" && !bucket.IsURL(dir) {
		changed = watchDirectory(ctx, kong.ExpandPath(dir), log)
	}
	r.done.Go(func() {
		defer signal.Stop(hup)
		r.run(ctx, all, hup, changed)
	})
	return r
}

// close ends the reloader. It does not wait for a reading: a running one ends by itself or with the
// process.
func (r *reloader) close() {
	r.stop()
	r.done.Wait()
}

// run decides when the files are read, until ctx ends. all is what they contained last.
func (r *reloader) run(
	ctx context.Context, all *catalog.Catalog, hup <-chan os.Signal, changed <-chan struct{},
) {
	results := make(chan reading)
	pause, late := time.NewTimer(reloadPause), time.NewTimer(giveUpTime)
	defer pause.Stop()
	defer late.Stop()
	pause.Stop()
	late.Stop()
	var (
		// when the first change came that no reading has begun for; zero: there is none
		since time.Time
		// begun counts readings; running is the number of the one that runs, 0: none
		begun, running  int
		stuck           int  // readings given up that have not returned
		wanted          bool // a reading shall begin
		asked, answered bool // SIGHUP asked for a log line about the next reading; about the running one
	)
	for {
		if wanted && running == 0 && stuck < maxStuck {
			begun++
			running, answered, wanted, asked = begun, asked, false, false
			r.begin(ctx, running, all, results)
			late.Reset(giveUpTime)
		}
		select {
		case <-ctx.Done():
			return
		case <-hup:
			wanted, asked = true, true
			if running == 0 && stuck == maxStuck {
				r.log.Error(
					"the models are not read: earlier readings are stuck; see to the file system of the models directory",
					"stuck", stuck)
			}
		case <-changed:
			if since.IsZero() {
				since = time.Now()
			}
			pause.Reset(min(reloadPause, max(0, time.Until(since.Add(maxPause)))))
		case <-pause.C:
			since, wanted = time.Time{}, true
		case got := <-results:
			if got.number != running {
				stuck--
				wanted = true // what it read is out of date
				r.log.Info("a reading of the models that was given up has ended; they are read again",
					"stuck", stuck)
				continue
			}
			running = 0
			late.Stop()
			if r.apply(got, answered) {
				all = got.all
			}
		case <-late.C:
			running = 0
			stuck++
			r.log.Error(
				"the models were not read again: the file system of the models directory does not answer; those of before stay",
				"waited", giveUpTime.String(), "stuck", stuck, "stuck_at_most", maxStuck)
		}
	}
}

// begin starts a reading and sends its result to results.
func (r *reloader) begin(ctx context.Context, number int, before *catalog.Catalog, results chan<- reading) {
	go func() { // ends with the reading, which close does not wait for
		limited, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		got := r.read(limited, before)
		got.number = number
		select {
		case results <- got:
		case <-ctx.Done():
		}
	}()
}

// apply gives the worker the new catalog and reports whether it took it. Errors are logged. asked
// logs a line even if nothing changed.
func (r *reloader) apply(got reading, asked bool) bool {
	if got.err != nil {
		r.log.Error("the models were not read again; those of before stay", "error", got.err)
		return false
	}
	if got.broken != nil {
		r.log.Error("broken model files; their models stay as they were", "problems", got.broken.Error())
	}
	did, err := r.to.SetCatalog(got.use.catalog)
	if err != nil {
		r.log.Error("the models were not changed", "error", err)
		return false
	}
	if got.use.bundle != nil {
		r.hash.SetBundleHash(got.use.hash)
	}
	if asked || !did.None() {
		r.log.Info("models read again", "added", did.Added, "changed", did.Changed, "removed", did.Removed,
			"models", got.use.catalog.Len())
	}
	return true
}

// readAgain reads all model files and keeps what the flags ask for. A broken file counts as it was
// before.
func (f *sourceFlags) readAgain(ctx context.Context, before *catalog.Catalog) (got reading) {
	switch dir := f.ModelsDir; {
	case dir == "":
		got.all, got.err = catalog.Builtin()
	case bucket.IsURL(dir):
		got.err = withBucketFiles(ctx, dir, func(dir string) (err error) {
			got.all, got.broken, err = catalog.ReloadDir(dir, before)
			return err
		})
	default:
		got.all, got.broken, got.err = catalog.ReloadDir(kong.ExpandPath(dir), before)
	}
	if got.err == nil {
		got.use, got.err = f.narrow(ctx, got.all)
	}
	return got
}
