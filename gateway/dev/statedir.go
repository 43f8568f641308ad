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

// markFile says that a directory is the state of clusters, which remove files in it. It stays when
// a cluster ends.
const markFile = "sie-gateway-dev"

const markText = "This directory is the state of `sie-gateway dev`, which removes files in it.\n"

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
	if err := claim(dir, info.Mode()); err != nil {
		return nil, err
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

// claim marks a directory as the state of clusters. It refuses one without the mark that holds
// somebody else's work: anything that a cluster would remove, or any files in a directory that
// other users may use.
func claim(dir string, mode os.FileMode) error {
	mark := filepath.Join(dir, markFile)
	if _, err := os.Lstat(mark); err == nil {
		return nil
	}
	held, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	const fix = "choose an empty or a new directory"
	// Earlier versions left no mark, but always a log of sie-config.
	if _, err := os.Lstat(filepath.Join(dir, "log", Config+"-0.log")); err != nil {
		for _, e := range held {
			switch e.Name() {
			case "run", "payloads", "nats", "config", stateFile:
				return fmt.Errorf("--state-dir %s has %s, which is of no cluster, and a cluster removes it: %s",
					dir, e.Name(), fix)
			}
		}
		if len(held) > 0 && mode.Perm()&0o077 != 0 {
			return fmt.Errorf("--state-dir %s has %s and other users may use it (mode %v), which a cluster ends: %s",
				dir, held[0].Name(), mode.Perm(), fix)
		}
	}
	if err := os.WriteFile(mark, []byte(markText), 0o600); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
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
