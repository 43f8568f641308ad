package dev

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
)

// A directory of models is that of sie-config and of the servers; a gateway gets its models from
// sie-config.
func TestTheDirectoryOfModels(t *testing.T) {
	for _, dir := range []string{"", "/models"} {
		o := options("/bin", "/state", 15000)
		o.ModelsDir, o.Models = dir, nil
		given := dir != ""
		server, config := o.serverSpec(0, o.Lanes[0]), o.configSpec(&broker.Users{})
		if i := slices.Index(server.argv, "--models-dir"); (i >= 0) != given ||
			given && server.argv[i+1] != dir {
			t.Errorf("server: %q", server.argv)
		}
		if slices.Contains(config.env, "SIE_MODELS_DIR="+dir) != given {
			t.Errorf("sie-config: %q", config.env)
		}
	}
}

// sie-config keeps what is added, so that its death forgets nothing: in the store that the caller
// names, or beside the rest of the cluster.
func TestTheStoreOfModels(t *testing.T) {
	o := options("/bin", "/state", 15000)
	for _, given := range []string{"", "s3://bucket/x"} {
		t.Setenv("SIE_CONFIG_STORE_DIR", given)
		env := o.configSpec(&broker.Users{}).env
		if slices.Contains(env, "SIE_CONFIG_STORE_DIR=/state/config") != (given == "") {
			t.Errorf("%q: %q", given, env)
		}
	}
}

// The components get the access to NATS that dev was given for servers of --nats-url, and for the
// cluster's own NATS only what that has, whatever the environment says.
func TestAccessToNATS(t *testing.T) {
	t.Setenv("SIE_NATS_CA", "/inherited.pem")
	o := options("/bin", "/state", 15000)
	o.Access = bus.Access{CA: "/ca.pem", Token: "t"}
	check := func(u broker.Users, want ...string) {
		t.Helper()
		gateway, err := o.gatewaySpec(0, &u)
		if err != nil {
			t.Fatal(err)
		}
		sidecar, config := o.sidecarSpec(0, o.Lanes[0], &u), o.configSpec(&u)
		for _, s := range []spec{gateway, sidecar, config} {
			for _, w := range want {
				if !slices.Contains(s.env, w) {
					t.Errorf("%s: %q lacks %s", s.role, s.env, w)
				}
			}
		}
	}
	check(broker.Users{}, "SIE_NATS_CA=", "SIE_NATS_TOKEN=")
	check(broker.Users{Gateway: "p", Worker: "p", Config: "p"}, "SIE_NATS_CA=", "SIE_NATS_TOKEN=",
		"SIE_NATS_PASSWORD=p")
	o.NATSURL = "tls://nats:4222"
	check(broker.Users{}, "SIE_NATS_URL=tls://nats:4222", "SIE_NATS_CA=/ca.pem", "SIE_NATS_TOKEN=t")
}

// If the servers serve some models, sie-config has the files of those that a sie-server wrote, and
// they answer the routes that name none.
func TestDocumentsOfTheServersModels(t *testing.T) {
	state := t.TempDir()
	o := options(bin(t), state, 15000)
	if err := o.documents(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(state, "run", "models")
	if _, err := os.Stat(dir); err != nil || !slices.Contains(o.configSpec(&broker.Users{}).env,
		"SIE_MODELS_DIR="+dir) {
		t.Errorf("%v", err)
	}
	const want = "SIE_DEFAULT_MODEL=org/b,org/a"
	if s, err := o.gatewaySpec(0, &broker.Users{}); err != nil || !slices.Contains(s.env, want) {
		t.Errorf("%v: %q lacks %s", err, s.env, want)
	}
	t.Setenv("SIE_DEFAULT_MODEL", "org/mine") // that of the caller stays
	if s, err := o.gatewaySpec(0, &broker.Users{}); err != nil || slices.Contains(s.env, want) {
		t.Errorf("%v: %q has %s", err, s.env, want)
	}
	t.Setenv("SIE_TEST_NO_MODEL", "1")
	if err := o.documents(t.Context()); err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("%v", err)
	}
}

// Processes that pass messages on get few processors, unless whoever runs the cluster says how many
// each gets.
func TestProcessors(t *testing.T) {
	o := options("/bin", "/state", 15000)
	settings := func() (all []string) {
		gateway, err := o.gatewaySpec(0, &broker.Users{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []spec{o.natsSpec(0), gateway, o.serverSpec(0, o.Lanes[0])} {
			for _, v := range s.env {
				if n, ok := strings.CutPrefix(v, "GOMAXPROCS="); ok {
					all = append(all, s.role+" "+n)
				}
			}
		}
		return all
	}
	t.Setenv("GOMAXPROCS", "")
	half := strconv.Itoa(max(runtime.NumCPU()/2, 1))
	if got := settings(); !slices.Equal(got, []string{"nats 1", "gateway " + half}) {
		t.Errorf("%q", got)
	}
	t.Setenv("GOMAXPROCS", "3")
	if got := settings(); got != nil {
		t.Errorf("with GOMAXPROCS set: %q", got)
	}
}
