package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/files"
)

// maxPEMBytes bounds a file of certificates or a key. A bundle of all public authorities takes a
// quarter of it.
const maxPEMBytes = 1 << 20

// certificates holds a server's certificate and the authority that signs its clients' certificates.
// It reads the files again when they change, so that a renewed certificate needs no restart. Safe
// for concurrent use.
//
// A handshake never waits for a file: it takes the last good version. When a check of the files is
// due, one goroutine makes it in the meantime. If the file system blocks that goroutine, no
// handshake is delayed.
type certificates struct {
	cert, key, clientCA string
	log                 *slog.Logger
	every               time.Duration                     // the least time between two checks of the files
	read                func(path string) ([]byte, error) // the content of a file

	start   time.Time
	looked  atomic.Int64 // when the files were last checked, in nanoseconds since start
	looking atomic.Bool  // a goroutine is checking them; it owns stamps
	stamps  [3]stamp
	current atomic.Pointer[tls.Config]
}

// stamp distinguishes the versions of a file.
type stamp struct {
	modified time.Time
	size     int64
}

// NewTLS returns the configuration of a TLS listener from PEM files. If clientCA is not "", clients
// must show a certificate that it signed. Files that cannot be read, or do not fit together, are an
// error now. When they break later, the last good ones stay in use and log gets an error. A renewed
// certificate is used soon after the first handshake that finds it.
func NewTLS(cert, key, clientCA string, log *slog.Logger) (*tls.Config, error) {
	if cert == "" || key == "" {
		return nil, errors.New("TLS needs both a certificate and its key: set --tls-cert and --tls-key")
	}
	c := newCertificates(cert, key, clientCA, log)
	if err := c.load(); err != nil {
		return nil, err
	}
	return c.config(), nil
}

func newCertificates(cert, key, clientCA string, log *slog.Logger) *certificates {
	return &certificates{
		cert:     cert,
		key:      key,
		clientCA: clientCA,
		log:      log,
		every:    time.Second,
		start:    time.Now(),
		read:     func(path string) ([]byte, error) { return files.Read(path, maxPEMBytes) },
	}
}

func (c *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.latest(), nil }}
}

// latest returns the last good configuration. When a check of the files is due, it starts one.
func (c *certificates) latest() *tls.Config {
	if int64(time.Since(c.start))-c.looked.Load() >= int64(c.every) && c.looking.CompareAndSwap(false, true) {
		go c.refresh()
	}
	return c.current.Load()
}

// refresh reads the files again if they have changed. The caller has set looking.
func (c *certificates) refresh() {
	defer c.looking.Store(false)
	defer func() { c.looked.Store(int64(time.Since(c.start))) }()
	if c.stampsNow() == c.stamps {
		return
	}
	if err := c.load(); err != nil {
		c.log.Error("TLS files changed but cannot be used; the earlier ones stay", "error", err)
	} else {
		c.log.Info("TLS files changed; new connections use them")
	}
}

// load reads the files. Only one goroutine calls it at a time.
func (c *certificates) load() error {
	c.stamps = c.stampsNow() // before the files are read: a change in between is seen by the next check
	cert, err := c.read(c.cert)
	if err != nil {
		return fmt.Errorf("TLS certificate: %w", err)
	}
	key, err := c.read(c.key)
	if err != nil {
		return fmt.Errorf("TLS key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("TLS certificate %s with key %s: %w", c.cert, c.key, err)
	}
	next := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair},
	}
	if c.clientCA != "" {
		pem, err := c.read(c.clientCA)
		if err != nil {
			return fmt.Errorf("TLS client authority: %w", err)
		}
		next.ClientCAs, next.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !next.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("TLS client authority: %s holds no certificate in PEM", c.clientCA)
		}
	}
	c.current.Store(next)
	return nil
}

func (c *certificates) stampsNow() (out [3]stamp) {
	for i, name := range []string{c.cert, c.key, c.clientCA} {
		if name == "" {
			continue
		}
		if st, err := os.Stat(name); err == nil {
			out[i] = stamp{st.ModTime(), st.Size()}
		}
	}
	return out
}
