package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrTooLarge is matched by the error of a file or stream with more bytes than its reader
	// takes.
	ErrTooLarge = errors.New("too large")
	// ErrNotRegular is matched by the error of a path that is a directory, a pipe, a socket or a
	// device.
	ErrNotRegular = errors.New("not a regular file")
)

// Read returns the content of a regular file of at most limit bytes.
//
// Errors name the path: the file system's, ErrNotRegular, ErrTooLarge.
func Read(path string, limit int64) ([]byte, error) {
	f, info, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > limit { // refused before anything is read; the file may still grow
		return nil, fmt.Errorf("%s %w", path, &tooLarge{info.Size(), limit})
	}
	data, err := ReadAll(f, limit)
	if errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return data, err
}

// ReadAll reads to the end of r, or fails with ErrTooLarge when that is more than limit bytes. It
// returns no data with an error.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > limit:
		return nil, &tooLarge{limit: limit}
	}
	return data, nil
}

// OpenRegular opens a regular file for reading; links are followed. The caller closes it.
//
// It never waits for the other end of a pipe, and opens no device that it can see beforehand,
// because opening one may do something. Errors name the path: the file system's, ErrNotRegular.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) { return openRegular(path, func() {}) }

// openRegular calls looked between its look at the path and the opening, for tests that change the
// file there.
func openRegular(path string, looked func()) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := Regular(info); err != nil {
		return nil, nil, fmt.Errorf("%s %w", path, err)
	}
	looked()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil {
		if err = Regular(info); err != nil {
			err = fmt.Errorf("%s %w", path, err)
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return f, info, nil
}

// Regular returns nil for a regular file, else an error that matches ErrNotRegular and names the
// kind of file: "is a named pipe, not a regular file".
func Regular(info fs.FileInfo) error {
	kind := "something else"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	}
	return fmt.Errorf("is %s, %w", kind, ErrNotRegular)
}

// tooLarge reads after the name of a file.
type tooLarge struct{ size, limit int64 } // size is 0 where it is not known

func (e *tooLarge) Error() string {
	if e.size == 0 {
		return fmt.Sprintf("is larger than %d bytes", e.limit)
	}
	return fmt.Sprintf("has %d bytes, more than the limit of %d", e.size, e.limit)
}

func (e *tooLarge) Is(target error) bool { return target == ErrTooLarge }
