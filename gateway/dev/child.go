package dev

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is a running process.
type child interface {
	Pid() int
	Wait() error // once; returns when the process has ended
	Signal(syscall.Signal) error
}

// launcher starts the program of a spec; its output goes to log.
type launcher func(s *spec, log io.Writer) (child, error)

// outputWait bounds the wait for the rest of a dead process's output.
const outputWait = time.Second

// spawner starts processes from one thread of its own. The kernel ends them when that thread ends,
// which is when this process ends, however it ends.
type spawner struct{ calls chan func() }

// newSpawner returns a spawner whose goroutine runs until close.
func newSpawner() *spawner {
	s := &spawner{calls: make(chan func())}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		for f := range s.calls {
			f()
		}
	}()
	return s
}

// close ends the spawner, and with it what is left of its processes.
func (s *spawner) close() { close(s.calls) }

// launch starts a process in a group of its own, so that a terminal's interrupt reaches this
// process alone.
func (s *spawner) launch(p *spec, log io.Writer) (child, error) {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(p.unset, name)
	}), p.env...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, outputWait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	s.calls <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	fmt.Fprintf(log, "--- pid %d: %s\n", cmd.Process.Pid, strings.Join(p.argv, " "))
	return execChild{cmd}, nil
}

type execChild struct{ cmd *exec.Cmd }

func (c execChild) Pid() int    { return c.cmd.Process.Pid }
func (c execChild) Wait() error { return c.cmd.Wait() }

// Signal sends s. After SIGSTOP it returns when the process has stopped, or ended instead.
func (c execChild) Signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil || s != syscall.SIGSTOP {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, c.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return nil // an error means that it has ended
		}
	}
}
