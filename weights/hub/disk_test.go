package hub

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// smallDisk is a cache on its own imitated disk. The used space is the size of the cache's blobs.
type smallDisk struct {
	*harness
	total int64

	patience time.Duration // 0: the default
	flock    func(fd, how int) error
}

// A test model takes slightly more than modelBytes.
const modelBytes = 100_000

func newSmallDisk(t *testing.T, total int64) *smallDisk {
	return &smallDisk{harness: newHarness(t), total: total}
}

func (d *smallDisk) space(dir string) (free, total int64, ok bool) {
	var used int64
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.Contains(path, "/blobs/") {
			if info, err := e.Info(); err == nil {
				used += info.Size()
			}
		}
		return nil
	})
	return max(0, d.total-used), d.total, true
}

func (d *smallDisk) get(id string, change ...func(*Options)) (Resolved, error) {
	d.Helper()
	return d.getIn(context.Background(), id, change...)
}

func (d *smallDisk) getIn(ctx context.Context, id string, change ...func(*Options)) (Resolved, error) {
	d.Helper()
	files := modelFiles()
	copy(files["model.safetensors"], id) // each model has its own contents
	d.hub.Add(id, files)
	return d.small(change...).Resolve(ctx, id, "")
}

// small returns a resolver that sees the small disk.
func (d *smallDisk) small(change ...func(*Options)) *Resolver {
	d.Helper()
	r := d.resolver(append([]func(*Options){func(o *Options) { o.DiskThreshold = 0.85 }}, change...)...)
	if d.flock != nil {
		r.locks.flock = d.flock
	}
	for _, s := range r.sources {
		if s, ok := s.(*hubSource); ok {
			s.disk.space = d.space
			if d.patience != 0 {
				s.disk.userWait = d.patience
			}
		}
	}
	return r
}

func (d *smallDisk) use(id string) {
	d.Helper()
	found, err := d.get(id)
	if err != nil {
		d.Fatal(err)
	}
	found.Release()
	time.Sleep(5 * time.Millisecond) // the next use is later
}

func (d *smallDisk) wantModels(want ...string) {
	d.Helper()
	var got []string
	dirs, _ := filepath.Glob(filepath.Join(d.cache, "models--*"))
	for _, dir := range dirs {
		got = append(got, strings.TrimPrefix(filepath.Base(dir), "models--t--"))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.Errorf("on disk %q, want %q", got, want)
	}
	if left, _ := os.ReadDir(filepath.Join(d.cache, trash)); len(left) > 0 {
		d.Errorf("trash holds %v", left)
	}
}

func TestLeastRecentlyUsedLeavesTheDisk(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes) // 85 % of it holds three
	d.use("t/a")
	d.use("t/b")
	d.use("t/c")
	d.wantModels("a", "b", "c")
	d.use("t/a")
	d.use("t/d")
	d.wantModels("a", "c", "d")
	d.use("t/b") // can be downloaded again
	d.wantModels("a", "b", "d")
}

func TestCachedModelsRemoveNothing(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		d.use(id)
	}
	d.total = 2 * modelBytes // another program has filled the disk
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		d.use(id)
	}
	d.wantModels("a", "b", "c")
}

func TestAccessTimesDecideNothing(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		d.use(id)
	}
	// Another program reads a's files, and a backup has set their times.
	later := time.Now().Add(time.Hour)
	filepath.WalkDir(filepath.Join(d.cache, "models--t--a", "blobs"),
		func(path string, e fs.DirEntry, err error) error {
			os.ReadFile(path)
			return os.Chtimes(path, later, later)
		})
	d.use("t/d")
	d.wantModels("b", "c", "d")
}

func TestInUseStays(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	held, err := d.get("t/a")
	if err != nil {
		t.Fatal(err)
	}
	d.use("t/b")
	d.use("t/c")
	d.use("t/d")
	d.wantModels("a", "c", "d")
	held.Release()
	held.Release()
	d.use("t/e") // removes c, because a was in use until its release
	d.wantModels("a", "d", "e")
}

func TestInUseByAnotherProcessStays(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	d.use("t/a")
	_, lines, stdin := d.holder("t/a")
	d.use("t/b")
	d.use("t/c")
	d.use("t/d")
	d.wantModels("a", "c", "d")
	stdin.Close()
	for lines.Scan() {
	}
	d.use("t/e")
	d.use("t/f")
	d.wantModels("a", "e", "f") // the end of the process was a's last use
	// A killed process releases its model too.
	kill, _, _ := d.holder("t/a")
	kill()
	d.use("t/e")
	d.use("t/f")
	d.use("t/g")
	d.wantModels("e", "f", "g")
}

