package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/internal/testrig"
)

// configured is a server that a file configures, and what it logs.
type configured struct {
	url       string
	config    string // its file
	passwords string // their directory
	log       *testrig.Log
}

// runFile runs a server with a configuration behind what every test needs.
func runFile(t *testing.T, text string, passwords map[string]string) *configured {
	t.Helper()
	dir := t.TempDir()
	c := &configured{config: filepath.Join(dir, "nats.conf"), passwords: filepath.Join(dir, "passwords"),
		log: &testrig.Log{}}
	if err := os.Mkdir(c.passwords, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, password := range passwords {
		testrig.Replace(t, filepath.Join(c.passwords, name), []byte(password+"\n"))
	}
	c.write(t, text)
	s, err := Open(File{Path: c.config, Passwords: c.passwords,
		Log: slog.New(slog.NewTextHandler(c.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(url string) { ready <- url }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case c.url = <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal(err)
	}
	return c
}

func (c *configured) write(t *testing.T, text string) {
	t.Helper()
	testrig.Replace(t, c.config, fmt.Appendf(nil, "listen: \"127.0.0.1:-1\"\njetstream { store_dir: %q }\n%s",
		filepath.Join(filepath.Dir(c.config), "data"), text))
}

// reads waits until the log has said that the configuration was read again, or could not be, n
// times.
func (c *configured) reads(t *testing.T, words string, n int) {
	t.Helper()
	testrig.Until(t, fmt.Sprintf("%q is logged %d times", words, n), func() bool {
		return strings.Count(c.log.String(), words) >= n
	})
}

const (
	readAgain = "the configuration of NATS is read again"
	notUsed   = "cannot be used"
)

// certificateOf returns the serial number of the certificate that a NATS server shows.
func certificateOf(t *testing.T, at string, ca string) string {
	t.Helper()
	serial := ""
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	conn, err := nats.Connect(at, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12,
		VerifyConnection: func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.String()
			return nil
		}}))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	return serial
}

// A certificate that is renewed under load is shown to the next connection; no request on a kept
// connection fails, and no new connection.
func TestACertificateIsRenewedUnderLoad(t *testing.T) {
	a := testrig.NewAuthority(t)
	a.SignServer("server")
	c := runFile(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q }",
		a.Path("server"), a.Path("server-key")), nil)
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	at := "tls://" + u.Host
	kept, err := nats.Connect(at, nats.RootCAs(a.Path("ca")), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if _, err := kept.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var done atomic.Int64
	for _, dial := range []bool{false, true} {
		load.Go(func() {
			for ctx.Err() == nil {
				conn := kept
				if dial {
					var err error
					if conn, err = nats.Connect(at, nats.RootCAs(a.Path("ca"))); err != nil {
						t.Errorf("a new connection: %v", err)
						return
					}
				}
				if _, err := conn.RequestWithContext(t.Context(), "echo", nil); err != nil {
					t.Errorf("a request: %v", err)
				}
				if dial {
					conn.Close()
				}
				done.Add(1)
			}
		})
	}
	for n := 1; n <= 3; n++ {
		next := a.SignServer("server").SerialNumber.String()
		// Between the two files a key does not fit: that may be seen, and changes nothing.
		testrig.Until(t, "the new certificate is shown", func() bool {
			return certificateOf(t, at, a.Path("ca")) == next
		})
		before := done.Load()
		testrig.Until(t, "requests go on", func() bool { return done.Load() > before+10 })
	}
	stop()
	load.Wait()
	if !kept.IsConnected() {
		t.Error("the kept connection was cut")
	}
}

// What cannot be used is told once, and what was before stays in force; a password that changed is
// asked for from then on.
func TestAFileIsReadAgain(t *testing.T) {
	const text = `accounts { A { users: [ { user: u, password: $sie_gateway_password } ] } }`
	old, next := strings.Repeat("1", 16), strings.Repeat("9", 20) // a number is a password too
	c := runFile(t, text, map[string]string{"gateway": old, "other": "short, but nobody's"})
	connects := func(password string) bool {
		conn, err := nats.Connect(c.url, nats.UserInfo("u", password))
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	if !connects(old) || connects(next) {
		t.Fatal("the first password is not in force")
	}
	for n, bad := range []string{"accounts {", text + "\nmax_payload: x", text + "\nserver_name: another"} {
		c.write(t, bad)
		c.reads(t, notUsed, n+1)
		if !connects(old) {
			t.Errorf("%s: the earlier configuration does not stay", bad)
		}
	}
	c.write(t, text)
	c.reads(t, readAgain, 1)
	testrig.Replace(t, filepath.Join(c.passwords, "gateway"), []byte(next))
	c.reads(t, readAgain, 2)
	if connects(old) || !connects(next) {
		t.Error("the second password is not in force")
	}
	if strings.Contains(c.log.String(), old) || strings.Contains(c.log.String(), next) {
		t.Error("a password is logged")
	}
}

// A file that cannot be used is refused, with its name and what is wrong with it, and no password.
func TestBadFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	config, passwords := filepath.Join(dir, "nats.conf"), filepath.Join(dir, "passwords")
	if err := os.Mkdir(passwords, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"short": "s3cret", "odd": "s3cret s3cret s3cret", "quote": `s3crets3crets3cret"`,
	} {
		testrig.Replace(t, filepath.Join(passwords, name), []byte(text))
	}
	with := func(name string) string {
		return "authorization { user: u, password: $sie_" + name + "_password }"
	}
	for _, c := range []struct{ text, passwords, want string }{
		{"listen {", "", "nats.conf"},
		{"no_such_setting: 1", "", "no_such_setting"},
		{with("gateway"), "", "name the directory of passwords with --passwords"},
		{with("gateway"), passwords, "passwords/gateway"},
		{with("short"), passwords, "passwords/short has fewer than 16"},
		{with("odd"), passwords, "passwords/odd has a character"},
		{with("quote"), passwords, "passwords/quote has a character"},
		{`tls { cert_file: "/none", key_file: "/none" }`, "", "/none"},
	} {
		testrig.Replace(t, config, []byte(c.text))
		_, err := Open(File{Path: config, Passwords: c.passwords, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := Open(File{Path: filepath.Join(dir, "none")}); err == nil {
		t.Error("no file is no error")
	}
}

// Routes that name no user have that of the cluster: NATS itself would call them without one.
func TestRoutesHaveTheUserOfTheCluster(t *testing.T) {
	dir := t.TempDir()
	password := strings.Repeat("a", 16)
	testrig.Replace(t, filepath.Join(dir, "route"), []byte(password))
	f := File{Path: filepath.Join(dir, "nats.conf"), Passwords: dir}
	testrig.Replace(t, f.Path, []byte(`cluster { name: c, listen: "127.0.0.1:-1"
		authorization { user: sie-route, password: $sie_route_password }
		routes: [ "nats://a:6222", "nats://x:y@b:6222" ] }`))
	o, err := f.Options()
	if err != nil {
		t.Fatal(err)
	}
	got := o.Routes[0].User.String() + " " + o.Routes[1].User.String()
	if got != "sie-route:"+password+" x:y" {
		t.Errorf("the users of the routes are %s", got)
	}
}
