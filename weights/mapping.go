package weights

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// nonblock makes opening a FIFO return at once.
const nonblock = unix.O_NONBLOCK

// mapping is a whole file mapped read-only. The descriptor stays open for as long as the map, so that the file can be
// checked for changes.
type mapping struct {
	file   *os.File
	opened os.FileInfo // at the time of mapping
	data   []byte
	closed atomic.Bool
}

func mapFile(path string) (*mapping, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	m, err := mapOpened(f, size)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return m, nil
}

func mapOpened(f *os.File, size int64) (*mapping, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != size || size > math.MaxInt {
		return nil, fmt.Errorf("size is %d bytes, expected %d", info.Size(), size)
	}
	m := &mapping{file: f, opened: info}
	if size > 0 { // an empty map is an error of mmap; an empty file is for the header check to refuse
		if m.data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// bytes is the view [begin, end) of the file. A use after close is a bug of the caller and panics: the memory is gone.
func (m *mapping) bytes(begin, end int64) []byte {
	if m.closed.Load() {
		panic("weights: tensor used after its checkpoint was closed")
	}
	return m.data[begin:end:end]
}

// unchanged reports whether the mapped file still has the size and modification time it was opened with.
func (m *mapping) unchanged() error {
	now, err := m.file.Stat()
	if err != nil {
		return err
	}
	if now.Size() != m.opened.Size() || !now.ModTime().Equal(m.opened.ModTime()) {
		return fmt.Errorf("%s changed while it was in use: %d bytes now, %d when it was opened",
			m.file.Name(), now.Size(), m.opened.Size())
	}
	return nil
}

// advise tells the kernel about the pages of [begin, end). Only pages that lie wholly inside are named when inner is
// set, so that a neighbour's bytes keep their pages.
func (m *mapping) advise(begin, end int64, advice int, inner bool) error {
	if m.closed.Load() {
		return os.ErrClosed
	}
	page := int64(os.Getpagesize())
	if inner {
		begin = (begin + page - 1) / page * page
		if end < int64(len(m.data)) { // the last page of the file belongs to its last tensor
			end = end / page * page
		}
	} else {
		begin = begin / page * page
	}
	if begin >= end {
		return nil
	}
	return unix.Madvise(m.data[begin:end], advice)
}

// close unmaps and closes the file. Calling it again does nothing.
func (m *mapping) close() error {
	if m.closed.Swap(true) {
		return nil
	}
	var err error
	if m.data != nil {
		err = unix.Munmap(m.data)
		m.data = nil
	}
	if cerr := m.file.Close(); err == nil {
		err = cerr
	}
	return err
}
