package hub

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/internal/lockorder"
)

// Room on the disk is reserved from the moment it is found free to the last byte of a download, in
// this process and in all others that share the cache: a reservation is a file in roomDir that
// holds the bytes still to come and whose lock its download holds. One without a holder is of a
// process that died, and is deleted by the next who looks.

// roomDir is where reservations lie. Tools that look through the cache skip .locks.
const roomDir = ".locks/.sie-room"

// defaultPatience is how long a download waits for models that are in use to be released.
const defaultPatience = 5 * time.Minute

// roomNeed is what a download needs of the disk.
type roomNeed struct {
	bytes  int64
	folder string // its own repository
	modest bool   // no more is removed for it than it takes, however full the disk is
}

// reservation is room on the disk that nobody else counts on. A nil one is none. Safe for
// concurrent use.
type reservation struct {
	mu   lockorder.Mutex[lockorder.Room] // guards left and the file's content
	left int64
	lock *lock
	path string
}

// wrote notes that n bytes of what was reserved are on the disk now; n < 0: that they were thrown
// away.
func (r *reservation) wrote(n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left -= n
	_ = r.note() // an old figure is too large and makes others wait longer, no more
}

// note writes what is left into the file, in one write of a fixed length. The caller holds mu.
func (r *reservation) note() error {
	_, err := r.lock.file.WriteAt(fmt.Appendf(nil, "%020d\n", max(0, r.left)), 0)
	return err
}

func (r *reservation) release() {
	if r == nil {
		return
	}
	_ = os.Remove(r.path)
	r.lock.release()
}

// reserve removes repositories until the disk with need on it is below the threshold, or nothing
// more can go, and keeps the room for the caller until release. Without room it waits, after
// calling waiting once: for other downloads as long as there are any, for models in use as long as
// d.patience. It fails at once when not even the removal of every model would do.
func (d disk) reserve(ctx context.Context, need roomNeed, waiting func()) (*reservation, error) {
	if need.bytes <= 0 {
		return nil, nil
	}
	var alone time.Time // since when no other download runs
	lockorder.None("waiting for room on the disk")
	wait := 10 * time.Millisecond
	for first := true; ; first = false {
		a, err := d.attempt(ctx, need)
		if a.got != nil || err != nil {
			return a.got, err
		}
		switch {
		case a.downloads > 0:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		}
		if a.never || a.downloads == 0 && time.Since(alone) >= d.patience {
			return nil, fail(ClassStorage, nil, "needs %d MiB more on the disk of %s, which has %d MiB free%s: free space, or point SIE_LOCAL_CACHE to a larger disk",
				(need.bytes>>20)+1, d.dir, a.free>>20, a.why)
		}
		if first && waiting != nil {
			waiting()
		}
		if sleep(ctx, wait) != nil {
			return nil, contextError(ctx)
		}
		wait = min(2*wait, 500*time.Millisecond)
	}
}

// attempt is what became of one try to reserve.
type attempt struct {
	got       *reservation
	downloads int // reservations of others
	free      int64
	never     bool   // waiting does not help
	why       string // it does not, or has not, for people
}

// attempt tries to reserve once. One process at a time does, so that two do not count on, or remove
// for, the same room.
func (d disk) attempt(ctx context.Context, need roomNeed) (a attempt, err error) {
	release, err := d.locks.take(ctx, filepath.Join(d.dir, ".locks", "sie-evict.lock"), nil)
	if err != nil {
		return a, err
	}
	defer release()
	reserved, downloads, err := d.reserved()
	if err != nil {
		return a, storageError(err, "read the cache's reservations")
	}
	a.downloads = downloads
	before, _, _ := d.space(d.dir)
	over := func() bool {
		free, total, ok := d.space(d.dir)
		return d.threshold > 0 && ok && total > 0 && float64(total-free+reserved+need.bytes) > d.threshold*float64(total) &&
			(!need.modest || free-reserved < need.bytes || free-before < need.bytes)
	}
	stuck, err := d.relieve(ctx, need.folder, over)
	if err != nil {
		return a, err
	}
	free, _, ok := d.space(d.dir)
	if a.free = free; !ok || free-reserved >= need.bytes {
		if over() {
			d.log.Warn("model cache: the disk stays fuller than wanted; nothing more can be removed", "dir", d.dir,
				"threshold_percent", 100*d.threshold)
		}
		a.got, err = d.keep(need.bytes)
		return a, err
	}
	var held int64 // by what may be removed once nobody uses it
	inUse := 0
	if d.removes() {
		for _, c := range d.candidates(need.folder) {
			if !stuck[c.folder] {
				held += d.size(c)
				inUse++
			}
		}
	}
	switch a.never = free+held < need.bytes; {
	case !a.never && inUse > 0:
		a.why = fmt.Sprintf(" beside the %d models that are in use", inUse)
	case reserved > 0:
		a.why = fmt.Sprintf(", of which %d MiB are reserved by other downloads", reserved>>20)
	}
	return a, nil
}

// keep writes a reservation. The caller holds the lock of removals.
func (d disk) keep(bytes int64) (*reservation, error) {
	path := filepath.Join(d.dir, roomDir, rand.Text())
	f, err := openLock(path)
	if err != nil {
		return nil, storageError(err, "reserve room on the disk")
	}
	r := &reservation{path: path, left: bytes}
	if r.lock, err = d.locks.try(f, true); r.lock == nil {
		f.Close()
		return nil, storageError(err, "reserve room on the disk")
	}
	if err := r.note(); err != nil {
		r.release()
		return nil, storageError(err, "reserve room on the disk")
	}
	return r, nil
}

// reserved adds up the reservations of running downloads, and deletes those of dead ones. The
// caller holds the lock of removals.
func (d disk) reserved() (bytes int64, downloads int, err error) {
	entries, err := os.ReadDir(filepath.Join(d.dir, roomDir))
	if os.IsNotExist(err) {
		return 0, 0, nil
	}
	for _, e := range entries {
		path := filepath.Join(d.dir, roomDir, e.Name())
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // released just now
		}
		held, err := d.locks.try(f, false)
		if held != nil { // nobody's any more
			_ = os.Remove(path)
			held.release()
			continue
		}
		f.Close()
		if err != nil {
			return 0, 0, err
		}
		raw, err := files.Read(path, 64)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
		if err == nil && n >= 0 {
			bytes += n
		}
		downloads++
	}
	return bytes, downloads, err
}
