package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFileSystemWithoutLocks: a cache there is filled and used, also by processes that cannot see
// each other's locks, and nothing is removed from it.
func TestFileSystemWithoutLocks(t *testing.T) {
	for _, refusal := range []unix.Errno{unix.ENOLCK, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL} {
		t.Run(refusal.Error(), func(t *testing.T) {
			d := newSmallDisk(t, 2*modelBytes+modelBytes/10)
			var log strings.Builder
			d.flock = func(int, int) error { return refusal }
			quiet := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
			for _, id := range []string{"t/a", "t/b"} {
				found, err := d.get(id, quiet)
				if err != nil {
					t.Fatal(err)
				}
				found.Release()
			}
			d.wantModels("a", "b") // the disk is above its threshold
			if n := strings.Count(log.String(), "has no locks"); n != 2 {
				t.Errorf("two resolvers warned %d times:\n%s", n, &log)
			}
			found, ok, err := d.small().Find(t.Context(), "t/a", "")
			if !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
			found.Release()
			if left, _ := filepath.Glob(
				filepath.Join(d.cache, "models--*", "*", "*.incomplete")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestHoldEndsOnAnyError: holdRepo does not wait for a lock that it can never take.
func TestHoldEndsOnAnyError(t *testing.T) {
	k := newLocks(slog.New(slog.DiscardHandler))
	k.flock = func(int, int) error { return unix.EIO }
	if held := k.holdRepo(context.Background(), t.TempDir(), "models--a"); held != nil {
		t.Error("a hold without a lock")
	}
	if _, err := k.take(context.Background(), filepath.Join(t.TempDir(), "x"),
		nil); ClassOf(err) != ClassStorage {
		t.Errorf("%v", err)
	}
	calls := 0
	k.flock = func(fd, how int) error {
		if calls++; calls < 3 {
			return unix.EINTR
		}
		return unix.Flock(fd, how)
	}
	held := k.holdRepo(context.Background(), t.TempDir(), "models--a")
	if held == nil {
		t.Error("an interrupted call was not made again")
	}
	held.release()
}

// TestLocksWithinAProcess: locks between goroutines work on a file system without locks.
func TestLocksWithinAProcess(t *testing.T) {
	k := newLocks(slog.New(slog.DiscardHandler))
	k.flock = func(int, int) error { return unix.ENOLCK }
	path := filepath.Join(t.TempDir(), "lock")
	var in, most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			release, err := k.take(t.Context(), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), in.Add(1)))
			time.Sleep(time.Millisecond)
			in.Add(-1)
			release()
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d held the lock at once", most.Load())
	}
	try := func(alone bool) *lock {
		t.Helper()
		f, err := openLock(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := k.try(f, alone)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a, b := try(false), try(false)
	if a == nil || b == nil || try(true) != nil {
		t.Error("shared locks exclude each other, or not a lone one")
	}
	a.release()
	if try(true) != nil {
		t.Error("taken alone while it is shared")
	}
	b.release()
	c := try(true)
	if c == nil || try(false) != nil || try(true) != nil {
		t.Error("a lone lock excludes nobody")
	}
	c.release()
	if d := try(true); d == nil {
		t.Error("released and not free")
	} else {
		d.release()
	}
}

// TestTwoProcessesWithoutLocks: each process has its own unfinished files. The files of the first
// to finish become visible. The remains of dead processes are removed after a day.
func TestTwoProcessesWithoutLocks(t *testing.T) {
	h := newHarness(t)
	cache := h.repo()
	k := newLocks(slog.New(slog.DiscardHandler))
	blob := cache.blob("x")
	if k.partial(blob) != blob+".incomplete" || k.processSuffix() != "" {
		t.Error("with locks an unfinished file is the next process's to go on with")
	}
	k.weak.Store(true)
	if p := k.partial(blob); p == blob+".incomplete" || !strings.HasSuffix(p, ".incomplete") {
		t.Errorf("without locks it is called %s", p)
	}
	names := []string{"config.json", "modules.json", "1_Pooling/config.json", "adapter_config.json"}
	var files []remoteFile
	for i, name := range names {
		hash := strings.Repeat(fmt.Sprint(i), 40)
		files = append(files, remoteFile{name: name, size: 2, hash: hash})
		if err := cache.write(cache.blob(hash), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	// The processes begin with an empty cache, or with a snapshot of another tool, and not all want
	// the same files.
	for round := range 100 {
		commit := fmt.Sprintf("%040x", round)
		if round%2 > 0 {
			if err := os.MkdirAll(cache.snapshot(commit), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		begin := make(chan struct{})
		var all sync.WaitGroup
		for i := range 4 {
			l := &listing{commit: commit, files: files}
			if i == 0 {
				l.files, l.part = files[3:], true
			}
			all.Go(func() {
				<-begin
				if err := cache.publish(l, fmt.Sprintf(".%d", i)); err != nil {
					t.Error(err)
				} else if missing := cache.missingFile(commit, sizes(l.files)); missing != "" {
					t.Errorf("process %d is done: %s", i, missing)
				}
			})
		}
		close(begin)
		all.Wait()
	}
	if left, _ := filepath.Glob(filepath.Join(cache.dir, ".sie", "*.tmp")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	late := cache.staging("late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	old, young := blob+".1.incomplete", blob+".2.incomplete"
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-abandoned - time.Minute)
	if err := errors.Join(os.Chtimes(old, before, before), os.Chtimes(late, before, before)); err != nil {
		t.Fatal(err)
	}
	cache.removeOld()
	if exists(old) || isDirectory(late) || !exists(young) {
		t.Errorf("old there: %v, %v, young there: %v", exists(old), isDirectory(late), exists(young))
	}
}
