package bus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/sie-engine/sie/internal/bus"
	"github.com/sie-engine/sie/internal/bus/bustest"
	"github.com/sie-engine/sie/internal/testrig"
)

// authority signs certificates, for a test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key, a.cert = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a key and its certificate, in NAME.pem and NAME-key.pem.
func (a *authority) sign(name string, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := c, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, a.path(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(a.t, a.path(name+"-key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, out
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name+".pem") }

// server returns what makes a NATS server encrypt, and where verify is set ask for certificates.
func (a *authority) server(verify bool) func(*server.Options) {
	a.t.Helper()
	a.sign("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	cert, err := tls.LoadX509KeyPair(a.path("server"), a.path("server-key"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
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
	a := newAuthority(t)
	s := bustest.Start(t, a.server(false))
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(s.URL, "tls://"), "nats://"))
	for _, scheme := range []string{"nats://", "tls://"} {
		if is, log := connects(t, scheme+"127.0.0.1:"+port, bus.Access{CA: a.path("ca")}); !is {
			t.Errorf("%s: %s", scheme, log)
		}
		if is, log := connects(t, scheme+"127.0.0.1:"+port, bus.Access{}); is || !strings.Contains(log,
			"give its file as SIE_NATS_CA") {
			t.Errorf("%s without the authority: %v %s", scheme, is, log)
		}
	}
	other := newAuthority(t)
	if is, log := connects(t, "tls://127.0.0.1:"+port, bus.Access{CA: other.path("ca")}); is {
		t.Errorf("another authority: %s", log)
	}
	plain := bustest.Start(t, nil)
	if is, log := connects(t, plain.URL, bus.Access{CA: a.path("ca")}); is || !strings.Contains(log,
		"NATS does not encrypt") {
		t.Errorf("an authority for a broker without TLS: %v %s", is, log)
	}
}

// A broker that asks for certificates takes one of its authority, and a renewed one after the file
// was replaced.
func TestClientCertificate(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	client := func(of *authority) {
		of.sign("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	client(a)
	client(other)
	s := bustest.Start(t, a.server(true))
	if is, log := connects(t, s.URL,
		bus.Access{CA: a.path("ca"), Cert: a.path("client"), Key: a.path("client-key")}); !is {
		t.Errorf("with its certificate: %s", log)
	}
	if is, _ := connects(t, s.URL, bus.Access{CA: a.path("ca")}); is {
		t.Error("without a certificate it is connected")
	}
	wrong := bus.Access{CA: a.path("ca"), Cert: other.path("client"), Key: other.path("client-key")}
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
		b, err := os.ReadFile(a.path("client" + of))
		if err != nil {
			t.Fatal(err)
		}
		write(t, other.path("client"+of), b)
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
	a, dir := newAuthority(t), t.TempDir()
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
		{"x", bus.Access{Cert: a.path("ca")}, []string{"SIE_NATS_CERT and SIE_NATS_KEY"}},
		{"x", bus.Access{Cert: a.path("ca"), Key: none}, []string{"SIE_NATS_KEY: open " + none}},
		{"x", bus.Access{Cert: a.path("ca"), Key: garbage},
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
