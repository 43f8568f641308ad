package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dir is the tree of files below a directory, like os.DirFS with one difference. Open opens only
// regular files and directories, so that no reader waits for the other end of a pipe. Errors name
// the file relative to the directory. They are the file system's, as *fs.PathError, and
// ErrNotRegular.
type Dir string

// Open opens a regular file or a directory for reading.
func (d Dir) Open(name string) (fs.File, error) {
	path, err := d.path("open", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, relative(name, err)
		}
		return f, nil
	}
	f, _, err := OpenRegular(path)
	if err != nil {
		return nil, relative(name, err)
	}
	return f, nil
}

// Stat describes a file of any kind. It follows links.
func (d Dir) Stat(name string) (fs.FileInfo, error) {
	path, err := d.path("stat", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, relative(name, err)
	}
	return info, nil
}

func (d Dir) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return filepath.Join(string(d), filepath.FromSlash(name)), nil
}

// relative returns err with name in place of the full path.
func relative(name string, err error) error {
	var of *fs.PathError
	switch {
	case errors.As(err, &of):
		return &fs.PathError{Op: of.Op, Path: name, Err: of.Err}
	case errors.Is(err, ErrNotRegular):
		return fmt.Errorf("%s %w", name, errors.Unwrap(err))
	}
	return err
}
