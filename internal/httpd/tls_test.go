package httpd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/testrig"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	t    *testing.T
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	return &authority{cert, key, t}
}

// issue returns a certificate and its key in PEM.
func (a *authority) issue(serial int64) (cert, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: "leaf"},
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	kb, _ := x509.MarshalPKCS8PrivateKey(k)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(
		&pem.Block{Type: "PRIVATE KEY", Bytes: kb})
}

func write2(t *testing.T, dir string, cert, key []byte) {
	t.Helper()
	for name, b := range map[string][]byte{"cert.pem": cert, "key.pem": key} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The server speaks TLS, notices a hang-up below it, uses a renewed certificate without a restart,
// and keeps the old one while the files are broken.
func TestTLS(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	cert, key := ca.issue(10)
	write2(t, dir, cert, key)
	r := start(t, Options{})
	files := newCertificates(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), "",
		slog.New(slog.NewTextHandler(r.log, nil)))
	files.every = 0
	if err := files.load(); err != nil {
		t.Fatal(err)
	}
	addr := r.listen(func(l net.Listener) net.Listener { return tls.NewListener(l, files.config()) })
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
	serial := func() int64 {
		t.Helper()
		resp, err := client.Post("https://"+addr+"/work/echo", "text/plain", strings.NewReader("abc"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 10 {
		t.Errorf("certificate %d", n)
	}
	cert, key = ca.issue(11)
	write2(t, dir, cert, key)
	testrig.Until(t, "the renewed certificate is used", func() bool { return serial() == 11 })
	write2(t, dir, []byte("broken"), key)
	testrig.Until(t, "the broken file is noticed", func() bool {
		if n := serial(); n != 11 {
			t.Fatalf("broken files: certificate %d", n)
		}
		return strings.Contains(r.log.String(), "cannot be used")
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-r.working
		cancel()
	}()
	req, _ := http.NewRequestWithContext(ctx, "POST", "https://"+addr+"/work/wait", strings.NewReader("abc"))
	if resp, err := client.Do(req); err == nil {
		resp.Body.Close()
		t.Error("no error for a cancelled request")
	}
	if err := <-r.ended; !errors.Is(err, admit.ErrClientGone) {
		t.Errorf("the work ended with %v", err)
	}
}

// Clients must show a certificate if an authority for them is set.
func TestTLSClientAuthority(t *testing.T) {
	ca, other, dir := newAuthority(t), newAuthority(t), t.TempDir()
	cert, key := ca.issue(1)
	write2(t, dir, cert, key)
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	config, err := NewTLS(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), caFile,
		slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	addr := start(t, Options{}).listen(
		func(l net.Listener) net.Listener { return tls.NewListener(l, config) })
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	for name, from := range map[string]*authority{"none": nil, "ours": ca, "another's": other} {
		c := &tls.Config{RootCAs: pool}
		if from != nil {
			cert, key := from.issue(2)
			pair, _ := tls.X509KeyPair(cert, key)
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &pair, nil
			}
		}
		resp, err := (&http.Client{
			Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c},
		}).Get("https://" + addr + "/open")
		if (err == nil) != (name == "ours") {
			t.Errorf("a certificate of %s: %v", name, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	if _, err := NewTLS(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"),
		filepath.Join(dir, "key.pem"), slog.Default()); err == nil {
		t.Error("a key is no authority")
	}
}

// While a file cannot be read, as on a disk that does not answer, every handshake gets the earlier
// certificate at once, and the file is read only once. A pipe in its place is refused without a
// wait and logged once.
func TestTLSFilesHoldUpNobody(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	path := filepath.Join(dir, "cert.pem")
	cert, key := ca.issue(10)
	write2(t, dir, cert, key)
	synctest.Test(t, func(t *testing.T) {
		log := &testrig.Log{}
		c := newCertificates(path, filepath.Join(dir, "key.pem"), "", slog.New(slog.NewTextHandler(log, nil)))
		if err := c.load(); err != nil {
			t.Fatal(err)
		}
		serial := func() int64 {
			leaf, err := x509.ParseCertificate(c.latest().Certificates[0].Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			return leaf.SerialNumber.Int64()
		}
		time.Sleep(c.every - 1)
		read, open, reads := c.read, make(chan struct{}), 0
		c.read = func(path string) ([]byte, error) {
			reads++
			<-open
			return read(path)
		}
		cert, key := ca.issue(11)
		write2(t, dir, cert, key)
		serial()
		synctest.Wait()
		if reads != 0 {
			t.Error("the files are looked at before it is time")
		}
		time.Sleep(time.Nanosecond)
		for range 50 {
			if n := serial(); n != 10 {
				t.Fatalf("certificate %d", n)
			}
			synctest.Wait()
			time.Sleep(c.every)
		}
		if reads != 1 {
			t.Errorf("%d reads at the same time", reads)
		}
		close(open)
		synctest.Wait()
		if n := serial(); n != 11 {
			t.Errorf("after the disk has answered: certificate %d", n)
		}

		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(c.every)
			if n := serial(); n != 11 {
				t.Errorf("beside a pipe: certificate %d", n)
			}
			synctest.Wait()
		}
		if n := strings.Count(log.String(), "is a named pipe, not a regular file"); n != 1 {
			t.Errorf("said %d times: %s", n, log)
		}
		if err := errors.Join(os.Remove(path),
			os.WriteFile(path, make([]byte, maxPEMBytes+1), 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(c.every)
		serial()
		synctest.Wait()
		if !strings.Contains(log.String(), "more than the limit of 1048576") {
			t.Errorf("a large file: %s", log)
		}
		cert, key = ca.issue(12)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		write2(t, dir, cert, key)
		time.Sleep(c.every)
		serial()
		synctest.Wait()
		if n := serial(); n != 12 {
			t.Errorf("with good files again: certificate %d", n)
		}
	})
}
