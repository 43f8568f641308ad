package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPath is the longest path of a Unix socket, in bytes.
const maxPath = 107

// Listener is a Unix socket that belongs to this process until Close.
type Listener struct {
	*net.UnixListener
	lock *os.File
}

// Listen makes the socket at path with mode 0600. Its directory must be ours with mode 0700; a
// missing one is made. A socket on which another process listens is never taken; one that nobody
// listens on is replaced.
func Listen(path string) (*Listener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf(
			"the path of the IPC socket has %d bytes; the system takes at most %d: choose a shorter one",
			len(path), maxPath)
	}
	if err := ownDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	// the lock ends with the process, however it ends
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(inUse(path), lock.Close())
	}
	l, err := replace(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Listener{l, lock}, nil
}

// Close removes the socket and refuses new connections.
func (l *Listener) Close() error { return errors.Join(l.UnixListener.Close(), l.lock.Close()) }

func inUse(path string) error {
	return fmt.Errorf("another process listens on the IPC socket %s: stop it, or choose another path", path)
}

func ownDirectory(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the directory of the IPC socket: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory; the IPC socket needs one of its own", dir)
	case !ok || int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("the directory %s of the IPC socket belongs to another user; use one of your own",
			dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("the directory %s of the IPC socket is open to others (mode %#o); run chmod 700 on it",
			dir, info.Mode().Perm())
	}
	return nil
}

// replace listens at path after it has made sure that nobody else does. The caller holds the lock.
func replace(path string) (*net.UnixListener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there and is not a socket; remove it, or choose another path", path)
	default:
		c, err := net.Dial("unix", path)
		if err == nil {
			return nil, errors.Join(inUse(path), c.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// checkPeer refuses a connection of another user. Root may connect.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if asked != nil {
		return asked
	}
	return allowed(int(peer.Uid), os.Geteuid())
}

// allowed returns nil if a user may connect to a server that runs as self.
func allowed(uid, self int) error {
	if uid != self && uid != 0 {
		return fmt.Errorf("the user %d may not use this socket; it is for user %d and root", uid, self)
	}
	return nil
}
