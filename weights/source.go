package weights

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/weights/internal/hook"
)

// ErrChanged matches the error of a checkpoint file that changed while it was open.
var ErrChanged = errors.New("changed while it was read")

// source is one open file of a checkpoint. Its bytes are read, never mapped, so a file that shrinks
// gives an error and not a signal. It is safe for concurrent use.
type source struct {
	file   *os.File
	opened os.FileInfo // before the first byte was read
	closed atomic.Bool
	large  bool // of a checkpoint of more than largeBytes
}

func openSource(path string) (*source, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	return &source{file: f, opened: info}, nil
}

func (s *source) size() int64 { return s.opened.Size() }

// ReadAt fills p from offset. Errors: ErrChanged when the file ends too early, os.ErrClosed, and
// errors of the file system.
func (s *source) ReadAt(p []byte, offset int64) (int, error) {
	if s.closed.Load() {
		return 0, fmt.Errorf("read %s: %w", s.file.Name(), os.ErrClosed)
	}
	hook.Read(s.file.Name(), offset)
	n, err := s.file.ReadAt(p, offset)
	switch {
	case n == len(p):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		err = s.changed(fmt.Sprintf("%d of the %d bytes at %d are left", n, len(p), offset))
	}
	return n, err
}

// unchanged returns an error unless the file has the size and modification time that it had when it
// was opened.
func (s *source) unchanged() error {
	now, err := s.file.Stat()
	switch {
	case err != nil:
		return err
	case now.Size() != s.opened.Size():
		return s.changed(fmt.Sprintf("%d bytes now, %d when it was opened", now.Size(), s.opened.Size()))
	case !now.ModTime().Equal(s.opened.ModTime()):
		return s.changed(
			fmt.Sprintf("written at %s, after it was opened", now.ModTime().Format("15:04:05.000")))
	}
	return nil
}

func (s *source) changed(how string) error {
	return fmt.Errorf("%s %w: %s; load the model again when the file is complete",
		s.file.Name(), ErrChanged, how)
}

// willNeed asks the kernel to read the file into the page cache.
func (s *source) willNeed() error {
	if s.closed.Load() {
		return os.ErrClosed
	}
	if s.large {
		return nil
	}
	return unix.Fadvise(int(s.file.Fd()), 0, s.opened.Size(), unix.FADV_WILLNEED)
}

// release gives up the pages of those bytes if the checkpoint is large.
func (s *source) release(begin, end int64) {
	hook.Release(s.file.Name(), begin, end, s.large)
	if s.large && !s.closed.Load() {
		_ = unix.Fadvise(int(s.file.Fd()), begin, end-begin, unix.FADV_DONTNEED)
	}
}

// close closes the file. Further calls do nothing.
func (s *source) close() error {
	if s.closed.Swap(true) {
		return nil
	}
	return s.file.Close()
}
