package dev

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
)

// The test's own binary, under the names of the programs, stands in for them: NATS is the real one,
// the others listen where they are told and end when they are told. As "cluster" it runs a cluster.
func TestMain(m *testing.M) {
	role := filepath.Base(os.Args[0])
	if !slices.Contains(programs, role) && role != "cluster" {
		// Under the race detector a process waits a second at its end unless it is told not to.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	if err := standIn(role, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// flagsOf returns the values of flags by name; the last of several wins, and all of "routes".
func flagsOf(args []string) (one map[string]string, routes []string) {
	one = map[string]string{}
	for i := 0; i+1 < len(args); i++ {
		if name, ok := strings.CutPrefix(args[i], "--"); ok {
			one[name] = args[i+1]
			if name == "routes" {
				routes = append(routes, args[i+1])
			}
		}
	}
	return one, routes
}

func standIn(role string, args []string) error {
	if len(args) > 0 && args[0] == "models" {
		if os.Getenv("SIE_TEST_NO_MODEL") != "" {
			return errors.New("no such model")
		}
		given, _ := flagsOf(args)
		fmt.Println("org/b\norg/a")
		return os.MkdirAll(given["documents"], 0o700)
	}
	if why := os.Getenv("SIE_TEST_FAIL_" + strings.TrimPrefix(role, "sie-")); why != "" {
		return fmt.Errorf("%s", why)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	given, routes := flagsOf(args)
	if role == "cluster" {
		return runCluster(ctx)
	}
	if len(args) > 0 && args[0] == "nats" {
		return runNATS(ctx, given, routes)
	}
	network, at := "tcp", net.JoinHostPort("127.0.0.1", given["port"])
	switch role {
	case "sie-server":
		network, at = "unix", given["ipc-socket"]
	case "sie-sidecar":
		at = net.JoinHostPort("127.0.0.1", os.Getenv("SIE_WORKER_PROBE_PORT"))
	}
	_ = os.Remove(given["ipc-socket"])
	l, err := net.Listen(network, at)
	if err != nil {
		return err
	}
	if cert := os.Getenv("SIE_TLS_CERT"); cert != "" && (role == "sie-gateway" || role == "sie-config") {
		pair, err := tls.LoadX509KeyPair(cert, os.Getenv("SIE_TLS_KEY"))
		if err != nil {
			return err
		}
		c := &tls.Config{Certificates: []tls.Certificate{pair}}
		if role == "sie-gateway" && os.Getenv("SIE_TLS_CLIENT_CA") != "" {
			c.ClientAuth = tls.RequireAnyClientCert
		}
		l = tls.NewListener(l, c)
	}
	// What a gateway of four workers says on /health, on every page of everything.
	health := []byte(`{"workers":[` + strings.Repeat(`{"healthy":true},`, 3) + `{"healthy":true}]}`)
	locked := role == "sie-gateway" && os.Getenv("SIE_TEST_KEYS") != ""
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if locked && q.URL.Path != "/readyz" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = w.Write(health)
		}))
	}()
	if role == "sie-gateway" {
		if err := serveDemand(net.JoinHostPort(given["metrics-host"], given["metrics-port"])); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return note(role)
}

// serveDemand serves the metrics of a gateway with demand for one worker of the pool default.
func serveDemand(at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintln(w, `sie_gateway_pending_demand{pool="default",machine_profile="cpu",`+
				`bundle="default"} 1`)
		}))
	}()
	return nil
}

// note adds a role to the file of those that ended in order.
func note(role string) error {
	f, err := os.OpenFile(os.Getenv("SIE_TEST_ENDS"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(role + "\n")
	return err
}

func runNATS(ctx context.Context, given map[string]string, routes []string) error {
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	s, err := broker.New(broker.Options{
		Host: given["host"], Port: number(given["port"]), StoreDir: given["store-dir"],
		MaxMemory: int64(number(given["max-memory"])), MaxStore: 1 << 30, MaxPayload: 1 << 20,
		ServerName: given["server-name"], ClusterName: given["cluster-name"],
		ClusterPort: number(given["cluster-port"]), Routes: routes,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := s.Run(ctx, func(string) {}); err != nil {
		return err
	}
	return note("nats")
}

// runCluster runs a cluster whose options are in the environment.
func runCluster(ctx context.Context) error {
	port, err := strconv.Atoi(os.Getenv("SIE_TEST_PORT"))
	if err != nil {
		return err
	}
	o := options(os.Getenv("SIE_TEST_BIN"), os.Getenv("SIE_TEST_STATE"), port)
	c, err := New(o)
	if err != nil {
		return err
	}
	return c.Run(ctx, context.Background())
}

// options returns the options of a small cluster.
func options(bin, state string, port int) Options {
	return Options{
		Host: "127.0.0.1", Port: port, Gateways: 2, Workers: 2, NATSNodes: 1, Storage: "memory",
		Lanes: []bus.Lane{
			{Pool: "default", Profile: "cpu", Bundle: "default"},
			{Pool: "p2", Profile: "cpu", Bundle: "default"},
		},
		StateDir: state, BinDir: bin, Models: []string{"org/model"}, Device: "null", Restart: true,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Out: os.Stdout,
	}
}
