package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/fsnotify/fsnotify"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/worker"
	"github.com/sie-engine/sie/weights/bucket"
)

const (
	// reloadPause is how long a models directory must be quiet before it is read: editors and copies write in steps.
	reloadPause = time.Second
	// rewatchEvery is how often a directory that went away is looked for.
	rewatchEvery = 5 * time.Second
)

// catalogSetter is the worker, as the reloader needs it.
type catalogSetter interface {
	SetCatalog(*catalog.Catalog) (worker.Changes, error)
}

// hashSetter is the server, as the reloader needs it.
type hashSetter interface{ SetBundleHash(hash string) }

// reloader reads the models directory again when its files change, and on SIGHUP; one in a bucket on SIGHUP only. Models
// are told apart by their ids, not by their files' names. A file that is broken is reported and its model stays as it was.
type reloader struct {
	flags *sourceFlags
	to    catalogSetter
	hash  hashSetter
	log   *slog.Logger
	all   *catalog.Catalog // of the files as they were last read
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// newReloader starts the reloader; close ends it. It does not fail: without a directory to watch there is SIGHUP.
// all is what the files said at the start.
func newReloader(flags *sourceFlags, all *catalog.Catalog, to catalogSetter, hash hashSetter, log *slog.Logger) *reloader {
	ctx, stop := context.WithCancel(context.Background())
	r := &reloader{flags: flags, all: all, to: to, hash: hash, log: log, stop: stop}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP) // before the first file is read, so that none is missed, and nobody is killed by it
	var changes <-chan fsnotify.Event
	var watcher *fsnotify.Watcher
	if dir := flags.ModelsDir; dir != "" && !bucket.IsURL(dir) {
		var err error
		if watcher, err = fsnotify.NewWatcher(); err == nil {
			err = watcher.Add(kong.ExpandPath(dir))
			changes = watcher.Events
		}
		if err != nil {
			log.Warn("changes of the models directory are not seen; send SIGHUP after one", "error", err)
		}
	}
	r.done.Go(func() {
		defer signal.Stop(hup)
		if watcher != nil {
			defer watcher.Close()
		}
		r.watch(ctx, hup, changes, watcher)
	})
	return r
}

func (r *reloader) close() {
	r.stop()
	r.done.Wait()
}

func (r *reloader) watch(ctx context.Context, hup <-chan os.Signal, changes <-chan fsnotify.Event, watcher *fsnotify.Watcher) {
	pause := time.NewTimer(reloadPause) // what changed between the start's reading and the watch is read, too
	defer pause.Stop()
	again := time.NewTicker(rewatchEvery)
	defer again.Stop()
	var failures <-chan error
	if watcher != nil {
		failures = watcher.Errors
	} else {
		pause.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			r.reload(ctx, true)
		case _, open := <-changes:
			if !open {
				changes = nil
				continue
			}
			pause.Reset(reloadPause)
		case err := <-failures: // events were lost: read everything
			r.log.Warn("watching the models directory", "error", err)
			pause.Reset(reloadPause)
		case <-pause.C:
			r.reload(ctx, false)
		case <-again.C:
			if watcher == nil {
				continue
			}
			// A directory that was removed is not watched any more, also when there is a new one of that name.
			dir := kong.ExpandPath(r.flags.ModelsDir)
			if !slices.Contains(watcher.WatchList(), dir) && watcher.Add(dir) == nil {
				pause.Reset(reloadPause)
			}
		}
	}
}

// reload reads the files and gives the worker the new catalog. asked: somebody waits for a line about it.
func (r *reloader) reload(ctx context.Context, asked bool) {
	all, broken, err := r.read(ctx)
	if err != nil {
		r.log.Error("the models were not read again; those of before stay", "error", err)
		return
	}
	if broken != nil {
		r.log.Error("broken model files; their models stay as they were", "problems", broken.Error())
	}
	c, bundle, err := r.flags.narrow(all)
	if err != nil {
		r.log.Error("the models were not changed", "error", err)
		return
	}
	did, err := r.to.SetCatalog(c)
	if err != nil {
		r.log.Error("the models were not changed", "error", err)
		return
	}
	r.all = all
	if bundle != nil {
		r.hash.SetBundleHash(c.BundleConfigHash(bundle))
	}
	if asked || !did.None() {
		r.log.Info("models read again", "added", did.Added, "changed", did.Changed, "removed", did.Removed, "models", c.Len())
	}
}

// read reads all model files, the broken ones as they were.
func (r *reloader) read(ctx context.Context) (all *catalog.Catalog, broken *catalog.Problems, err error) {
	switch dir := r.flags.ModelsDir; {
	case dir == "":
		all, err = catalog.Builtin()
	case bucket.IsURL(dir):
		err = withBucketFiles(ctx, dir, func(dir string) (err error) {
			all, broken, err = catalog.ReloadDir(dir, r.all)
			return err
		})
	default:
		all, broken, err = catalog.ReloadDir(kong.ExpandPath(dir), r.all)
	}
	return all, broken, err
}
