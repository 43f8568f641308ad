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

// maxEntries bounds the entries of a directory, including files of other kinds.
const maxEntries = 100_000

// directory is a file system of the regular files in one directory.
//
// A program that can write to the directory must not be able to block the server or make it read
// other files. Open therefore refuses pipes, sockets, devices and directories; it opens them at
// most long enough to see what they are. It also refuses links that lead out of the directory. It
// follows links within the directory, because Kubernetes mounts a ConfigMap that way. directory is
// safe for concurrent use.
type directory struct {
	root   *os.Root
	looked func() // called between the check of a file and its opening, for tests; may be nil
}

// openDirectory opens a directory. what (models, bundles) is used in messages. The caller closes
// its root.
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

// Open opens a regular file. Its errors say what kind of file it is, never what it contains.
func (d directory) Open(name string) (fs.File, error) {
	info, err := d.root.Stat(name)
	if err != nil {
		return nil, d.unreadable(name, err)
	}
	if err := regular(info); err != nil { // checked before opening, because opening a device may have effects
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

// ReadDir lists the directory itself, ordered by name.
func (d directory) ReadDir(string) ([]fs.DirEntry, error) {
	list, err := d.entries(maxEntries)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, err
}

// entries lists the directory in any order. It fails for more than limit entries.
func (d directory) entries(limit int) ([]fs.DirEntry, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	list, err := f.ReadDir(limit + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(list) > limit:
		return nil, fmt.Errorf("it has more than %d entries", limit)
	}
	return list, nil
}

// unreadable returns the error for a file that cannot be opened.
func (d directory) unreadable(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if info, lerr := d.root.Lstat(name); lerr != nil || info.Mode().Type() != fs.ModeSymlink ||
		errors.Is(err, fs.ErrPermission) {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("it is a link that leads nowhere")
	}
	return errors.New(
		"it is a link that leads out of the directory; only links within it are followed: copy the file into the directory")
}

// regular returns nil for a regular file, or an error that names the kind of the file.
func regular(info fs.FileInfo) error {
	if err := files.Regular(info); err != nil {
		return fmt.Errorf("it %w; remove it", err)
	}
	return nil
}