// holder starts another process that uses a model until its standard input ends.
func (d *smallDisk) holder(id string) (kill func(), lines *bufio.Scanner, stdin io.Closer) {
	d.Helper()
	cmd, lines, in := d.processWithInput("SIE_TEST_RESOLVE="+id, "SIE_TEST_HOLD=1")
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "found") &&
		!strings.HasPrefix(lines.Text(), "error") {
	}
	if lines.Text() != "found cache" {
		d.Errorf("the other process says %q", lines.Text())
	}
	return func() { cmd.Process.Kill(); cmd.Wait() }, lines, in
}

// TestModelsOfOtherProgramsStay: the server does not remove models that a Python program
// downloaded, even after using them.
func TestModelsOfOtherProgramsStay(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	d.use("t/python")
	repo := filepath.Join(d.cache, "models--t--python")
	if err := os.RemoveAll(filepath.Join(repo, ".sie")); err != nil {
		t.Fatal(err)
	}
	d.use("t/python")
	// A model that this server downloaded, and to which a Python program added a revision.
	d.use("t/both")
	if err := os.MkdirAll(filepath.Join(d.cache, "models--t--both", "snapshots", strings.Repeat("a", 40)),
		0o755); err != nil {
		t.Fatal(err)
	}
	d.use("t/a")
	d.use("t/b")
	d.wantModels("b", "both", "python")
}

// TestLockedByPythonStays: a blob's lock, which the Python tools hold during a download, protects
// the model.
func TestLockedByPythonStays(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	d.use("t/a")
	d.use("t/b")
	d.use("t/c")
	release, err := newLocks(slog.Default()).take(t.Context(),
		filepath.Join(d.cache, ".locks", "models--t--a", strings.Repeat("b", 40)+".lock"), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.use("t/d")
	d.wantModels("a", "c", "d")
	release()
	d.use("t/e")
	d.wantModels("c", "d", "e")
}

func TestNoRemovalWithoutThreshold(t *testing.T) {
	d := newSmallDisk(t, 100*modelBytes)
	d.total = 3*modelBytes + modelBytes/2
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		if _, err := d.get(id, func(o *Options) { o.DiskThreshold = 0 }); err != nil {
			t.Fatal(err)
		}
	}
	_, err := d.get("t/d", func(o *Options) { o.DiskThreshold = 0 })
	wantClass(t, err, ClassStorage, "free space")
	d.wantModels("a", "b", "c", "d") // d's folder holds nothing yet
}

// TestTooFullForAll removes all it can and reports how much room is missing.
func TestTooFullForAll(t *testing.T) {
	d := newSmallDisk(t, modelBytes/2)
	_, err := d.get("t/a")
	wantClass(t, err, ClassStorage, "MiB more")
}

// TestRemovalLeavesAValidCache: the remaining files are as the Python tools expect, and the next
// removal completes one that was killed.
func TestRemovalLeavesAValidCache(t *testing.T) {
	d := newSmallDisk(t, 4*modelBytes)
	for _, id := range []string{"t/a", "t/b", "t/c"} {
		d.use(id)
	}
	bin := filepath.Join(d.cache, trash, "models--t--x-LEFT")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	d.use("t/d")
	d.wantModels("b", "c", "d")
	entries, err := os.ReadDir(d.cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".locks" && !strings.HasPrefix(e.Name(), "models--") {
			t.Errorf("the cache holds %s", e.Name())
		}
	}
}

// TestRemovalsAndDownloadsTogether lets many goroutines download and use models on a disk that
// holds three of them. Each sees complete files for as long as it holds them.
func TestRemovalsAndDownloadsTogether(t *testing.T) {
	d := newSmallDisk(t, 5*modelBytes)
	done := make(chan error)
	for worker := range 3 {
		go func() {
			for i := range 6 {
				id := fmt.Sprintf("t/m%d", (worker*2+i)%6)
				found, err := d.get(id)
				if err != nil {
					done <- err
					return
				}
				time.Sleep(time.Millisecond)
				data, err := os.ReadFile(filepath.Join(found.Dir, "model.safetensors"))
				if err != nil || !strings.HasPrefix(string(data), id) {
					done <- fmt.Errorf("%s: %d bytes, %w", id, len(data), err)
					return
				}
				found.Release()
			}
			done <- nil
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
