package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Disk says where the nodes keep their streams.
type Disk struct {
	Tmpfs string // its size, "" for a folder of Dir
	Sync  bool
}

// Nodes are NATS servers in processes of their own, each behind a Proxy. One that ends is started
// again, as a cluster's supervisor does. The methods are safe for concurrent use.
type Nodes struct {
	Proxies []*Proxy

	nodes []*node
	done  sync.WaitGroup
	stop  chan struct{}
}

type node struct {
	config NodeConfig

	mu   sync.Mutex
	cmd  *exec.Cmd
	hold bool // not started again
	wake chan struct{}
	err  error // why the last start failed
}

// restartWait is the pause before a node that ended is started again.
const restartWait = 300 * time.Millisecond

// StartNodes starts n servers (1 or 3) and waits until they have a leader.
func StartNodes(ctx context.Context, dir string, n int, d Disk) (*Nodes, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	s := &Nodes{stop: make(chan struct{})}
	var routes []string
	for i := range n {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[n+i]))
	}
	for i := range n {
		c := NodeConfig{
			Name: fmt.Sprintf("node%d", i), Port: ports[i], Store: filepath.Join(dir,
				fmt.Sprintf("node%d", i)),
			Tmpfs: d.Tmpfs, Sync: d.Sync,
		}
		if n > 1 {
			c.Peers, c.Routes = ports[n+i], routes
		}
		p, err := StartProxy(fmt.Sprintf("127.0.0.1:%d", ports[i]))
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		x := &node{config: c, wake: make(chan struct{}, 1)}
		s.Proxies, s.nodes = append(s.Proxies, p), append(s.nodes, x)
		s.done.Go(func() { x.run(s.stop) })
	}
	if err := s.Ready(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// run keeps a node running until stop.
func (x *node) run(stop <-chan struct{}) {
	for {
		cmd, err := x.start()
		if err == nil {
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait() // killed, as a rule
				close(ended)
			}()
			select {
			case <-ended:
			case <-stop:
				_ = cmd.Process.Signal(syscall.SIGCONT)
				_ = cmd.Process.Kill()
				<-ended
				return
			}
		}
		x.mu.Lock()
		x.cmd, x.err = nil, err
		x.mu.Unlock()
		select {
		case <-stop:
			return
		case <-time.After(restartWait):
		}
		for x.held() {
			select {
			case <-stop:
				return
			case <-x.wake:
			}
		}
	}
}

func (x *node) held() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.hold
}

// NodeCommand is the hidden command of this program that runs a node; its argument is a NodeConfig.
const NodeCommand = "nats-node"

func (x *node) start() (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(x.config)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, NodeCommand, string(config))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if x.config.Tmpfs != "" {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		if os.Getuid() != 0 {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	x.cmd = cmd
	return cmd, nil
}

// PID returns the process of node i.
func (s *Nodes) PID(i int) (int, error) {
	x := s.nodes[i]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cmd == nil {
		return 0, fmt.Errorf("node %d does not run (%w)", i, x.err)
	}
	return x.cmd.Process.Pid, nil
}

// Signal sends a signal to node i.
func (s *Nodes) Signal(i int, sig syscall.Signal) error {
	pid, err := s.PID(i)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}

// Path returns a path below node i's store as this process sees it, also where a tmpfs hides it.
func (s *Nodes) Path(i int, name string) (string, error) {
	pid, err := s.PID(i)
	if err != nil {
		return "", err
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), s.nodes[i].config.Store, name), nil
}

// URL returns where components find the nodes: the proxies.
func (s *Nodes) URL() string {
	var urls []string
	for _, p := range s.Proxies {
		urls = append(urls, p.URL())
	}
	return strings.Join(urls, ",")
}

// Direct returns the nodes themselves, past the proxies.
func (s *Nodes) Direct() string {
	var urls []string
	for _, x := range s.nodes {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", x.config.Port))
	}
	return strings.Join(urls, ",")
}

// leaderTime bounds the wait for a leader.
const leaderTime = 3 * time.Minute

// Ready waits until every node answers, and every stream and every consumer has a leader.
func (s *Nodes) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		if last = s.ready(ctx); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("the NATS nodes are not ready: %w", last)
}

func (s *Nodes) ready(ctx context.Context) error {
	for _, x := range s.nodes {
		c, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", x.config.Port), nats.Timeout(time.Second))
		if err != nil {
			return err
		}
		defer c.Close()
		js, err := jetstream.New(c)
		if err != nil {
			return err
		}
		few, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err = js.AccountInfo(few)
		if err == nil {
			err = led(few, js)
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// led returns an error unless every stream and every consumer has a leader: without one it answers
// nobody, and the broker is not back.
func led(ctx context.Context, js jetstream.JetStream) error {
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		s, err := js.Stream(ctx, name) // the leader answers
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		want, got := s.CachedInfo().State.Consumers, 0
		list := s.ListConsumers(ctx)
		for info := range list.Info() {
			if c := info.Cluster; c == nil || c.Leader != "" || len(c.Replicas) == 0 {
				got++
			}
		}
		if err := list.Err(); err != nil {
			return fmt.Errorf("consumers of %s: %w", name, err)
		}
		if got < want {
			return fmt.Errorf("%d of %d consumers of %s have a leader", got, want, name)
		}
	}
	return names.Err()
}

// Stop ends nodes and proxies.
func (s *Nodes) Stop() error {
	close(s.stop)
	s.done.Wait()
	for _, p := range s.Proxies {
		p.Close()
	}
	return nil
}

// Back waits until the first nodes run in other processes than old, and the cluster has a leader.
func (s *Nodes) Back(ctx context.Context, old []int) error {
	ctx, cancel := context.WithTimeout(ctx, backTime)
	defer cancel()
	for i, pid := range old {
		for {
			now, err := s.PID(i)
			if err == nil && now != pid {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("node %d did not start again in %v: %w", i, backTime, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return s.Ready(ctx)
}
