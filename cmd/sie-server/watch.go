package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// rewatchEvery is how often a directory that went away is looked for.
const rewatchEvery = 5 * time.Second

// watchDirectory tells of changes in a directory, several of them perhaps as one, until ctx ends.
// The first is told when the watch begins: what changed before is not seen. A directory that was
// removed and is there again is watched again.
//
// The goroutine ends with ctx, or later where the file system does not answer.
func watchDirectory(ctx context.Context, dir string, log *slog.Logger) <-chan struct{} {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // it is told already
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
				// A directory that was removed is not watched any more, also when there is a new
				// one of that name.
				if !slices.Contains(watcher.WatchList(), dir) && watcher.Add(dir) == nil {
					tell()
				}
			}
		}
	}()
	return changed
}
