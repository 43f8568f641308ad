package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/files"
)

// maxEntries bounds a directory, files of other kinds included.
const maxEntries = 100_000

// directory is the file system of one directory's regular files.
//
// Whoever may write there must not make the server wait or read what is not theirs: Open refuses
// pipes, sockets, devices and directories without opening them for longer than it takes to see what
// they are, and links that lead out of the directory. Links within it are followed: that is how
// Kubernetes mounts a ConfigMap. Safe for concurrent use.
type directory struct {
	root   *os.Root
	looked func() // for tests, which change the file between the look at it and its opening; nil = nothing
}

// openDirectory opens a directory of what (models, bundles); the caller closes its root.
func openDirectory(dir, what string) (directory, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return directory{}, fmt.Errorf("%s directory: %w", what, err)
	}
	if !info.IsDir() {
		return directory{}, fmt.Errorf("%s directory %s is not a directory", what, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return directory{}, fmt.Errorf("%s directory: %w", what, err)
	}
	return directory{root: root}, nil
}

// Open opens a regular file. Its errors say what the file is, never what is in it.
func (d directory) Open(name string) (fs.File, error) {
	info, err := d.root.Stat(name)
	if err != nil {
		return nil, d.unreadable(name, err)
	}
	if err := regular(info); err != nil { // before it is opened: to open a device may do something
		return nil, err
	}
	if d.looked != nil {
		d.looked()
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, d.unreadable(name, err)
	}
	if info, err = f.Stat(); err == nil {
		err = regular(info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// ReadDir lists the directory itself, in the order of names.
func (d directory) ReadDir(string) ([]fs.DirEntry, error) {
	list, err := d.entries(maxEntries)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// entries lists the directory in no order, or fails where there are more than that many.
func (d directory) entries(most int) ([]fs.DirEntry, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := f.ReadDir(most + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(list) > most:
		return nil, fmt.Errorf("it has more than %d entries", most)
	}
	return list, nil
}

// unreadable says what is wrong with a file that cannot be opened.
func (d directory) unreadable(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if info, lerr := d.root.Lstat(name); lerr != nil || info.Mode().Type() != fs.ModeSymlink || errors.Is(err, fs.ErrPermission) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is a link that leads nowhere")
	}
	return errors.New("it is a link that leads out of the directory; only links within it are followed: copy the file into the directory")
}

// regular returns an error that names what a file is instead of a regular one.
func regular(info fs.FileInfo) error {
	if err := files.Regular(info); err != nil {
		return fmt.Errorf("it %w; remove it", err)
	}
	return nil
}
