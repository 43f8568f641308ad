package dev

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fakeChild ends when it is told what to end with; it obeys SIGTERM unless it is stubborn.
type fakeChild struct {
	pid      int
	end      chan error
	got      chan syscall.Signal
	stubborn bool
	slow     time.Duration // from a signal to the end
}

func (f *fakeChild) Pid() int    { return f.pid }
func (f *fakeChild) Wait() error { return <-f.end }
func (f *fakeChild) Signal(s syscall.Signal) error {
	f.got <- s
	if s == syscall.SIGKILL || s == syscall.SIGTERM && !f.stubborn {
		time.AfterFunc(f.slow, func() { f.end <- errors.New("signal: " + s.String()) })
	}
	return nil
}

// fakes launches fakeChilds and tells of each.
type fakes struct {
	started  chan *fakeChild
	n        int
	stubborn bool
	slow     time.Duration
	err      error
}

func (f *fakes) launch(*spec, io.Writer) (child, error) {
	if f.err != nil {
		f.started <- nil
		return nil, f.err
	}
	f.n++
	c := &fakeChild{
		pid: f.n, end: make(chan error, 2), got: make(chan syscall.Signal, 8), stubborn: f.stubborn,
		slow: f.slow,
	}
	f.started <- c
	return c, nil
}

func fakeProcess(t *testing.T, f *fakes, restart bool) *process {
	t.Helper()
	f.started = make(chan *fakeChild, 1)
	out, err := openLog(filepath.Join(t.TempDir(), "log"), maxLog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	s := spec{role: Server, probe: func(context.Context) error { return errors.New("not yet") }}
	return newProcess(s, f.launch, restart, out, slog.New(slog.DiscardHandler), func() {})
}

// A process that keeps ending is started after 250 ms, 500 ms and so on to 10 s; one that ran for
// 30 s is started after 250 ms again.
func TestRestartsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := fakeProcess(t, f, true)
		go p.run()
		c := <-f.started
		for _, x := range []struct{ up, want time.Duration }{
			{0, 250 * time.Millisecond}, {0, 500 * time.Millisecond}, {time.Second, time.Second},
			{29 * time.Second, 2 * time.Second}, {0, 4 * time.Second}, {0, 8 * time.Second},
			{0, 10 * time.Second}, {0, 10 * time.Second}, {30 * time.Second, 250 * time.Millisecond},
			{0, 500 * time.Millisecond},
		} {
			time.Sleep(x.up)
			c.end <- errors.New("exit status 1")
			ended := time.Now()
			synctest.Wait()
			if s := p.status(); s.Pid != 0 || s.State != waiting {
				t.Errorf("between two starts: %+v", s)
			}
			c = <-f.started
			if waited := time.Since(ended); waited != x.want {
				t.Errorf("up for %v: started after %v, want %v", x.up, waited, x.want)
			}
		}
		synctest.Wait()
		if s := p.status(); s.Pid != 11 || s.State != running || s.Starts != 11 {
			t.Errorf("%+v, want the eleventh running", s)
		}
		p.stop(t.Context())
		if s := p.status(); s.Pid != 0 || s.State != ended {
			t.Errorf("after stop: %+v", s)
		}
	})
}

// A program that cannot be started is tried again with the same waits.
func TestAFailedLaunchBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{err: errors.New("no such file")}
		p := fakeProcess(t, f, true)
		began := time.Now()
		go p.run()
		for range 4 {
			<-f.started
		}
		if took := time.Since(began); took != 1750*time.Millisecond {
			t.Errorf("four tries in %v", took)
		}
		p.stop(t.Context())
	})
}

// Without restart a process that ended stays so, and stop returns.
func TestNoRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := fakeProcess(t, f, false)
		go p.run()
		(<-f.started).end <- nil
		<-p.done
		if s := p.status(); s.State != ended || s.Starts != 1 {
			t.Errorf("%+v", s)
		}
		p.stop(t.Context())
	})
}

// A process that ignores SIGTERM is continued, in case it was stopped, and killed at the end of the
// time; it is not started again.
func TestAStubbornProcessIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{stubborn: true}
		p := fakeProcess(t, f, true)
		go p.run()
		c := <-f.started
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), drainTime)
		defer cancel()
		began := time.Now()
		p.stop(ctx)
		if took := time.Since(began); took != drainTime {
			t.Errorf("stopped after %v", took)
		}
		for _, want := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT, syscall.SIGKILL} {
			if got := <-c.got; got != want {
				t.Errorf("signal %v, want %v", got, want)
			}
		}
		time.Sleep(time.Minute)
		if f.n != 1 {
			t.Errorf("%d starts", f.n)
		}
	})
}

// A stop that comes between two starts ends the wait; one that comes while a program is being
// started ends that program.
func TestStopBetweenStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := fakeProcess(t, f, true)
		go p.run()
		(<-f.started).end <- errors.New("x")
		synctest.Wait()
		began := time.Now()
		p.stop(t.Context())
		if took := time.Since(began); took != 0 || p.status().State != ended {
			t.Errorf("stop took %v: %+v", took, p.status())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := fakeProcess(t, f, true)
		f.started = make(chan *fakeChild) // launch waits until it is read
		go p.run()
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { p.stop(t.Context()); close(stopped) }()
		synctest.Wait()
		c := <-f.started
		<-stopped
		if got := <-c.got; got != syscall.SIGTERM {
			t.Errorf("signal %v", got)
		}
	})
}

// A process that ends before it is ready fails the wait at once, with the end of its log; one that
// never becomes ready fails it when the time is over.
func TestAwaitReadyFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := fakeProcess(t, f, true)
		go p.run()
		c := <-f.started
		if _, err := p.out.Write([]byte("no such model\n")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := p.awaitReady(ctx); err == nil || !strings.Contains(err.Error(), "not yet") ||
			time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.AfterFunc(time.Second, func() { c.end <- errors.New("exit status 1") })
		began = time.Now()
		err := p.awaitReady(t.Context())
		if err == nil || !strings.Contains(err.Error(), "server/0 ended before it was ready") ||
			!strings.Contains(err.Error(), "no such model") || time.Since(began) > time.Second+probeInterval {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		p.stop(t.Context())
	})
}

// A kill returns when the process is gone, and not before; without one it says so.
func TestKillWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{slow: time.Second}
		p := fakeProcess(t, f, false)
		go p.run()
		<-f.started
		synctest.Wait()
		began := time.Now()
		if err := p.signal(t.Context(), syscall.SIGKILL); err != nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := p.signal(t.Context(), syscall.SIGKILL); !errors.Is(err, errDown) {
			t.Errorf("a second kill: %v", err)
		}
		p.stop(t.Context())
	})
}

// After SIGSTOP the process has stopped, each time.
func TestStopHasStopped(t *testing.T) {
	s := newSpawner()
	defer s.close()
	c, err := s.launch(&spec{argv: []string{"/bin/sleep", "60"}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Signal(syscall.SIGKILL); err != nil || c.Wait() == nil {
			t.Errorf("after SIGKILL: %v", err)
		}
	}()
	for i := range 300 {
		if err := c.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if state := procState(c.Pid()); state != "T" {
			t.Fatalf("the %d. time it is %s", i+1, state)
		}
		if err := c.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
}
