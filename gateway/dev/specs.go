package dev

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
)

// maxMemoryOfPool is what NATS may hold for each pool, and for dead letters. maxPools are those
// that clients may make; what gateways hold bounds what all of them have.
const (
	maxMemoryOfPool = 320 << 20
	maxPools        = 64
)

func (o *Options) program(name string) string { return filepath.Join(o.BinDir, name) }

func address(scheme, host string, port int) string {
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// natsURL returns the addresses of all NATS servers.
func (o *Options) natsURL() string {
	if o.NATSURL != "" {
		return o.NATSURL
	}
	var all []string
	for i := range o.NATSNodes {
		all = append(all, address("nats", local, o.natsPort(i)))
	}
	return strings.Join(all, ",")
}

// access returns how a component shows NATS who it is. user and password are those of the cluster's
// own NATS, "" without --auth.
func (o *Options) access(user, password string) bus.Access {
	switch {
	case o.NATSURL != "":
		return o.Access
	case password == "":
		return bus.Access{}
	}
	return bus.Access{User: user, Password: password}
}

// processors returns the setting for a process that passes messages on: at most n of the CPUs, so
// that what waits for a message does not wake a second thread for each, beside workers that need
// the CPUs more. Whoever sets GOMAXPROCS has it in all processes.
func processors(n int) []string {
	if os.Getenv("GOMAXPROCS") != "" {
		return nil
	}
	return []string{"GOMAXPROCS=" + strconv.Itoa(max(n, 1))}
}

func (o *Options) natsSpec(i int) spec {
	pools := map[string]bool{}
	for _, l := range o.Lanes {
		pools[l.Pool] = true
	}
	memory := int64(len(pools)+1+maxPools) * maxMemoryOfPool
	s := spec{role: NATS, index: i, argv: []string{
		o.program("sie-gateway"), "nats", "--host", local, "--port", strconv.Itoa(o.natsPort(i)),
		"--store-dir", o.path("nats", strconv.Itoa(i)), "--max-memory", strconv.FormatInt(memory, 10),
	}, env: processors(1), probe: listens("tcp", net.JoinHostPort(local, strconv.Itoa(o.natsPort(i))))}
	if o.Auth {
		s.argv = append(s.argv, "--auth", o.usersFile())
	}
	if o.NATSNodes == 1 {
		return s
	}
	s.argv = append(s.argv, "--server-name", "nats-"+strconv.Itoa(i), "--cluster-name", "sie-dev",
		"--cluster-port", strconv.Itoa(o.routePort(i)))
	for j := range o.NATSNodes {
		if j != i {
			s.argv = append(s.argv, "--routes", address("nats", local, o.routePort(j)))
		}
	}
	return s
}

func (o *Options) usersFile() string { return o.path("nats-users.json") }

func (o *Options) configURL() string { return address("http", local, o.configPort()) }

func (o *Options) configSpec(u *broker.Users) spec {
	access := o.access(broker.ConfigUser, u.Config)
	s := spec{
		role: Config,
		argv: []string{
			o.program("sie-config"), "serve", "--host", local, "--port", strconv.Itoa(o.configPort()),
			"--metrics-host", local, "--metrics-port", strconv.Itoa(o.configMetrics()),
		},
		env:   append(access.Environ(), "SIE_NATS_URL="+o.natsURL()),
		unset: []string{"SIE_TLS_CERT", "SIE_TLS_KEY"}, // the certificate is that of the gateways
		probe: answers(o.configURL() + "/readyz"),
	}
	if dir := o.documentsDir(); dir != "" {
		s.env = append(s.env, "SIE_MODELS_DIR="+dir)
	}
	if os.Getenv("SIE_CONFIG_STORE_DIR") == "" { // else it is inherited
		s.env = append(s.env, "SIE_CONFIG_STORE_DIR="+o.path("config"))
	}
	return s
}

// reachable returns an address at which a server on host answers.
func reachable(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return local
	}
	return host
}

// gatewayURL returns the address of a gateway's API, which has the certificate that it inherits.
func (o *Options) gatewayURL(i int) string {
	scheme := "http"
	if os.Getenv("SIE_TLS_CERT") != "" {
		scheme = "https"
	}
	return address(scheme, reachable(o.Host), o.Port+i)
}

