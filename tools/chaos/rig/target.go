package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"
)

// The roles of a Target.
const (
	Server  = "server"
	Sidecar = "sidecar"
	Edge    = "gateway"
	NATS    = "nats"
	Config  = "config"
)

// Target is one process of a cluster.
type Target struct {
	Role  string
	Index int
}

// String returns "role/index".
func (t Target) String() string { return fmt.Sprintf("%s/%d", t.Role, t.Index) }

// PID returns the process that has a role now.
func (s *State) PID(t Target) (int, error) {
	pid := 0
	switch {
	case t.Role == NATS:
		pid = s.NATS.PID
	case t.Role == Config:
		pid = s.Config.PID
	case t.Role == Edge && t.Index < len(s.Gateways):
		pid = s.Gateways[t.Index].PID
	case t.Role == Server && t.Index < len(s.Workers):
		pid = s.Workers[t.Index].ServerPID
	case t.Role == Sidecar && t.Index < len(s.Workers):
		pid = s.Workers[t.Index].SidecarPID
	}
	if pid <= 0 {
		return 0, fmt.Errorf("cluster.json names no process of %v", t)
	}
	return pid, nil
}

// PID returns the process that has a role now.
func (c *Cluster) PID(t Target) (int, error) {
	s, err := c.State()
	if err != nil {
		return 0, err
	}
	return s.PID(t)
}

// Signal sends a signal to a target and returns its process.
func (c *Cluster) Signal(t Target, sig syscall.Signal) (int, error) {
	pid, err := c.PID(t)
	if err != nil {
		return 0, err
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return 0, fmt.Errorf("%v of %v (process %d): %w", sig, t, pid, err)
	}
	return pid, nil
}

// backTime bounds the time until a process that ended runs again.
const backTime = 60 * time.Second

// Back waits until a target runs in another process than old and answers its probe.
func (c *Cluster) Back(ctx context.Context, t Target, old int) error {
	return c.until(ctx, backTime, t.String()+" is back", func() error {
		s, err := c.State()
		if err != nil {
			return err
		}
		pid, err := s.PID(t)
		if err != nil {
			return err
		}
		if pid == old {
			return errors.New("it is the old process")
		}
		return s.Probe(t)
	})
}

// Probe returns why a target does not answer its probe, nil if it does.
func (s *State) Probe(t Target) error {
	switch t.Role {
	case NATS:
		return dial(s.NATS.URL)
	case Config:
		return ready(s.Config.URL)
	case Edge:
		return ready(s.Gateways[t.Index].URL)
	}
	return ready(s.Workers[t.Index].ProbeURL)
}

func dial(natsURL string) error {
	u, err := url.Parse(natsURL)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}
