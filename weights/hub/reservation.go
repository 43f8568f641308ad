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

// Room on the disk is reserved from the moment it is found free to the last byte of a download. All
// processes that share the cache see the reservation. It is a file in reservationDir that holds the
// number of bytes still to come, and its download holds the file's lock. A reservation without a
// holder belongs to a dead process; the next process that looks deletes it.

// reservationDir is the directory of the reservations. Tools that search the cache skip .locks.
const reservationDir = ".locks/.sie-room"

// defaultUserWait is how long a download waits for the release of models in use.
const defaultUserWait = 5 * time.Minute

// spaceNeed is the disk space that a download needs.
type spaceNeed struct {
	bytes  int64
	folder string // its own repository
	// removal stops once the download fits and bytes have been freed, even above the threshold
	untilFits bool
}

// reservation is room on the disk for one download only. A nil reservation holds none. It is safe
// for concurrent use.
type reservation struct {
	mu   lockorder.Mutex[lockorder.Reservation] // guards left and the file's content
	left int64
	lock *lock
	path string
}

// wrote records that n reserved bytes are now on the disk, or for n < 0 that they were discarded.
func (r *reservation) wrote(n int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left -= n
	_ = r.note() // an old number is too large, which only makes others wait longer
}

// note writes the bytes left into the file, in one write of a fixed length. The caller holds mu.
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

// reserve makes room for a download and keeps it until release. It removes repositories until the
// disk, with need.bytes added, is below the threshold or no more can be removed. Without room it
// waits, after calling waiting once: for other downloads without limit, for models in use up to
// d.patience. It fails at once when removing every model would not be enough.
func (d disk) reserve(ctx context.Context, need spaceNeed, waiting func()) (*reservation, error) {
	if need.bytes <= 0 {
		return nil, nil
	}
	var alone time.Time // start of the time without other downloads
	lockorder.AssertNoneHeld("waiting for room on the disk")
	wait := 10 * time.Millisecond
	for first := true; ; first = false {
		a, err := d.tryReserve(ctx, need)
		if a.got != nil || err != nil {
			return a.got, err
		}
		switch {
		case a.downloads > 0:
			alone = time.Time{}
		case alone.IsZero():
			alone = time.Now()
		}
		if a.never || a.downloads == 0 && time.Since(alone) >= d.userWait {
			return nil, fail(ClassStorage, nil,
				"needs %d MiB more on the disk of %s, which has %d MiB free%s: free space, or point SIE_LOCAL_CACHE to a larger disk",
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

// reserveResult is the result of one try to reserve.
type reserveResult struct {
	got       *reservation
	downloads int // reservations of other downloads
	free      int64
	never     bool   // waiting does not help
	why       string // the reason for too little room, for people
}

// tryReserve tries to reserve once. Only one process at a time may try, so that two downloads do
// not count on the same room or remove models for it.
func (d disk) tryReserve(ctx context.Context, need spaceNeed) (a reserveResult, err error) {
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
		return d.threshold > 0 && ok && total > 0 &&
			float64(total-free+reserved+need.bytes) > d.threshold*float64(total) &&
			(!need.untilFits || free-reserved < need.bytes || free-before < need.bytes)
	}
	stuck, err := d.freeSpace(ctx, need.folder, over)
	if err != nil {
		return a, err
	}
	free, _, ok := d.space(d.dir)
	if a.free = free; !ok || free-reserved >= need.bytes {
		if over() {
			d.log.Warn("model cache: the disk stays fuller than wanted; nothing more can be removed",
				"dir", d.dir, "threshold_percent", 100*d.threshold)
		}
		a.got, err = d.writeReservation(need.bytes)
		return a, err
	}
	var held int64 // by repositories that may be removed once they are not in use
	inUse := 0
	if d.canRemove() {
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

// writeReservation writes a reservation. The caller holds the lock of removals.
func (d disk) writeReservation(bytes int64) (*reservation, error) {
	path := filepath.Join(d.dir, reservationDir, rand.Text())
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

// reserved adds up the reservations of running downloads and deletes those of dead ones. The caller
// holds the lock of removals.
func (d disk) reserved() (bytes int64, downloads int, err error) {
	entries, err := os.ReadDir(filepath.Join(d.dir, reservationDir))
	if os.IsNotExist(err) {
		return 0, 0, nil
	}
	for _, e := range entries {
		path := filepath.Join(d.dir, reservationDir, e.Name())
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // released just now
		}
		held, err := d.locks.try(f, false)
		if held != nil { // its process has died
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
