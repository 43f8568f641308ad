package testrig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for a test, in files of a folder.
type Authority struct {
	Cert *x509.Certificate

	t   testing.TB
	dir string
	key *ecdsa.PrivateKey
}

// NewAuthority returns an authority whose own certificate is ca.pem.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.key, a.Cert = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return a
}

// Path returns the file of a certificate; that of its key has the name with "-key" behind it.
func (a *Authority) Path(name string) string { return filepath.Join(a.dir, name+".pem") }

// Sign makes a key and its certificate for an hour. Each file is replaced as a whole, the key
// first.
func (a *Authority) Sign(name string, c *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	_, out := a.sign(name, c)
	return out
}

// SignServer makes a key and a certificate for servers on this machine, which may also call others.
func (a *Authority) SignServer(name string) *x509.Certificate {
	a.t.Helper()
	return a.Sign(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) sign(name string, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := c, key
	if a.Cert != nil {
		parent, signer = a.Cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	Replace(a.t, a.Path(name+"-key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
	Replace(a.t, a.Path(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, out
}

// Replace writes a file that only its owner may read, so that readers see it old or new, and never
// in part.
func Replace(t testing.TB, path string, b []byte) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}
