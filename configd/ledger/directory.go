package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/weights/bucket"
)

// lockName is the file that the only writer of a directory has locked. Its content names the
// writer.
const lockName = "writer.lock"

// maxLock bounds what is read of the lock file.
const maxLock = 4 << 10

// directory keeps objects as files, and is locked by its writer until Close or the end of the
// process.
type directory struct {
	path string
	lock *os.File
	mu   sync.Mutex // a condition holds until its file is in place
}

// openDirectory makes and locks a directory.
func openDirectory(path string, me Writer) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	name := filepath.Join(path, lockName)
	lock, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("the store cannot be written: %w", err)
	}
	d := &directory{path: path, lock: lock}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = &TakenError{d.String(), holder(name)}
		}
		return nil, errors.Join(err, lock.Close())
	}
	if left, err := filepath.Glob(filepath.Join(path, ".new-*")); err == nil { // of killed writers
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
	// The lock holds also when its file cannot name the writer, on a full disk.
	if text, err := json.Marshal(me); err == nil && lock.Truncate(0) == nil {
		_, _ = lock.WriteAt(text, 0)
	}
	return d, nil
}

// holder returns the writer that a lock file names.
func holder(name string) Writer {
	w := Writer{Name: "unknown"}
	if text, err := files.Read(name, maxLock); err == nil {
		_ = json.Unmarshal(text, &w)
	}
	return w
}

func (d *directory) String() string { return d.path + "/" }
func (d *directory) Durable() bool  { return true }
func (d *directory) Close() error   { return d.lock.Close() }

func (d *directory) Get(_ context.Context, key string, limit int64) ([]byte, string, error) {
	data, err := files.Read(filepath.Join(d.path, key), limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", bucket.ErrNotFound
	}
	if err != nil {
		return nil, "", err
	}
	return data, contentVersion(data), nil
}

func contentVersion(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (d *directory) Put(
	ctx context.Context, key string, data []byte, when bucket.Condition,
) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if when != (bucket.Condition{}) {
		_, version, err := d.Get(ctx, key, maxState)
		switch missing := errors.Is(err, bucket.ErrNotFound); {
		case err != nil && !missing:
			return "", err
		case when.Absent != missing || !missing && version != when.Version:
			return "", bucket.ErrChanged
		}
	}
	if err := replace(d.path, key, data); err != nil {
		return "", err
	}
	return contentVersion(data), nil
}

// replace puts data in place of a file. A crash leaves the old file or the new one.
func replace(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	parent, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

func (d *directory) List(_ context.Context, prefix string, limit int) (names []string, err error) {
	entries, err := os.ReadDir(d.path) // in order
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, bounded(names, limit)
}

func (d *directory) Delete(_ context.Context, key string) error {
	err := os.Remove(filepath.Join(d.path, key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
