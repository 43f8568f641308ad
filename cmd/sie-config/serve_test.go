package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd"
	sie "github.com/sie-engine/sie/internal/cli"
	"github.com/sie-engine/sie/internal/testrig"
)

// Every number of the command line has a range that can be read, and -h is the host.
func TestEveryNumberHasARange(t *testing.T) {
	var c cli
	k := newParser(&c)
	seen := 0
	for _, n := range k.Model.Leaves(false) {
		for _, f := range n.Flags {
			if !sie.Numeric(f.Target.Type()) {
				continue
			}
			seen++
			if _, err := sie.ParseBounds(f.Tag.Get("range"), f.Target.Type()); err != nil {
				t.Errorf("--%s: %v", f.Name, err)
			}
		}
	}
	if seen < 3 {
		t.Errorf("%d numbers were found", seen)
	}
	ctx, err := k.Parse([]string{"serve", "-h", "127.0.0.1", "-p", "70000"})
	if err != nil || c.Serve.Host != "127.0.0.1" {
		t.Fatalf("%v %+v", err, c.Serve)
	}
	if err := sie.Run(ctx); err == nil || !strings.Contains(err.Error(), "port") {
		t.Errorf("port 70000: %v", err)
	}
}

// A token that is set but empty never leads to an open server.
func TestTokensFailClosed(t *testing.T) {
	env := func(list ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for _, x := range list {
				if n, v, _ := strings.Cut(x, "="); n == name {
					return v, true
				}
			}
			return "", false
		}
	}
	want := configd.Tokens{Read: "r", Inference: "i", Admin: "a", Production: true}
	got, err := tokens(env("SIE_CONFIG_READ_TOKEN=r", "SIE_AUTH_TOKEN= i ", "SIE_ADMIN_TOKEN=a",
		"SIE_ENV=Prod"))
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = tokens(env("SIE_ENV=dev")); err != nil || got != (configd.Tokens{}) {
		t.Errorf("%+v %v", got, err)
	}
	for _, name := range []string{"SIE_CONFIG_READ_TOKEN", "SIE_AUTH_TOKEN", "SIE_ADMIN_TOKEN"} {
		if _, err := tokens(env(name + "= ")); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is empty: %v", name, err)
		}
	}
}

const model = "sie_id: org/a\nhf_id: org/a\ntasks: {encode: {dense: {dim: 4}}}\nprofiles:\n" +
	"  default: {adapter_path: 'sie_server.adapters.bert_flash:A', max_batch_tokens: 8}\n"

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The references of -m select ids and add files.
func TestNarrow(t *testing.T) {
	all, err := catalog.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(t.TempDir(), "a.yaml"), model)
	for _, c := range []struct {
		refs []string
		ids  int
	}{{nil, all.Len()}, {[]string{" "}, all.Len()}, {[]string{file}, 1},
		{[]string{file, "BAAI/bge-small-en-v1.5:candle"}, 2}, {[]string{file, file}, 1}} {
		if got, err := narrow(all, c.refs); err != nil || got.Len() != c.ids {
			t.Errorf("%v: %v, want %d ids", c.refs, err, c.ids)
		}
	}
	for ref, want := range map[string]string{
		"BAAI/bge-m4": "did you mean BAAI/bge-m3", "/none.yaml": "no such file",
		t.TempDir() + "/../" + "x.yaml":                                                       "no such file",
		write(t, filepath.Join(t.TempDir(), "b.yaml"), "x: 1"):                                "unknown key",
		write(t, filepath.Join(t.TempDir(), "c.yaml"), strings.Repeat("#", maxDocument)+"\n"): "the limit",
	} {
		if _, err := narrow(all, []string{ref}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", ref, err, want)
		}
	}
}

// The command serves, reads its files again at SIGHUP, keeps what it had if they are broken, and
// ends.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "a.yaml"), model)
	var out bytes.Buffer
	c := serveCmd{Host: "127.0.0.1", ModelsDir: dir, DrainTimeout: 5 * time.Second, MaxConns: 8}
	ctx, stop := context.WithCancel(t.Context())
	hup := make(chan os.Signal)
	address := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	go func() {
		log := slog.New(slog.NewTextHandler(&out, nil))
		ended <- c.serve(ctx, hup, log, func(a net.Addr) { address <- a })
	}()
	var at string
	select {
	case a := <-address:
		at = a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	get := func(path string) string {
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := get("/v1/configs/epoch")
	if got := get("/v1/configs/models/org/a"); got != model {
		t.Errorf("%s", got)
	}
	write(t, file, "broken")
	hup <- syscall.SIGHUP
	hup <- syscall.SIGHUP // the first has been handled
	if get("/v1/configs/epoch") != first {
		t.Error("a broken file changed what is served")
	}
	write(t, file, strings.Replace(model, "tokens: 8", "tokens: 9", 1))
	hup <- syscall.SIGHUP
	hup <- syscall.SIGHUP
	if get("/v1/configs/epoch") == first ||
		!strings.Contains(get("/v1/configs/export"), `"max_batch_tokens":9`) {
		t.Error("the new file is not served")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := out.String(); !strings.Contains(text, "were not read again") {
		t.Error(text)
	}
}

// A certificate that is renewed is shown to new connections, without a signal or a new start.
func TestACertificateIsRenewed(t *testing.T) {
	a := testrig.NewAuthority(t)
	first := a.SignServer("server").SerialNumber
	c := serveCmd{Host: "127.0.0.1", DrainTimeout: 5 * time.Second, MaxConns: 8,
		TLSCert: a.Path("server"), TLSKey: a.Path("server-key")}
	ctx, stop := context.WithCancel(t.Context())
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- c.serve(ctx, nil, slog.New(slog.DiscardHandler), func(a net.Addr) { address <- a })
	}()
	var at string
	select {
	case a := <-address:
		at = a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	trusting := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	trusting.RootCAs.AddCert(a.Cert)
	shown := func() *x509.Certificate {
		conn, err := tls.Dial("tcp", at, trusting)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0]
	}
	if shown().SerialNumber.Cmp(first) != 0 {
		t.Error("another certificate than the first")
	}
	for next := a.SignServer("server").SerialNumber; shown().SerialNumber.Cmp(next) != 0; {
		time.Sleep(20 * time.Millisecond) // it looks once a second
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
