package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Process is a program that was started. Its methods are safe for concurrent use.
type Process struct {
	Name string

	log   string // file of what it says
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait, once ended is closed
}

// Start starts a program whose log is dir/name.log. env is all of its environment but PATH and
// HOME.
func Start(dir, name string, env []string, argv ...string) (*Process, error) {
	p := &Process{Name: name, log: filepath.Join(dir, name+".log"), ended: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}, env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Log returns what the process has said.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Path returns the file of the program.
func (p *Process) Path() string { return p.cmd.Path }

// PID returns the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended; Err then says how.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns how the process ended, nil for status 0. It waits for the end.
func (p *Process) Err() error {
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.Name, p.err)
	}
	return nil
}

// Signal sends a signal, unless the process has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// Stop asks the process to end and kills it after grace, which is an error.
func (p *Process) Stop(grace time.Duration) error {
	p.Signal(syscall.SIGTERM)
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-p.ended:
		return p.Err()
	case <-late.C:
		p.Kill()
		return fmt.Errorf("%s had not ended %v after SIGTERM and was killed", p.Name, grace)
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // its group; it may have ended
	<-p.ended
}

// lookEvery is the time between two looks at a log or a page.
const lookEvery = 20 * time.Millisecond

// Await waits until the log has a line that matches pattern, and returns the first group of the
// last such line. It ends early when ctx or the process does.
func (p *Process) Await(ctx context.Context, pattern *regexp.Regexp) (string, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if all := pattern.FindAllStringSubmatch(p.Log(), -1); all != nil {
			return all[len(all)-1][1], nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return "", fmt.Errorf("%s ended (%w): %s", p.Name, errors.Join(p.err, errEnded), p.tail())
		case <-ctx.Done():
			return "", fmt.Errorf("%s: waiting for %s: %w: %s", p.Name, pattern, ctx.Err(), p.tail())
		}
	}
}

var errEnded = errors.New("before it was ready")

// tail returns the last lines of the log.
func (p *Process) tail() string {
	lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], "\n")
}
