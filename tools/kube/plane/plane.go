package plane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sie-engine/sie/tools/kube/stage"
)

// Plane is a control plane that runs. It belongs to one test's goroutine, but for the warnings.
type Plane struct {
	Config *rest.Config // of a user who may do everything

	client dynamic.Interface
	found  *discovery.DiscoveryClient
	mapper meta.RESTMapper // of what the server had when it was last asked

	mu       sync.Mutex
	warnings []string
}

// startTime bounds the start of a process, on a machine where others work too.
const startTime = 3 * time.Minute

// Start starts etcd and kube-apiserver, and puts the custom resources in. All of it ends with the
// test.
func Start(t testing.TB) *Plane {
	t.Helper()
	made := filepath.Join(stage.Root(t), "build", "kube")
	servers, err := filepath.Glob(filepath.Join(made, "kube-apiserver-v*[0-9]"))
	if err != nil || len(servers) == 0 {
		t.Fatalf("%s has no kube-apiserver: run make kube-check", made)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	var p *Plane
	for try := 1; ; try++ { // another process may take a port that was free
		if p, err = start(ctx, t, dir, filepath.Join(made, "etcd"), slices.Max(servers)); err == nil {
			break
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Log("once more: ", err)
	}
	p.definitions(ctx, t)
	return p
}

// freePort returns a port of this machine that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// token is that of the only user. The server listens on this machine alone, for minutes.
const token = "of-a-test"

func start(ctx context.Context, t testing.TB, dir, etcd, apiserver string) (*Plane, error) {
	run, err := os.MkdirTemp(dir, "plane")
	if err != nil {
		return nil, err
	}
	var ports [3]int
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	if err := keys(run); err != nil {
		return nil, err
	}
	clients := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peers := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	store, err := stage.Start(run, "etcd", nil, etcd, "--data-dir", filepath.Join(run, "data"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", "default="+peers, "--unsafe-no-fsync")
	if err != nil {
		return nil, err
	}
	t.Cleanup(store.Kill)
	at := func(name string) string { return filepath.Join(run, name) }
	server, err := stage.Start(run, "kube-apiserver", nil, apiserver,
		"--etcd-servers", clients, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]),
		"--cert-dir", run, "--token-auth-file", at("tokens.csv"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", "10.0.0.0/16",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", at("sa.key"), "--service-account-signing-key-file", at("sa.key"),
		"--profiling=false", "--v=1")
	if err != nil {
		return nil, err
	}
	t.Cleanup(server.Kill)
	p := &Plane{}
	p.Config = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, WarningHandler: p,
	}
	if err := p.connect(); err != nil {
		return nil, err
	}
	return p, p.ready(ctx, server)
}

// keys writes what the server needs for its users: the token of one, and a key for service
// accounts.
func keys(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(filepath.Join(dir, "sa.key"), text, 0o600); err != nil {
		return err
	}
	users := []byte(token + `,test,test,"system:masters"` + "\n")
	return os.WriteFile(filepath.Join(dir, "tokens.csv"), users, 0o600)
}

// ready waits until the server says that it is.
func (p *Plane) ready(ctx context.Context, server *stage.Process) error {
	client, err := rest.HTTPClientFor(p.Config)
	if err != nil {
		return err
	}
	why := ""
	for {
		resp, err := client.Get(p.Config.Host + "/readyz")
		if err != nil {
			why = err.Error()
		} else {
			b, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			why = string(b)
		}
		select {
		case <-server.Ended():
			log := server.Log()
			return fmt.Errorf("kube-apiserver ended: %w: %s", server.Err(), log[max(0, len(log)-2000):])
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %s", why)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
