package natscheck

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/tools/kube/stage"
)

// The certificates of NATS and of the gateway are renewed while requests come, first by the same
// authority, then by another one that was added before: no request fails, on a kept connection or a
// new one, no process starts again, and each new connection is shown the new certificate.
func TestCertificatesAreRenewedUnderLoad(t *testing.T) {
	stage.Full(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := stage.Dir(t)
	secret := func(name string) string {
		at := filepath.Join(dir, name)
		must(os.MkdirAll(at, 0o700))
		return at
	}
	natsTLS, gatewayTLS := secret("nats-tls"), secret("gateway-tls")
	var authorities []*testrig.Authority
	trust := func() []byte {
		var all []byte
		for _, a := range authorities {
			b, err := os.ReadFile(a.Path("ca"))
			must(err)
			all = append(all, b...)
		}
		return all
	}
	// renew signs a certificate and puts it in place as a kubelet does: all files at once.
	renew := func(at string) string {
		a := authorities[len(authorities)-1]
		serial := a.SignServer("server").SerialNumber.String()
		next := map[string][]byte{"ca.crt": trust()}
		for to, from := range map[string]string{"tls.crt": "server", "tls.key": "server-key"} {
			b, err := os.ReadFile(a.Path(from))
			must(err)
			next[to] = b
		}
		must(swap(at, next))
		return serial
	}
	authorities = append(authorities, testrig.NewAuthority(t))
	renew(natsTLS)
	renew(gatewayTLS)

	passwords := filepath.Join(dir, "nats-passwords")
	must(WritePasswords(passwords))
	config := filepath.Join(dir, "nats.conf")
	conf := Conf(t, "nats.tls.enabled=true", "nats.tls.secretName=nats-tls")
	place := Place{Name: "nats-0", Dir: dir, TLS: natsTLS, Client: -1, Monitor: -1}
	must(os.WriteFile(config, []byte(Local(conf, place)), 0o600))
	bin := stage.Programs(t)
	server, err := stage.Start(dir, "nats", nil, filepath.Join(bin, stage.Gateway), "nats",
		"--config", config, "--passwords", passwords)
	must(err)
	t.Cleanup(server.Kill)
	at, err := server.Await(ctx, regexp.MustCompile(`msg=ready url=\S+?://(\S+)`))
	must(err)

	lane := bus.Lane{Pool: "default", Profile: "cpu", Bundle: "default"}
	c, err := stage.New(stage.Options{
		Dir: dir, Bin: map[string]string{"": bin}, NATSURL: "tls://" + at,
		CA: filepath.Join(natsTLS, "ca.crt"), Users: Users(),
		Lanes: []bus.Lane{lane}, Models: []string{encoder},
	})
	must(err)
	t.Cleanup(c.Close)
	_, _, err = c.StartConfig(ctx, 0)
	must(err)
	gateway, url, err := c.StartGateway(ctx, "SIE_TLS_CERT="+filepath.Join(gatewayTLS, "tls.crt"),
		"SIE_TLS_KEY="+filepath.Join(gatewayTLS, "tls.key"))
	must(err)
	worker, err := c.StartWorker(ctx, "w1", lane)
	must(err)
	must(stage.Ready(ctx, worker.ProbeURL+"/readyz"))

	// Clients trust both authorities, as theirs would be told beforehand.
	second := testrig.NewAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(authorities[0].Cert)
	pool.AddCert(second.Cert)
	trusting := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	ask := func(client *http.Client) error {
		body := strings.NewReader(`{"items":[{"id":"a","text":"a text"}]}`)
		resp, err := client.Post(url+"/v1/encode/"+encoder, "application/json", body)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 {
			return fmt.Errorf("status %d: %.200s (%w)", resp.StatusCode, b, err)
		}
		return nil
	}
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting}}
	fresh := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting, DisableKeepAlives: true}}
	for why := ask(kept); why != nil; why = ask(kept) { // until the first worker is known
		select {
		case <-ctx.Done():
			t.Fatal(why)
		case <-time.After(50 * time.Millisecond):
		}
	}
	loading, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	var done, failed atomic.Int64
	for _, client := range []*http.Client{kept, fresh, kept, fresh} {
		load.Go(func() {
			for loading.Err() == nil {
				if err := ask(client); err != nil {
					failed.Add(1)
					t.Error(err)
				}
				done.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	shows := func(what string, see func() string, serial string) {
		t.Helper()
		for see() != serial {
			select {
			case <-ctx.Done():
				t.Fatalf("%s does not show its new certificate: %s", what, server.Log())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	ofGateway := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), trusting)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	ofNATS := func() string {
		serial := ""
		own := trusting.Clone()
		own.VerifyConnection = func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		}
		conn, err := nats.Connect("tls://"+at, nats.Secure(own),
			nats.UserInfo(broker.ExporterUser, PasswordOf(broker.ExporterUser)))
		if err != nil {
			return err.Error()
		}
		conn.Close()
		return serial
	}
	turn := func() {
		t.Helper()
		shows("NATS", ofNATS, renew(natsTLS))
		shows("the gateway", ofGateway, renew(gatewayTLS))
		for before := done.Load(); done.Load() < before+40 && ctx.Err() == nil; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	turn()
	authorities = append([]*testrig.Authority{second}, authorities...) // trusted, and signs nothing yet
	turn()
	authorities = []*testrig.Authority{authorities[1], second} // signs now
	turn()
	stop()
	load.Wait()
	// Whoever is started now trusts the second authority.
	must(worker.Sidecar.Stop(time.Minute))
	must(c.StartSidecar(ctx, worker, "w1", lane))
	must(stage.Ready(ctx, worker.ProbeURL+"/readyz"))
	if failed.Load() > 0 || done.Load() < 120 {
		t.Errorf("%d of %d requests failed", failed.Load(), done.Load())
	}
	for _, p := range []*stage.Process{server, gateway} {
		select {
		case <-p.Ended():
			t.Errorf("%s ended", p.Name)
		default:
		}
	}
	for _, line := range strings.Split(server.Log(), "\n") {
		if strings.Contains(line, "Violation") {
			t.Error(line)
		}
	}
	if strings.Contains(gateway.Log(), "NATS is away") {
		t.Error("the gateway lost its connection to NATS")
	}
}

// swap replaces the files of a folder all at once, as a kubelet does with a Secret's: each file is
// a link through one that is renamed.
func swap(dir string, files map[string][]byte) error {
	next, err := os.MkdirTemp(dir, "..v")
	if err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(next, name), b, 0o600); err != nil {
			return err
		}
	}
	link := filepath.Join(dir, "..next")
	if err := os.Symlink(filepath.Base(next), link); err != nil {
		return err
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		return err
	}
	for name := range files {
		to := filepath.Join(dir, name)
		if _, err := os.Lstat(to); err != nil {
			if err := os.Symlink(filepath.Join("..data", name), to); err != nil {
				return err
			}
		}
	}
	return nil
}
