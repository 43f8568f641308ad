package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// outFile takes a command's result until it is complete. One goroutine at a time.
//
// A file appears under its name, or replaces another, in one step and only when it is complete.
// Only regular files are replaced: a device or a pipe is written to.
type outFile struct {
	f      *os.File // seekable
	path   string   // the final name of f; "" if f is copied to device
	device *os.File
	mode   fs.FileMode // of the file that is replaced; 0: none is replaced
}

// createOut prepares for writing to path. It refuses a directory, a link that leads nowhere, and
// the file in that the command reads, whatever its name. For a pipe it waits until somebody reads
// it or ctx ends.
func createOut(ctx context.Context, path string, in os.FileInfo) (*outFile, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("--out %s: is a link that leads nowhere", path)
		}
		return part(path, 0)
	case err != nil:
		return nil, fmt.Errorf("--out: %w", err)
	case st.IsDir():
		return nil, fmt.Errorf("--out %s: is a directory; name a file in it", path)
	case in != nil && os.SameFile(in, st) && st.Mode()&fs.ModeCharDevice == 0:
		return nil, fmt.Errorf("--out %s: is the file that is read; name another", path)
	case st.Mode().IsRegular():
		real, err := filepath.EvalSymlinks(path) // a link stays a link
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		return part(real, st.Mode().Perm())
	}
	device, err := openDevice(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	f, err := os.CreateTemp("", "sie-out-")
	if err == nil {
		err = os.Remove(f.Name()) // the file ends with the process
	}
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return &outFile{f: f, device: device}, nil
}

// part creates the file that becomes path, in the same directory. Its name is new, because a file
// that already exists may be anything.
func part(path string, mode fs.FileMode) (*outFile, error) {
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%08x.part", path, rand.Uint32()),
			os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		return &outFile{f: f, path: path, mode: mode}, nil
	}
}

// pipePause is the time between two attempts to open a pipe that nobody reads.
const pipePause = 20 * time.Millisecond

// openDevice opens something other than a regular file for writing.
func openDevice(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.ENXIO) {
			return f, err
		}
		if st, serr := os.Stat(path); serr != nil || st.Mode()&fs.ModeNamedPipe == 0 {
			return nil, err // a socket, or a device without anything behind it
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: nobody reads this pipe: %w", path, ctx.Err())
		case <-time.After(pipePause):
		}
	}
}

// discard removes what was written.
func (o *outFile) discard() error {
	if o.device != nil {
		return errors.Join(o.f.Close(), o.device.Close())
	}
	return errors.Join(o.f.Close(), os.Remove(o.f.Name()))
}

// finish gives the file its name, or copies it to the device.
func (o *outFile) finish() error {
	if o.device != nil {
		_, err := io.Copy(o.device, o.f)
		return errors.Join(err, o.f.Close(), o.device.Close())
	}
	var err error
	if o.mode != 0 {
		err = o.f.Chmod(o.mode)
	}
	if err = errors.Join(err, o.f.Close()); err == nil {
		if st, serr := os.Lstat(o.path); serr == nil && !st.Mode().IsRegular() {
			err = fmt.Errorf("--out %s: is no regular file any more and is not replaced", o.path)
		}
	}
	if err == nil {
		err = os.Rename(o.f.Name(), o.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(o.f.Name()))
	}
	return nil
}
