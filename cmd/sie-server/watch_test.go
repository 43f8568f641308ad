package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/sie-engine/sie/internal/testrig"
)

// A directory that is watched is known as such under every name that a flag may have for it: else
// it is watched and read anew every few seconds. One that is gone is not.
func TestAWatchedDirectoryIsKnown(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"/models", "/models/", "//models", "/./models/."} {
		dir := top + name
		if err := os.Mkdir(filepath.Join(top, "models"), 0o755); err != nil {
			t.Fatal(err)
		}
		w, err := fsnotify.NewWatcher()
		if err != nil {
			t.Fatal(err)
		}
		if watches(w, dir) {
			t.Errorf("%s: it is watched from the start", name)
		}
		if err := w.Add(dir); err != nil {
			t.Fatal(err)
		}
		if !watches(w, dir) {
			t.Errorf("%s: it is watched as %q and not known", name, w.WatchList())
		}
		if err := os.Remove(filepath.Join(top, "models")); err != nil {
			t.Fatal(err)
		}
		testrig.Until(t, name+" is not watched any more", func() bool {
			select {
			case <-w.Events:
			default:
			}
			return !watches(w, dir)
		})
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
