package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rewatchEvery is how often a directory that disappeared is looked for.
const rewatchEvery = 5 * time.Second

// watchDirectory sends on the channel when a directory changes, until ctx ends. Several changes may
// count as one. It also sends once when the watch begins, because changes before that are not seen.
// A directory that was removed is watched again when it is back.
//
// The goroutine ends with ctx, or later if the file system does not answer.
func watchDirectory(ctx context.Context, dir string, log *slog.Logger) <-chan struct{} {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	go func() {
		watcher, err := fsnotify.NewWatcher()
		if err == nil {
			defer watcher.Close()
			err = watcher.Add(dir)
		}
		tell()
		if err != nil {
			log.Warn("changes of the models directory are not seen; send SIGHUP after one", "error", err)
		}
		if watcher == nil {
			return
		}
		again := time.NewTicker(rewatchEvery)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-watcher.Events:
				if !open {
					return
				}
				tell()
			case err := <-watcher.Errors: // events were lost
				log.Warn("watching the models directory", "error", err)
				tell()
			case <-again.C:
				// A directory that was removed is no longer watched, even when a new one has its
				// name.
				if !watches(watcher, dir) && watcher.Add(dir) == nil {
					tell()
				}
			}
		}
	}()
	return changed
}

// watches reports whether a directory is watched, under whatever name it was added: the watcher
// keeps clean names, and "models/" is "models".
func watches(w *fsnotify.Watcher, dir string) bool {
	return slices.Contains(w.WatchList(), filepath.Clean(dir))
}
