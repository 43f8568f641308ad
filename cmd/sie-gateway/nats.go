package main

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/build"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/heap"
	"github.com/sie-engine/sie/internal/obs"
)

// natsCmd is the broker in a process of its own, so that it can be killed like one.
type natsCmd struct {
	Host       string `help:"Address to listen on, for clients and for the other servers." default:"127.0.0.1"`
	Port       int    `help:"Port for clients; 0 takes a free one." short:"p" default:"4222" range:"0..65535"`
	StoreDir   string `help:"Directory of JetStream; required without --config." type:"path"`
	MaxMemory  int64  `help:"Bytes of all streams in memory." default:"1073741824" range:"1048576..1099511627776"`
	MaxStore   int64  `help:"Bytes of all streams in files." default:"10737418240" range:"1048576..109951162777600"`
	MaxPayload int    `help:"Bytes of a message." default:"1048576" range:"65536..67108864"`
	Auth       string `help:"File of the users' passwords, made with random ones where it does not exist. Without it everybody may do everything." type:"path"`

	ServerName  string   `help:"Name of this server in its cluster."`
	ClusterName string   `help:"Name of the cluster of three; the same on each."`
	ClusterPort int      `help:"Port for the other servers." range:"0..65535"`
	Routes      []string `help:"Addresses of the other servers, as nats://host:cluster-port." sep:","`
	HTTP        int      `name:"http" help:"Port of NATS's monitoring pages; 0: none." range:"0..65535"`

	LameDuck time.Duration `help:"With --config, as one of several: time in which a server that stops sends its clients to the others, one by one." default:"2s" range:"1s..10m" env:"SIE_NATS_LAME_DUCK"`

	Config    string `help:"File in NATS's own format, which says all of the above in their place. Read again when it, a certificate or a password in it changes." type:"path" env:"SIE_NATS_CONFIG"`
	Passwords string `help:"Directory with a file for each password that --config refers to: $sie_gateway_password is in the file gateway." type:"path" env:"SIE_NATS_PASSWORDS"`

	JSONLogs bool `help:"Log JSON." env:"SIE_LOG_JSON"`
}

// Check returns what is wrong with the flags beyond their ranges.
func (c *natsCmd) Check() error {
	switch {
	case c.Config == "" && c.StoreDir == "":
		return errors.New("missing flags: --store-dir, or --config")
	case c.Config != "" && c.StoreDir+c.Auth+c.ServerName+c.ClusterName != "":
		return errors.New("--config says all: give no --store-dir, --auth, --server-name or --cluster-name with it")
	case c.Config == "" && c.Passwords != "":
		return errors.New("--passwords are those of --config: give both")
	}
	return nil
}

// Run serves until SIGTERM or an interrupt.
func (c *natsCmd) Run() error {
	ctx, cancel := sie.UntilSignal()
	defer cancel()
	log := obs.NewLogger(os.Stderr, c.JSONLogs, false)
	heap.GiveRoom()
	s, err := c.open(log)
	if err != nil {
		return err
	}
	log.Info("sie-gateway nats", "version", build.Version, "commit", build.Commit, "store", c.StoreDir,
		"config", c.Config)
	return s.Run(ctx, func(url string) { log.Info("ready", "url", url) })
}

// open returns the server that the flags ask for.
func (c *natsCmd) open(log *slog.Logger) (*broker.Server, error) {
	if c.Config != "" {
		return broker.Open(broker.File{Path: c.Config, Passwords: c.Passwords, LameDuck: c.LameDuck,
			Log: log})
	}
	o := broker.Options{
		Host: c.Host, Port: c.Port, Monitor: c.HTTP, StoreDir: c.StoreDir, MaxMemory: c.MaxMemory,
		MaxStore: c.MaxStore, MaxPayload: c.MaxPayload, ServerName: c.ServerName,
		ClusterName: c.ClusterName, ClusterPort: c.ClusterPort, Routes: c.Routes, Log: log,
	}
	if c.Auth != "" {
		users, err := broker.ReadUsers(c.Auth)
		if err != nil {
			return nil, err
		}
		o.Users = users
	}
	return broker.New(o)
}
