package dev

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/bus"
)

// Options configures a cluster.
type Options struct {
	Host      string     // that the gateways listen on; everything else listens on 127.0.0.1
	Port      int        // of the first gateway; 0: New finds a range that is free
	Gateways  int        // 1 to MaxGateways
	Workers   int        // 0 to MaxWorkers; with Autoscale the most of each lane
	NATSPort  int        // of the first NATS server; 0: Port + 10
	NATSNodes int        // 1 or 3
	NATSURL   string     // of NATS servers that run already; empty: the cluster runs its own
	Access    bus.Access // to the servers of NATSURL
	Replicas  int        // of work streams, 1 or 3; 0: NATSNodes
	Lanes     []bus.Lane
	Storage   string // of work streams: memory or file
	Auth      bool   // NATS has users
	StateDir  string
	BinDir    string   // where the programs are
	Models    []string // that the servers serve; empty: the catalog's
	ModelsDir string   // of model files in place of the built-in catalog; empty: that
	Device    string   // of the servers; empty: what they choose
	Restart   bool     // start again what ended
	Autoscale bool     // start without workers; requests and pools start them
	Triggers  string   // file of ScaledObjects, with Autoscale; empty: the built-in ones

	Log *slog.Logger // what happens to processes
	Out io.Writer    // progress, and where to send what

	defaults []string // ids for routes that name no model; set by documents
}

// The bounds of a cluster on one machine.
const (
	MaxGateways = 8
	MaxWorkers  = 64
)

// local is where everything but the gateways listens.
const local = "127.0.0.1"

// The ports of a cluster, relative to the first gateway's. They are fixed, so that a process has
// the same port after a restart, and no outgoing connection can take it meanwhile.
const (
	configOffset  = 8                            // and its metrics, which need no token, behind it
	natsOffset    = 10                           // to 12
	routeOffset   = 13                           // to 15, of NATS servers among each other
	workersOffset = 20                           // two for each worker: the sidecar's and the server's
	metricsOffset = workersOffset + 2*MaxWorkers // of each gateway's metrics, which need no key
	lastOffset    = metricsOffset + MaxGateways - 1
)

// first returns how many workers the cluster begins with.
func (o *Options) first() int {
	if o.Autoscale {
		return 0
	}
	return o.Workers
}

// nodes returns how many NATS servers the cluster runs.
func (o *Options) nodes() int {
	if o.NATSURL != "" {
		return 0
	}
	return o.NATSNodes
}

func (o *Options) natsPort(i int) int {
	if o.NATSPort != 0 {
		return o.NATSPort + i
	}
	return o.Port + natsOffset + i
}
func (o *Options) routePort(i int) int   { return o.natsPort(0) + routeOffset - natsOffset + i }
func (o *Options) configPort() int       { return o.Port + configOffset }
func (o *Options) configMetrics() int    { return o.configPort() + 1 }
func (o *Options) metricsPort(i int) int { return o.Port + metricsOffset + i }
func (o *Options) sidecarPort(i int) int { return o.Port + workersOffset + 2*i }
func (o *Options) serverPort(i int) int  { return o.Port + workersOffset + 2*i + 1 }

// The files of a cluster.
func (o *Options) path(elements ...string) string {
	return filepath.Join(append([]string{o.StateDir}, elements...)...)
}
func (o *Options) socket(worker int) string {
	return o.path("run", "w"+strconv.Itoa(worker), "ipc.sock")
}
func (o *Options) control() string { return o.path("run", "control.sock") }

// maxSocketPath is what the kernel takes as the address of a Unix socket.
const maxSocketPath = 107

// programs are what a cluster runs besides sie-gateway.
var programs = []string{"sie-gateway", "sie-config", "sie-sidecar", "sie-server"}

