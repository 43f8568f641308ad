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
	// ErrTooLarge is matched by the error of a file or stream with more bytes than its limit.
	ErrTooLarge = errors.New("too large")
	// ErrNotRegular is matched by the error of a path that is a directory, a pipe, a socket or a
	// device.
	ErrNotRegular = errors.New("not a regular file")
)

// Read returns the content of a regular file of at most limit bytes.
//
// Errors name the path. They are the file system's, ErrNotRegular and ErrTooLarge.
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

// ReadAll returns all bytes of r, or ErrTooLarge if there are more than limit. It returns no data
// with an error.
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

// OpenRegular opens a regular file for reading and follows links. The caller closes it.
//
// It never waits for the other end of a pipe. It checks the kind of file before it opens it,
// because opening a device may have an effect. Errors name the path. They are the file system's and
// ErrNotRegular.
func OpenRegular(path string) (*os.File, fs.FileInfo, error) { return openRegular(path, func() {}) }

// openRegular calls looked after it has checked the path and before it opens it, for tests that
// change the file in between.
func openRegular(path string, looked func()) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := Regular(info); err != nil {
		return nil, nil, fmt.Errorf("%s %w", path, err)
	}
	looked()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // the file may have become a pipe
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

// Regular returns nil for a regular file. For any other it returns an error that matches
// ErrNotRegular and names the kind of file: "is a named pipe, not a regular file".
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

// tooLarge is an error whose text follows the name of a file.
type tooLarge struct{ size, limit int64 } // size 0: unknown

func (e *tooLarge) Error() string {
	if e.size == 0 {
		return fmt.Sprintf("is larger than %d bytes", e.limit)
	}
	return fmt.Sprintf("has %d bytes, more than the limit of %d", e.size, e.limit)
}

func (e *tooLarge) Is(target error) bool { return target == ErrTooLarge }
