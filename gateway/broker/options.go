package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Options configures a server.
type Options struct {
	Host       string // address for clients, routes and monitoring
	Port       int    // for clients; 0 takes a free one
	Monitor    int    // port of the monitoring pages of NATS; 0: none
	StoreDir   string // of JetStream; made where it does not exist
	MaxMemory  int64  // bytes of all streams with memory storage
	MaxStore   int64  // bytes of all streams with file storage
	MaxPayload int    // bytes of a message
	Users      *Users // nil: everybody may do everything
	Log        *slog.Logger

	// The fields of a cluster: all of them, or none.
	ServerName  string
	ClusterName string
	ClusterPort int
	Routes      []string // nats://host:port of the other servers' cluster ports
}

const (
	// startTime bounds the time from opening the ports to serving.
	startTime = 20 * time.Second
	// A server of a cluster that stops tells its clients, waits lameDuckGrace and then closes their
	// connections one by one within lameDuck. A server alone has nobody to send them to.
	lameDuck      = 2 * time.Second
	lameDuckGrace = 200 * time.Millisecond
	// writeDeadline bounds a write to a client; a client that reads slower is cut off.
	writeDeadline = 10 * time.Second
)

// check returns all that is wrong with o.
func (o *Options) check() error {
	var all []error
	wrong := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if o.StoreDir == "" {
		wrong("--store-dir is empty: name a directory for JetStream")
	}
	cluster := o.ClusterName != "" || o.ClusterPort != 0 || len(o.Routes) > 0
	if cluster && (o.ClusterName == "" || o.ClusterPort == 0 || len(o.Routes) == 0 || o.ServerName == "") {
		wrong("a cluster needs --server-name, --cluster-name, --cluster-port and --routes together")
	}
	for _, r := range o.Routes {
		u, err := url.Parse(r)
		if err != nil || u.Scheme != "nats" || u.Hostname() == "" || u.Port() == "" || u.User != nil {
			wrong("--routes %q is no route: write nats://host:port of another server's --cluster-port", r)
		}
	}
	ports := map[int]string{}
	for _, p := range []struct {
		name string
		port int
	}{{"--port", o.Port}, {"--cluster-port", o.ClusterPort}, {"--http", o.Monitor}} {
		if other, taken := ports[p.port]; taken && p.port != 0 {
			wrong("%s and %s are both %d: give each a port of its own", other, p.name, p.port)
		}
		ports[p.port] = p.name
	}
	return errors.Join(all...)
}

// nats returns the options of the NATS server.
func (o *Options) nats() *server.Options {
	n := &server.Options{
		ServerName: o.ServerName, Host: o.Host, Port: o.Port, MaxPayload: int32(o.MaxPayload),
		JetStream: true, StoreDir: o.StoreDir, JetStreamMaxMemory: o.MaxMemory,
		JetStreamMaxStore: o.MaxStore, NoSigs: true, DisableJetStreamBanner: true,
		WriteDeadline: writeDeadline, LameDuckDuration: lameDuck, LameDuckGracePeriod: lameDuckGrace,
	}
	if o.Port == 0 {
		n.Port = server.RANDOM_PORT
	}
	if o.Monitor != 0 {
		n.HTTPHost, n.HTTPPort = o.Host, o.Monitor
	}
	if o.Users != nil {
		n.Users = o.Users.nats()
	}
	if o.ClusterName == "" {
		return n
	}
	n.Cluster = server.ClusterOpts{Name: o.ClusterName, Host: o.Host, Port: o.ClusterPort}
	if o.Users != nil {
		n.Cluster.Username, n.Cluster.Password = routeUser, o.Users.Route
	}
	for _, r := range o.Routes {
		u, _ := url.Parse(r) // check has parsed it
		if o.Users != nil {
			u.User = url.UserPassword(routeUser, o.Users.Route)
		}
		n.Routes = append(n.Routes, u)
	}
	return n
}

// freePort returns an error that names the flag when a port cannot be opened. NATS itself would end
// the process.
func freePort(flag, host string, port int) error {
	if port == 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("%s %d: %w; is another server on this port?", flag, port, err)
	}
	return l.Close()
}