// Check returns all that is wrong with o. It opens nothing but the programs and ports.
func (o *Options) Check() error {
	var all []error
	wrong := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	in := func(flag string, n, least, most int) {
		if n < least || n > most {
			wrong("--%s must be between %d and %d; got %d", flag, least, most, n)
		}
	}
	in("gateways", o.Gateways, 1, MaxGateways)
	in("workers", o.Workers, 0, MaxWorkers)
	in("port", o.Port, 0, 65535-lastOffset)
	if o.Replicas != 0 && o.Replicas != 1 && o.Replicas != 3 {
		wrong("--replicas must be 1 or 3; got %d", o.Replicas)
	}
	if o.NATSURL != "" && (o.Auth || o.NATSPort != 0) {
		wrong("--auth and --nats-port are of the cluster's own NATS: give them without --nats-url")
	}
	if o.Triggers != "" && !o.Autoscale {
		wrong("--triggers are the autoscaler's: give them with --autoscale")
	}
	if o.NATSNodes != 1 && o.NATSNodes != 3 {
		wrong("--nats-nodes must be 1 or 3; got %d", o.NATSNodes)
	}
	last := o.Port + lastOffset
	if o.Port != 0 && o.NATSPort != 0 && o.NATSPort <= last && o.NATSPort+5 >= o.Port {
		wrong("--nats-port %d is among the cluster's own ports %d to %d: choose one outside, or none",
			o.NATSPort, o.Port, last)
	}
	if o.NATSPort != 0 {
		in("nats-port", o.NATSPort, 1, 65535-5)
	}
	if o.Storage != "memory" && o.Storage != "file" {
		wrong("--storage must be memory or file; got %q", o.Storage)
	}
	if len(o.Lanes) == 0 {
		wrong("--lanes is empty: name at least one lane, as default/cpu/default")
	}
	for i, l := range o.Lanes {
		if err := l.Validate(); err != nil {
			wrong("--lanes: %w", err)
		}
		for _, m := range o.Lanes[:i] {
			if l == m {
				wrong("--lanes names %s twice", l)
			}
		}
	}
	if socket := o.socket(MaxWorkers - 1); len(socket) > maxSocketPath {
		wrong("--state-dir %s is too long: a socket in it would have %d bytes, and the kernel takes %d",
			o.StateDir, len(socket), maxSocketPath)
	}
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil {
			wrong("%s is not in %s: build it with `make build`, or say where it is with --bin-dir", name, o.BinDir)
		}
	}
	return errors.Join(all...)
}

// checkPorts returns an error that names each port that is taken, and what it was for.
func (o *Options) checkPorts() error {
	var all []error
	check := func(host string, port int, role string, flag string) {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			all = append(all,
				fmt.Errorf("port %d, of %s, is taken (%w): choose another %s", port, role, err, flag))
			return
		}
		_ = l.Close()
	}
	for i := range o.Gateways {
		check(o.Host, o.Port+i, name(Gateway, i), "--port")
		check(local, o.metricsPort(i), "the metrics of "+name(Gateway, i), "--port")
	}
	check(local, o.configPort(), Config, "--port")
	check(local, o.configMetrics(), "the metrics of "+Config, "--port")
	flag := "--port"
	if o.NATSPort != 0 {
		flag = "--nats-port"
	}
	for i := range o.nodes() {
		check(local, o.natsPort(i), name(NATS, i), flag)
		if o.NATSNodes > 1 {
			check(local, o.routePort(i), name(NATS, i), flag)
		}
	}
	for i := range o.Workers {
		check(local, o.sidecarPort(i), name(Sidecar, i), "--port")
		check(local, o.serverPort(i), name(Server, i), "--port")
	}
	return errors.Join(all...)
}

// Ports that are found lie below those that the kernel gives to outgoing connections.
const (
	leastPort  = 15000
	mostPort   = 32000 - lastOffset
	portRanges = 200 // looked at before giving up
)

// findPorts sets Port to one from which all ports of the cluster are free.
func (o *Options) findPorts() (err error) {
	for range portRanges {
		o.Port = leastPort + rand.IntN(mostPort-leastPort)
		if err = o.checkPorts(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("--port 0: no free range was found: %w", err)
}

// DefaultDir returns the state directory of this user's cluster where none is named.
func DefaultDir() string {
	return filepath.Join(os.TempDir(), "sie-dev-"+strconv.Itoa(os.Getuid()))
}

// ParseLane reads "pool/profile/bundle".
func ParseLane(s string) (bus.Lane, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return bus.Lane{}, fmt.Errorf("--lanes %q is no lane: write pool/machine-profile/bundle", s)
	}
	l := bus.Lane{Pool: parts[0], Profile: parts[1], Bundle: parts[2]}
	return l, l.Validate()
}
