package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sie-engine/sie/internal/accept"
)

const (
	maxCommands    = 16        // at a time; more wait to be accepted
	maxCommand     = 4 << 10   // bytes of a command
	maxReply       = 256 << 10 // bytes of a reply
	commandTime    = 5 * time.Second
	commandTimeout = 2 * time.Minute // of a whole command, a scale with its drain included
)

// Command is what a client asks of a running cluster: one JSON value over the socket of its state
// directory, answered with one Reply.
type Command struct {
	// Do is scale, status, or a signal: kill, term, stop or cont.
	Do      string `json:"do"`
	Workers int    `json:"workers,omitempty"` // of scale
	Target  string `json:"target,omitempty"`  // of a signal: a role, or role/i
}

// Reply answers a Command.
type Reply struct {
	Error     string   `json:"error,omitempty"`
	Processes []Status `json:"processes,omitempty"` // of status; of a signal those that got it
}

// signals are the commands that send one.
var signals = map[string]syscall.Signal{
	"kill": syscall.SIGKILL, "term": syscall.SIGTERM, "stop": syscall.SIGSTOP, "cont": syscall.SIGCONT,
}

// roles are what Target may name, in the order of status.
var roles = []string{NATS, Config, Gateway, Worker, Server, Sidecar}

// ParseTarget splits "role" or "role/i"; index is -1 for all processes of the role.
func ParseTarget(s string) (role string, index int, err error) {
	role, number, one := strings.Cut(s, "/")
	if !slices.Contains(roles, role) {
		return "", 0, fmt.Errorf("%q names no process: write one of %s, or one of them with its number, as %s/0",
			s, strings.Join(roles, ", "), roles[0])
	}
	if !one {
		return role, -1, nil
	}
	index, err = strconv.Atoi(number)
	if err != nil || index < 0 {
		return "", 0, fmt.Errorf("%q: write a number from 0 behind the /", s)
	}
	return role, index, nil
}

// target returns the processes that Target names, at least one.
func (c *Cluster) target(s string) ([]*process, error) {
	role, index, err := ParseTarget(s)
	if err != nil {
		return nil, err
	}
	some := c.all(role)
	if index >= 0 {
		some = slices.DeleteFunc(some, func(p *process) bool { return p.spec.index != index })
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("there is no %s; `sie-gateway dev status` lists what there is", s)
	}
	return some, nil
}

// do carries out a command.
func (c *Cluster) do(ctx context.Context, m Command) (r Reply) {
	if m.Do == "scale" {
		if err := c.Scale(ctx, m.Workers); err != nil {
			r.Error = err.Error()
		}
		return r
	}
	some := slices.Concat(c.all(NATS), c.all(Config), c.all(Gateway), c.all(Worker))
	if m.Do != "status" {
		s, ok := signals[m.Do]
		if !ok {
			return Reply{Error: fmt.Sprintf("unknown command %q", m.Do)}
		}
		var err error
		if some, err = c.target(m.Target); err != nil {
			return Reply{Error: err.Error()}
		}
		// All get it before the end of any is awaited.
		errs := make([]error, len(some))
		var g sync.WaitGroup
		for i, p := range some {
			g.Go(func() { errs[i] = p.signal(ctx, s) })
		}
		g.Wait()
		if err := errors.Join(errs...); err != nil {
			r.Error = err.Error()
		}
		c.keeper.flush()
	}
	for _, p := range some {
		r.Processes = append(r.Processes, p.status())
	}
	return r
}

// control accepts commands until close.
type control struct {
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// listen begins to accept commands on the socket of the state directory, which only its user can
// reach.
func (c *Cluster) listen(ctx context.Context) (*control, error) {
	l, err := net.Listen("unix", c.o.control())
	if err != nil {
		return nil, err
	}
	return c.accept(ctx, l), nil
}

// accept begins to accept commands on a socket.
func (c *Cluster) accept(ctx context.Context, l net.Listener) *control {
	ctx, cancel := context.WithCancel(ctx)
	k := &control{listener: l, cancel: cancel}
	places := make(chan struct{}, maxCommands)
	k.running.Go(func() {
		for {
			places <- struct{}{}
			conn, err := accept.Next(l.Accept, func(err error) {
				c.o.Log.Warn("no command can be accepted now; it is tried again", "error", err)
			})
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					c.o.Log.Error("commands are not accepted any more", "error", err)
				}
				return
			}
			k.running.Go(func() {
				defer func() { <-places }()
				defer conn.Close()
				c.serve(ctx, conn)
			})
		}
	})
	return k
}

func (k *control) close() {
	k.cancel()
	_ = k.listener.Close()
	k.running.Wait()
}

// serve answers one command.
func (c *Cluster) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	_ = conn.SetReadDeadline(time.Now().Add(commandTime))
	var m Command
	reply := Reply{}
	if err := json.NewDecoder(io.LimitReader(conn, maxCommand)).Decode(&m); err != nil {
		reply.Error = "the command is no JSON object: " + err.Error()
	} else {
		reply = c.do(ctx, m)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(commandTime))
	_ = json.NewEncoder(conn).Encode(reply)
}

// Send gives a command to the cluster whose state directory is dir, and returns its reply. An error
// in the reply is returned as error.
func Send(ctx context.Context, dir string, m Command) (r Reply, err error) {
	path := filepath.Join(dir, "run", "control.sock")
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return r, fmt.Errorf("no cluster is ready in --state-dir %s: start one with `sie-gateway dev`", dir)
	}
	if err != nil {
		return r, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	_ = conn.SetDeadline(time.Now().Add(commandTimeout + commandTime))
	if err := json.NewEncoder(conn).Encode(m); err != nil {
		return r, err
	}
	if err := json.NewDecoder(io.LimitReader(conn, maxReply)).Decode(&r); err != nil {
		return r, fmt.Errorf("the cluster did not answer; did it end? (%w)", err)
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}
