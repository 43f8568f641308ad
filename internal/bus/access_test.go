package bus_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// encrypting returns what makes a NATS server encrypt, and where verify is set ask for
// certificates.
func encrypting(t *testing.T, a *testrig.Authority, verify bool) func(*server.Options) {
	t.Helper()
	a.Sign("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	cert, err := tls.LoadX509KeyPair(a.Path("server"), a.Path("server-key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, verify, 2
		o.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{cert}, ClientCAs: pool, MinVersion: tls.VersionTLS12,
		}
		if verify {
			o.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// connects reports whether a component reaches the broker, and what it logs.
func connects(t *testing.T, url string, a bus.Access) (bool, string) {
	t.Helper()
	log, connected := &testrig.Log{}, make(chan struct{}, 1)
	c, err := bus.Connect(bus.Options{
		URL: url, Name: "t", Access: a, Inboxes: bus.GatewayInboxes,
		Log:       slog.New(slog.NewTextHandler(log, nil)),
		Connected: func() { connected <- struct{}{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	is := false
	testrig.Until(t, "it is connected or the failure is logged", func() bool {
		select {
		case <-connected:
			is = true
		default:
		}
		return is || strings.Contains(log.String(), "trying again")
	})
	return is, log.String()
}

// A broker with a private authority is reached with that authority's file, by either scheme, and
// the log of one without it says what to give.
func TestPrivateAuthority(t *testing.T) {
	a := testrig.NewAuthority(t)
	s := bustest.Start(t, encrypting(t, a, false))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(s.URL, "tls://"), "nats://"))
	for _, scheme := range []string{"nats://", "tls://"} {
		if is, log := connects(t, scheme+"127.0.0.1:"+port, bus.Access{CA: a.Path("ca")}); !is {
			t.Errorf("%s: %s", scheme, log)
		}
		if is, log := connects(t, scheme+"127.0.0.1:"+port, bus.Access{}); is || !strings.Contains(log,
			"give its file as SIE_NATS_CA") {
			t.Errorf("%s without the authority: %v %s", scheme, is, log)
		}
	}
	other := testrig.NewAuthority(t)
	if is, log := connects(t, "tls://127.0.0.1:"+port, bus.Access{CA: other.Path("ca")}); is {
		t.Errorf("another authority: %s", log)
	}
	plain := bustest.Start(t, nil)
	if is, log := connects(t, plain.URL, bus.Access{CA: a.Path("ca")}); is || !strings.Contains(log,
		"NATS does not encrypt") {
		t.Errorf("an authority for a broker without TLS: %v %s", is, log)
	}
}

// A broker that asks for certificates takes one of its authority, and a renewed one after the file
// was replaced.
func TestClientCertificate(t *testing.T) {
	a, other := testrig.NewAuthority(t), testrig.NewAuthority(t)
	client := func(of *testrig.Authority) {
		of.Sign("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	client(a)
	client(other)
	s := bustest.Start(t, encrypting(t, a, true))
	if is, log := connects(t, s.URL,
		bus.Access{CA: a.Path("ca"), Cert: a.Path("client"), Key: a.Path("client-key")}); !is {
		t.Errorf("with its certificate: %s", log)
	}
	if is, _ := connects(t, s.URL, bus.Access{CA: a.Path("ca")}); is {
		t.Error("without a certificate it is connected")
	}
	wrong := bus.Access{CA: a.Path("ca"), Cert: other.Path("client"), Key: other.Path("client-key")}
	connected := make(chan struct{}, 1)
	log := &testrig.Log{}
	c, err := bus.Connect(bus.Options{URL: s.URL, Name: "t", Access: wrong, Inboxes: bus.GatewayInboxes,
		Log: slog.New(slog.NewTextHandler(log, nil)), Connected: func() { connected <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	testrig.Until(t, "the refusal is logged", func() bool {
		return strings.Contains(log.String(), "trying again")
	})
	// Key first: a pair that does not fit is not sent, and tried again.
	for _, of := range []string{"-key", ""} {
		b, err := os.ReadFile(a.Path("client" + of))
		if err != nil {
			t.Fatal(err)
		}
		write(t, other.Path("client"+of), b)
	}
	<-connected
}

// A token or the file of a user is enough, and a broker that refuses them is tried again.
func TestTokenAndCreds(t *testing.T) {
	s := bustest.Start(t, func(o *server.Options) { o.Authorization = "s3cret-token" })
	if is, log := connects(t, s.URL, bus.Access{Token: "s3cret-token"}); !is {
		t.Errorf("token: %s", log)
	}
	if is, log := connects(t, s.URL, bus.Access{Token: "wr0ng-token"}); is ||
		strings.Contains(log, "wr0ng") || !strings.Contains(log, "NATS refuses") {
		t.Errorf("wrong token: %v %s", is, log)
	}
	creds := filepath.Join(t.TempDir(), "user.creds")
	trusted, resolver, user := operator(t, creds)
	s = bustest.Start(t, func(o *server.Options) {
		o.TrustedKeys, o.AccountResolver, o.JetStream = []string{trusted}, resolver, false
	})
	if is, log := connects(t, s.URL, bus.Access{Creds: creds}); !is {
		t.Errorf("creds: %s", log)
	}
	if is, log := connects(t, s.URL, bus.Access{User: "u", Password: "p4ssw0rd"}); is ||
		strings.Contains(log, "p4ssw0rd") || strings.Contains(log, user) {
		t.Errorf("no creds: %v %s", is, log)
	}
}

// operator makes an operator with an account and a user, whose file it writes. It returns the
// operator's public key, the accounts, and the user's seed.
func operator(t *testing.T, creds string) (string, server.AccountResolver, string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := func(kp nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		t.Helper()
		must(err)
		public, err := kp.PublicKey()
		must(err)
		return kp, public
	}
	op, opKey := pair(nkeys.CreateOperator())
	account, accountKey := pair(nkeys.CreateAccount())
	user, userKey := pair(nkeys.CreateUser())
	accountJWT, err := jwt.NewAccountClaims(accountKey).Encode(op)
	must(err)
	claims := jwt.NewUserClaims(userKey)
	userJWT, err := claims.Encode(account)
	must(err)
	seed, err := user.Seed()
	must(err)
	file, err := jwt.FormatUserConfig(userJWT, seed)
	must(err)
	write(t, creds, file)
	resolver := &server.MemAccResolver{}
	must(resolver.Store(accountKey, accountJWT))
	return opKey, resolver, string(seed)
}

// What is wrong is told with the variable and the file, all of it at once, and no secret.
func TestAccessErrors(t *testing.T) {
	a, dir := testrig.NewAuthority(t), t.TempDir()
	garbage, none := filepath.Join(dir, "garbage"), filepath.Join(dir, "none")
	write(t, garbage, []byte("s3cret garbage"))
	large := filepath.Join(dir, "large")
	write(t, large, make([]byte, 1<<20+1))
	const secret = "s3cret"
	for _, c := range []struct {
		url    string
		access bus.Access
		want   []string // nothing: no error
	}{
		{"nats://x:1, tls://u:" + secret + "@y:2,z", bus.Access{Token: secret}, nil},
		{"", bus.Access{User: "u"}, []string{"SIE_NATS_URL", "SIE_NATS_USER and SIE_NATS_PASSWORD"}},
		{"nats://u:" + secret + "@", bus.Access{}, []string{"SIE_NATS_URL", "no host"}},
		{"nats://u:" + secret + "%zz@h:1", bus.Access{}, []string{"SIE_NATS_URL", "cannot be read"}},
		{"x", bus.Access{Password: secret}, []string{"SIE_NATS_USER and SIE_NATS_PASSWORD"}},
		{"x", bus.Access{User: "u", Password: secret, Token: secret}, []string{"one of", "SIE_NATS_TOKEN"}},
		{"x", bus.Access{Token: secret, Creds: garbage}, []string{"one of", "SIE_NATS_CREDS", garbage}},
		{"x", bus.Access{CA: none}, []string{"SIE_NATS_CA: open " + none}},
		{"x", bus.Access{CA: garbage}, []string{"SIE_NATS_CA: " + garbage + " has no certificate"}},
		{"x", bus.Access{CA: large}, []string{"SIE_NATS_CA: " + large + " has more than"}},
		{"x", bus.Access{CA: dir}, []string{"SIE_NATS_CA: "}},
		{"x", bus.Access{Cert: a.Path("ca")}, []string{"SIE_NATS_CERT and SIE_NATS_KEY"}},
		{"x", bus.Access{Cert: a.Path("ca"), Key: none}, []string{"SIE_NATS_KEY: open " + none}},
		{"x", bus.Access{Cert: a.Path("ca"), Key: garbage},
			[]string{"SIE_NATS_CERT", "SIE_NATS_KEY " + garbage}},
		{"x", bus.Access{Creds: none, CA: none}, []string{"SIE_NATS_CREDS: open " + none, "SIE_NATS_CA"}},
	} {
		conn, err := bus.Connect(bus.Options{URL: c.url, Access: c.access, Inboxes: bus.GatewayInboxes,
			Log: slog.New(slog.DiscardHandler)})
		if conn != nil {
			conn.Close()
		}
		if (err == nil) != (c.want == nil) {
			t.Errorf("%q: %v", c.want, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v lacks %q", err, part)
			}
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("a secret is told: %v", err)
		}
	}
	const list = "nats://u:p@a:1,tls://b,t0ken@c:2"
	if got := bus.Redacted(list); got != "nats://a:1,tls://b,c:2" {
		t.Errorf("%q", got)
	}
}
