package payload

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// putUnnamed writes a file without a name and links it when it is whole: of a process that is
// killed before, nothing is left. done is false where the file system has no such files, as NFS,
// or /proc is not there; nothing was stored then.
func (d dir) putUnnamed(key string, data []byte) (done bool, err error) {
	f, err := os.OpenFile(string(d), unix.O_TMPFILE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, nil //nolint:nilerr // what is wrong with the directory, putNamed tells
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return true, err
	}
	from, to := "/proc/self/fd/"+strconv.Itoa(int(f.Fd())), d.path(key)
	link := func(to string) error {
		return unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
	}
	err = link(to)
	if errors.Is(err, fs.ErrExist) { // a link replaces nothing, a rename does
		other := d.path(putPrefix + rand.Text())
		if err = link(other); err == nil {
			if err = os.Rename(other, to); err != nil {
				return true, errors.Join(err, os.Remove(other))
			}
		}
	}
	return err == nil, nil
}