// openURL returns the address of a page of a gateway that needs neither a key nor TLS, for whoever
// is on this machine.
func (o *Options) openURL(i int, page string) string {
	return address("http", local, o.metricsPort(i)) + page
}

func (o *Options) metricsURL(i int) string { return o.openURL(i, "/metrics") }

func (o *Options) gatewaySpec(i int, u *broker.Users) (spec, error) {
	lanes, err := json.Marshal(o.Lanes)
	if err != nil {
		return spec{}, err
	}
	access := o.access(broker.GatewayUser, u.Gateway)
	s := spec{
		role: Gateway, index: i,
		argv: []string{
			o.program("sie-gateway"), "serve", "--host", o.Host, "--port", strconv.Itoa(o.Port + i),
			"--metrics-host", local, "--metrics-port", strconv.Itoa(o.metricsPort(i)),
		},
		env: append(append(access.Environ(), processors(runtime.NumCPU()/2)...),
			"SIE_NATS_URL="+o.natsURL(), "SIE_CONFIG_SERVICE_URL="+o.configURL(),
			"SIE_GATEWAY_URL="+o.gatewayURL(i),
			"SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES="+string(lanes),
			"SIE_PAYLOAD_STORE_URL="+o.path("payloads"),
			"SIE_STREAM_STORAGE="+o.Storage, o.replicas()),
		probe: answers(o.openURL(i, "/readyz")),
	}
	if os.Getenv("SIE_DEFAULT_MODEL") == "" && len(o.defaults) > 0 { // else it is inherited
		s.env = append(s.env, "SIE_DEFAULT_MODEL="+strings.Join(o.defaults, ","))
	}
	return s, nil
}

// replicas returns the setting of whoever makes a work stream.
func (o *Options) replicas() string {
	return "SIE_STREAM_REPLICAS=" + strconv.Itoa(cmp.Or(o.Replicas, o.NATSNodes))
}

func workerID(i int) string { return "worker-" + strconv.Itoa(i) }

func (o *Options) serverSpec(i int, lane bus.Lane) spec {
	s := spec{role: Server, index: i, argv: []string{
		o.program("sie-server"), "serve", "--host", local, "--port", strconv.Itoa(o.serverPort(i)),
		"--ipc-socket", o.socket(i),
	}, env: []string{"SIE_POOL=" + lane.Pool, "SIE_MACHINE_PROFILE=" + lane.Profile,
		"SIE_METRICS_PORT=0"}, // one for all would be taken twice
		probe: listens("unix", o.socket(i))}
	if o.ModelsDir != "" {
		s.argv = append(s.argv, "--models-dir", o.ModelsDir)
	}
	for _, m := range o.Models {
		s.argv = append(s.argv, "-m", m)
	}
	if len(o.Models) == 0 {
		s.argv = append(s.argv, "--bundle", lane.Bundle)
	}
	if o.Device != "" {
		s.argv = append(s.argv, "--device", o.Device)
	}
	return s
}

func (o *Options) sidecarURL(i int, page string) string {
	return address("http", local, o.sidecarPort(i)) + page
}

func (o *Options) sidecarSpec(i int, lane bus.Lane, u *broker.Users) spec {
	access := o.access(broker.WorkerUser, u.Worker)
	return spec{
		role: Sidecar, index: i, argv: []string{o.program("sie-sidecar")},
		env: append(access.Environ(),
			"SIE_NATS_URL="+o.natsURL(), "SIE_POOL="+lane.Pool, "SIE_BUNDLE="+lane.Bundle,
			"SIE_MACHINE_PROFILE="+lane.Profile, "SIE_WORKER_ID="+workerID(i),
			"SIE_IPC_SOCKET_PATH="+o.socket(i), "SIE_CONFIG_SERVICE_URL="+o.configURL(),
			"SIE_PAYLOAD_STORE_URL="+o.path("payloads"),
			"SIE_STREAM_STORAGE="+o.Storage, o.replicas(), "SIE_WORKER_PROBE_HOST="+local,
			fmt.Sprintf("SIE_WORKER_PROBE_PORT=%d", o.sidecarPort(i))),
		probe: answers(o.sidecarURL(i, "/readyz")),
	}
}
