package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// State is DIR/cluster.json of `sie-gateway dev`.
type State struct {
	Gateways []Gateway `json:"gateways"`
	NATS     struct {
		URL string `json:"url"`
		PID int    `json:"pid"`
	} `json:"nats"`
	Config struct {
		URL string `json:"url"`
		PID int    `json:"pid"`
	} `json:"config"`
	Workers []Worker `json:"workers"`
}

// Gateway is a gateway of a State.
type Gateway struct {
	URL        string `json:"url"`
	MetricsURL string `json:"metrics_url"`
	PID        int    `json:"pid"`
}

// Worker is a pair of sidecar and server of a State.
type Worker struct {
	ID         string `json:"id"`
	Pool       string `json:"pool"`
	Profile    string `json:"profile"`
	Bundle     string `json:"bundle"`
	ServerPID  int    `json:"server_pid"`
	SidecarPID int    `json:"sidecar_pid"`
	Socket     string `json:"socket"`
	ProbeURL   string `json:"probe_url"`
	MetricsURL string `json:"metrics_url"`
}

// Options says what StartCluster starts.
type Options struct {
	Binary   string // sie-gateway; sie-server and sie-sidecar lie beside it
	Dir      string // of state and logs; made
	Workers  int    // with Autoscale the most; it begins without
	Gateways int
	NATSURL  string // of brokers that run already; "": the cluster starts its own
	Nodes    int    // of NATS, 1 or 3
	Storage  string // of streams: memory or file
	// Autoscale is a file of triggers, by which the cluster starts and stops workers; "": it does
	// not.
	Autoscale string
	Models    []string
	Env       []string // beyond this process's
	Args      []string
	Log       io.Writer
}

// Cluster is a cluster that runs. Its methods belong to one goroutine.
type Cluster struct {
	Options
	cmd  *exec.Cmd
	ends chan struct{}
	err  error // of cmd.Wait, once ends is closed
}

// startTime bounds a cluster's start, on two cores that others use too.
const startTime = 90 * time.Second

// StartCluster starts a cluster and waits until all of it is ready.
func StartCluster(ctx context.Context, o Options) (*Cluster, error) {
	if err := os.MkdirAll(filepath.Join(o.Dir, "tmp"), 0o700); err != nil {
		return nil, err
	}
	args := []string{
		"dev", "--device", "null", "--port", "0", "--workers", strconv.Itoa(o.Workers),
		"--gateways", strconv.Itoa(o.Gateways), "--state-dir", o.Dir, "--nats-nodes", strconv.Itoa(o.Nodes),
		"--storage", o.Storage,
	}
	if o.NATSURL != "" {
		args = append(args, "--nats-url", o.NATSURL)
	}
	if o.Autoscale != "" {
		args = append(args, "--autoscale", "--triggers", o.Autoscale)
	}
	for _, m := range o.Models {
		args = append(args, "--model", m)
	}
	c := &Cluster{Options: o, ends: make(chan struct{})}
	c.cmd = exec.Command(o.Binary, append(args, o.Args...)...)
	c.cmd.Env = append(append(os.Environ(), "TMPDIR="+c.Temp()), o.Env...)
	c.cmd.Stdout, c.cmd.Stderr = o.Log, o.Log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ends)
	}()
	if err := c.until(ctx, startTime, "the cluster is ready", c.allReady); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Temp returns the folder for temporary files of every process of the cluster.
func (c *Cluster) Temp() string { return filepath.Join(c.Dir, "tmp") }

// State reads what runs now.
func (c *Cluster) State() (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(c.Dir, "cluster.json"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("cluster.json: %w", err)
	}
	return s, nil
}

// allReady returns why not all of the cluster is ready, nil if it is.
func (c *Cluster) allReady() error {
	s, err := c.State()
	if err != nil {
		return err
	}
	if len(s.Gateways) != c.Gateways || len(s.Workers) != c.Workers && c.Autoscale == "" {
		return fmt.Errorf("cluster.json lists %d gateways and %d workers", len(s.Gateways), len(s.Workers))
	}
	for i, g := range s.Gateways {
		if err := ready(g.URL); err != nil {
			return fmt.Errorf("gateway %d: %w", i, err)
		}
	}
	for i, w := range s.Workers {
		if err := ready(w.ProbeURL); err != nil {
			return fmt.Errorf("worker %d: %w", i, err)
		}
	}
	return nil
}

var probe = &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ready asks for url/readyz.
func ready(url string) error {
	url = strings.TrimSuffix(url, "/readyz") + "/readyz"
	resp, err := probe.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // only for the error's words
		return fmt.Errorf("%s is %d: %s", url, resp.StatusCode, b)
	}
	return nil
}

// until looks every 20 ms whether a condition holds, and returns its last error after limit.
func (c *Cluster) until(ctx context.Context, limit time.Duration, what string, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v not yet: %s: %w", limit, what, err)
		case <-c.ends:
			return fmt.Errorf("sie-gateway dev ended (%v) before %s: %w", c.err, what, err)
		case <-tick.C:
		}
	}
}

// Scale makes the number of workers n, and returns when those that came are ready and those that go
// have drained.
func (c *Cluster) Scale(ctx context.Context, n int) error {
	cmd := exec.CommandContext(ctx, c.Binary, "dev", "scale", strconv.Itoa(n), "--state-dir", c.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scale to %d workers: %w: %s", n, err, out)
	}
	return nil
}

// stopTime bounds a cluster's end.
const stopTime = 60 * time.Second

// Stop ends the cluster as Ctrl-C does, and returns an error unless it ends in time, with status 0,
// and leaves no process.
func (c *Cluster) Stop() error {
	s, stateErr := c.State()
	_ = c.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-c.ends:
	case <-time.After(stopTime):
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // what is left of the group
		<-c.ends
		return fmt.Errorf("the cluster did not end in %v", stopTime)
	}
	if c.err != nil {
		return fmt.Errorf("the end of the cluster: %w", c.err)
	}
	if stateErr != nil {
		return stateErr
	}
	return s.gone()
}

// gone returns an error that names a process of s that still runs.
func (s *State) gone() error {
	pids := map[string]int{"nats": s.NATS.PID, "config": s.Config.PID}
	for i, g := range s.Gateways {
		pids[fmt.Sprintf("gateway %d", i)] = g.PID
	}
	for i, w := range s.Workers {
		pids[fmt.Sprintf("server %d", i)], pids[fmt.Sprintf("sidecar %d", i)] = w.ServerPID, w.SidecarPID
	}
	for name, pid := range pids {
		if pid > 0 && syscall.Kill(pid, 0) == nil {
			return fmt.Errorf("%s (process %d) runs after the cluster has ended", name, pid)
		}
	}
	return nil
}
