package broker

import (
	"log/slog"
	"net"
	"strings"
	"testing"
)

// Each bad set of options is refused with the flag to mend, before anything is opened.
func TestBadOptionsAreRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no directory": {func(o *Options) { o.StoreDir = "" }, "--store-dir is empty"},
		"half a cluster": {
			func(o *Options) { o.ClusterName = "c" },
			"--server-name, --cluster-name, --cluster-port and --routes",
		},
		"a route without a port": {func(o *Options) {
			o.ServerName, o.ClusterName, o.ClusterPort, o.Routes = "a", "c", 1, []string{"nats://127.0.0.1"}
		}, `--routes "nats://127.0.0.1" is no route`},
		"a route with a password": {func(o *Options) {
			o.ServerName, o.ClusterName, o.ClusterPort, o.Routes = "a", "c", 1, []string{"nats://u:p@h:1"}
		}, "is no route"},
		"one port twice": {
			func(o *Options) { o.Port, o.Monitor = 4222, 4222 }, "--port and --http are both 4222",
		},
		"a taken port": {func(o *Options) { o.Port = taken }, "is another server on this port?"},
		"a taken monitor": {
			func(o *Options) { o.Monitor = taken }, "--http ",
		},
	} {
		o := Options{
			Host: "127.0.0.1", StoreDir: t.TempDir(), MaxMemory: 1 << 20, MaxStore: 1 << 20,
			MaxPayload: 1 << 20, Log: slog.New(slog.DiscardHandler),
		}
		c.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
