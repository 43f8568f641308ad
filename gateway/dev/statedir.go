package dev

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lock takes the state directory for this process, and makes it where it does not exist. It belongs
// to us alone (mode 0700). The lock ends with the file, or with the process.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(owner.Uid) != os.Getuid() {
		return nil, fmt.Errorf("--state-dir %s is no directory of this user: choose another", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	path := filepath.Join(dir, "lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("--state-dir: %w", err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			pid, _ := io.ReadAll(io.LimitReader(f, 20))
			return nil, errors.Join(fmt.Errorf(
				"--state-dir %s is in use by another `sie-gateway dev` (pid %s): end that one, or choose another",
				dir, strings.TrimSpace(string(pid))), f.Close())
		}
		// The holder before us removes the file when it ends; then the lock is of a file that
		// nobody else finds.
		mine, err := f.Stat()
		if now, e := os.Stat(path); err == nil && e == nil && os.SameFile(mine, now) {
			err = errors.Join(f.Truncate(0), write(f, strconv.Itoa(os.Getpid())+"\n"))
			return f, err
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

func write(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// prepare makes the directories of a cluster, and removes what one that was killed has left.
func (o *Options) prepare() error {
	if err := o.clean(); err != nil {
		return err
	}
	dirs := []string{o.path("run"), o.path("log"), o.path("payloads")}
	for i := range o.nodes() {
		dirs = append(dirs, o.path("nats", strconv.Itoa(i)))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
	}
	return nil
}

// clean removes all that does not outlive a cluster: sockets, cluster.json, payloads, and the
// streams and the models that were added unless streams are in files. Logs, and dead letters in
// files, stay.
func (o *Options) clean() error {
	all := []error{os.RemoveAll(o.path("run")), os.RemoveAll(o.path("payloads"))}
	if o.Storage != "file" {
		all = append(all, os.RemoveAll(o.path("nats")), os.RemoveAll(o.path("config")))
	}
	if err := os.Remove(o.path(stateFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		all = append(all, err)
	}
	return errors.Join(all...)
}
