package rig

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NodeConfig is what NodeCmd runs.
type NodeConfig struct {
	Name   string   // of the server, unique in its cluster
	Port   int      // for clients
	Peers  int      // port for the other servers; 0: a single server
	Routes []string // URLs of all servers' Peers
	Store  string   // folder; made
	Tmpfs  string   // size of a file system in memory that is mounted on Store, "" for none
	Sync   bool     // every write reaches the disk before it is answered
}

// NodeCmd is the hidden command NodeCommand, for Kong, of a program that calls StartNodes.
type NodeCmd struct {
	Config string `arg:"" help:"A NodeConfig as JSON."`
}

// Run serves until SIGTERM or SIGINT.
func (c *NodeCmd) Run() error {
	var n NodeConfig
	if err := json.Unmarshal([]byte(c.Config), &n); err != nil {
		return fmt.Errorf("%s: %w", NodeCommand, err)
	}
	return runNode(n)
}

// storeBytes is what a node may keep, in memory and on disk.
const storeBytes = 1 << 30

// runNode runs a real NATS server until SIGTERM or SIGINT. With Tmpfs the process must have been
// started in a mount namespace of its own.
func runNode(n NodeConfig) error {
	if err := os.MkdirAll(n.Store, 0o700); err != nil {
		return err
	}
	if n.Tmpfs != "" {
		if err := syscall.Mount("tmpfs", n.Store, "tmpfs", 0, "mode=700,size="+n.Tmpfs); err != nil {
			return fmt.Errorf("mount a tmpfs of %s on %s: %w", n.Tmpfs, n.Store, err)
		}
	}
	o := &server.Options{
		ServerName: n.Name, Host: "127.0.0.1", Port: n.Port, NoSigs: true, JetStream: true,
		StoreDir:           n.Store,
		JetStreamMaxMemory: storeBytes, JetStreamMaxStore: storeBytes, SyncAlways: n.Sync,
		MaxPayload: 1 << 20,
		Logtime:    true, LogFile: filepath.Join(n.Store, "..", n.Name+".log"), LogSizeLimit: 16 << 20,
	}
	if n.Tmpfs != "" {
		o.LogFile = n.Store + ".log"
	}
	if n.Peers != 0 {
		// A server that advertised the others would lead clients past the proxies.
		o.Cluster = server.ClusterOpts{Name: "chaos", Host: "127.0.0.1", Port: n.Peers, NoAdvertise: true}
		for _, r := range n.Routes {
			u, err := url.Parse(r)
			if err != nil {
				return err
			}
			o.Routes = append(o.Routes, u)
		}
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, os.Interrupt)
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		s.Shutdown()
		return fmt.Errorf("NATS server %s is not ready after 20 s", n.Name)
	}
	<-ends
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
